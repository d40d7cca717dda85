package account

import (
	"fmt"
	"slices"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// Machine-readable causes of refusals.
const (
	causeNoneEnabled    = "none_enabled"
	causeCoolingDown    = "all_cooling_down"
	causeRateLimited    = "rate_limited"
	causeReauthRequired = "reauth_required"
	causeTried          = "all_tried"
	causeQuota          = "quota_exhausted"
	causeOwnerGone      = "account_gone"
	causeOwnerModel     = "model_not_allowed"
)

// maxModelEcho bounds how much of a client's model name an error repeats; the
// longest name that a pool can allow is 80.
const maxModelEcho = 80

// refuse says why no account can take the turn, however long it waits for room;
// nil = it is worth waiting. A cool-down that ends within patience is waited for.
func refuse(view []Candidate, s Strategy, w Want, now time.Time, patience time.Duration) *failure.Failure {
	for i := range view {
		if view[i].takes(s, w) || view[i].recovers(s, w, now.Add(patience)) {
			return nil
		}
	}
	if len(view) > 0 && !slices.ContainsFunc(view, func(c Candidate) bool { return c.allows(w.Model) }) {
		model := w.Model[:min(len(w.Model), maxModelEcho)]
		return failure.New(failure.ModelNotFound,
			fmt.Sprintf("The model %q is not allowed on any account of this pool.", model), failure.Param("model"))
	}
	if w.Only != "" {
		return refuseOwner(view, w, now)
	}
	return refusePool(view, s, w, now)
}

// recovers says whether the account could take the turn if its cool-down was over,
// and whether that is so by a certain time.
func (c Candidate) recovers(s Strategy, w Want, by time.Time) bool {
	if c.State != CoolingDown || c.Until.After(by) {
		return false
	}
	c.State = Usable
	return c.takes(s, w)
}

// refuseOwner is about the one account that would do.
func refuseOwner(view []Candidate, w Want, now time.Time) *failure.Failure {
	const message = "The account that this conversation runs on cannot take a turn now."
	i := slices.IndexFunc(view, func(c Candidate) bool { return c.Name == w.Only })
	if i < 0 {
		return failure.New(failure.OwnerUnavailable, message, failure.Reason(causeOwnerGone))
	}
	c := view[i]
	switch c.State {
	case CoolingDown:
		return failure.New(failure.OwnerUnavailable, message, failure.Reason(causeCoolingDown), failure.After(c.Until.Sub(now)))
	case QuotaExhausted:
		return failure.New(failure.OwnerUnavailable, message, failure.Reason(causeQuota),
			failure.After(c.Until.Sub(now)), failure.ResetsAt(c.Until))
	case ReauthRequired:
		return failure.New(failure.OwnerUnavailable, message, failure.Reason(causeReauthRequired), failure.After(c.Until.Sub(now)))
	case Usable, Draining:
		if !c.allows(w.Model) {
			return failure.New(failure.OwnerUnavailable, message, failure.Reason(causeOwnerModel))
		}
		return failure.New(failure.OwnerUnavailable, message, failure.Reason(causeTried))
	default:
		return failure.New(failure.OwnerUnavailable, message, failure.Reason(causeNoneEnabled))
	}
}

// refusePool sums up the accounts that could take such a turn on a better day.
func refusePool(view []Candidate, s Strategy, w Want, now time.Time) *failure.Failure {
	var t tally
	for i := range view {
		if c := &view[i]; s.permits(c.Name) && c.allows(w.Model) {
			t.add(c)
		}
	}
	switch {
	case t.tried > 0:
		return failure.New(failure.NoAccounts, "Every usable account has failed this request.", failure.Reason(causeTried))
	// An account that waits for a new login comes back by nobody's clock, so it
	// does not make "wait for the quota" untrue.
	case t.exhausted > 0 && t.cooling == 0:
		return failure.New(failure.UsageLimitReached, "The usage limit of every account of this pool has been reached.",
			failure.Reason(causeQuota), failure.After(t.quotaEnd.Sub(now)), failure.ResetsAt(t.quotaEnd))
	case t.limited > 0 && t.limited == t.cooling:
		return failure.New(failure.RateLimitExceeded, "The upstream limits the rate of every account of this pool.",
			failure.Reason(causeRateLimited), failure.After(t.end.Sub(now)))
	case t.cooling > 0:
		return failure.New(failure.NoAccounts, "Every account of this pool is cooling down.",
			failure.Reason(causeCoolingDown), failure.After(t.end.Sub(now)))
	case t.rejected > 0:
		return failure.New(failure.NoAccounts, "The upstream rejects the credentials of every account of this pool.",
			failure.Reason(causeReauthRequired), failure.After(t.end.Sub(now)))
	default:
		return failure.New(failure.NoAccounts, "No account of this pool is enabled and has a credential.",
			failure.Reason(causeNoneEnabled))
	}
}

// tally counts why accounts are unusable.
type tally struct {
	tried, cooling, exhausted, rejected int
	// limited are those that cool down for a rate limit.
	limited int
	// end is the earliest end of any cool-down, quotaEnd of a quota's.
	end, quotaEnd time.Time
}

func (t *tally) add(c *Candidate) {
	switch c.State {
	case Usable:
		t.tried++
	case CoolingDown:
		t.cooling++
		if c.Reason == ReasonRateLimited {
			t.limited++
		}
	case QuotaExhausted:
		t.exhausted++
		t.quotaEnd = earlier(t.quotaEnd, c.Until)
	case ReauthRequired:
		t.rejected++
	}
	if !c.Until.IsZero() {
		t.end = earlier(t.end, c.Until)
	}
}

// earlier treats the zero time as "none yet".
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
