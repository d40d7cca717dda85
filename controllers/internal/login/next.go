package login

import (
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/causeway-dev/causeway/api/effective"
)

// Reason is why a token is refreshed.
type Reason string

// Reasons.
const (
	// ReasonFirst: there is no access token yet.
	ReasonFirst Reason = "First"
	// ReasonAge: the token is older than maxAge.
	ReasonAge Reason = "Age"
	// ReasonExpiry: the token ends soon.
	ReasonExpiry Reason = "Expiry"
	// ReasonRejected: a proxy saw the upstream reject it.
	ReasonRejected Reason = "Rejected"
	// ReasonUnsettled: an exchange was begun and never settled.
	ReasonUnsettled Reason = "Unsettled"
)

// Times of the protocol (the design's numbers).
const (
	// IntentLife is how long an unsettled intent of somebody else is waited out,
	// counted from when it was first seen: clocks of others are not believed.
	IntentLife = 20 * time.Second
	// deniedWait comes between an issuer's refusal of a token and the verdict that
	// the login is lost: whoever won the race stores its successor meanwhile.
	deniedWait = 5 * time.Second
	// maxAge of an access token, however long it would serve: the issuer of
	// ChatGPT lets a login go that is not refreshed for long.
	maxAge = 8 * 24 * time.Hour
	// minGap lies between two refreshes, so that an issuer that makes tokens
	// which have ended already is not asked without pause.
	minGap = time.Minute
)

// Lead times before a token ends. Both are cut for short-lived tokens.
const (
	minLead   = 5 * time.Minute
	maxLead   = 12 * time.Hour
	maxSpread = 12 * time.Hour
)

// Facts are what a decision is made from.
type Facts struct {
	// Key names the account; it spreads accounts over time.
	Key string
	// Seed is the login of the user, as it is now; nil if there is none of use.
	Seed *effective.Seed
	// Taken says that another account has the same login, and had it before: two
	// that refresh one login lose it.
	Taken bool
	// Record is nil while nothing is kept.
	Record *Record
	// Issuer says whether it is known whom to ask for a new token.
	Issuer bool
	// Rejected is the highest generation that a proxy saw rejected; 0 = none.
	Rejected int64
	// IntentSeen is when this process first saw the record's intent.
	IntentSeen time.Time
}

// Do is what to do next.
type Do int

// What there is to do.
const (
	Rest    Do = iota
	Adopt      // Record.Adopt
	Refresh    // Record.Begin, exchange, Record.Settle or Record.Fail
	Lose       // Record.Lose
	Drop       // Record.Drop
)

// Step is a decision.
type Step struct {
	Do Do
	// Reason of Refresh.
	Reason Reason
	// Cause of Lose.
	Cause string
	// At is when to look again; zero = when something changes. It is only set with Rest.
	At time.Time
}

// Next decides about one account.
func Next(f Facts, now time.Time) Step {
	if f.begins() {
		return Step{Do: Adopt}
	}
	if f.Record == nil {
		return Step{}
	}
	r := *f.Record
	if r.Lost != "" {
		return lost(r, f, now)
	}
	if f.Taken && f.Seed != nil && f.Seed.Digest() == r.Seed {
		return Step{Do: Lose, Cause: effective.CauseDuplicate}
	}
	if r.RefreshToken == "" || !f.Issuer {
		return fixed(r, f, now)
	}
	return refresh(r, f, now)
}

// refresh is about a login that can be refreshed.
func refresh(r Record, f Facts, now time.Time) Step {
	if r.Intent != nil {
		if over := f.IntentSeen.Add(IntentLife); now.Before(over) {
			return Step{At: over}
		}
		return Step{Do: Refresh, Reason: ReasonUnsettled}
	}
	if t := r.Trouble; t != nil && t.Outcome == Denied {
		if over := t.At.Add(deniedWait); now.Before(over) {
			return Step{At: over}
		}
		return Step{Do: Lose, Cause: t.Cause}
	}
	reason, at := due(r, f)
	if again := retryAt(r.Trouble, f.Key); again.After(at) {
		at = again
	}
	if now.Before(at) {
		return Step{At: at}
	}
	return Step{Do: Refresh, Reason: reason}
}

// begins says whether the seed is a login that the record does not have. One that
// was used before is never used again: its refresh token has a successor.
func (f Facts) begins() bool {
	if f.Seed == nil {
		return false
	}
	if f.Record == nil {
		return true // a login that is taken is shown as such
	}
	if f.Taken {
		return false
	}
	if f.Record.Lost == effective.CauseDuplicate {
		return true
	}
	digest := f.Seed.Digest()
	return f.Record.Seed != digest && !slices.Contains(f.Record.Spent, digest)
}

// lost keeps the access token of a lost login until it serves no more.
func lost(r Record, f Facts, now time.Time) Step {
	switch {
	case r.AccessToken == "":
		return Step{}
	case f.Rejected == r.Generation || ended(r, now):
		return Step{Do: Drop}
	default:
		return Step{At: r.ExpiresAt}
	}
}

// fixed is about a login that cannot be refreshed.
func fixed(r Record, f Facts, now time.Time) Step {
	switch {
	case r.AccessToken == "":
		return Step{Do: Lose, Cause: effective.CauseExpired}
	case f.Rejected == r.Generation:
		return Step{Do: Lose, Cause: effective.CauseRejected}
	case ended(r, now):
		return Step{Do: Lose, Cause: effective.CauseExpired}
	default:
		return Step{At: r.ExpiresAt}
	}
}

func ended(r Record, now time.Time) bool { return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt) }

// due is when the token is refreshed though no exchange failed, and why.
func due(r Record, f Facts) (Reason, time.Time) {
	if r.AccessToken == "" {
		return ReasonFirst, time.Time{}
	}
	reason, at := ReasonAge, r.IssuedAt.Add(maxAge-spread(f.Key, r, maxSpread))
	if !r.ExpiresAt.IsZero() {
		life := r.ExpiresAt.Sub(r.IssuedAt)
		lead := min(max(min(max(life/5, minLead), life/2), 0), maxLead)
		early := r.ExpiresAt.Add(-lead - spread(f.Key, r, min(max(life/10, 0), maxSpread)))
		if early.Before(at) {
			reason, at = ReasonExpiry, early
		}
	}
	if gap := r.RefreshedAt.Add(minGap); r.Settled != "" && at.Before(gap) {
		at = gap
	}
	if f.Rejected == r.Generation {
		if again := r.RefreshedAt.Add(rejectedGap(r.Rejections)); again.Before(at) {
			return ReasonRejected, again
		}
	}
	return reason, at
}

// rejectedGap lies between two refreshes that proxies ask for: if new tokens are
// rejected, too, refreshing is not what helps.
func rejectedGap(n int) time.Duration {
	gaps := [...]time.Duration{0, time.Minute, 5 * time.Minute, 30 * time.Minute}
	return gaps[min(n, len(gaps)-1)]
}

// retryAt is when an exchange is tried again after one that failed.
func retryAt(t *Trouble, key string) time.Time {
	if t == nil {
		return time.Time{}
	}
	base, limit := 5*time.Second, 5*time.Minute
	switch t.Outcome {
	case Unknown:
		base = IntentLife // from the reply that did not come, which is later than the intent
	case Refused:
		base, limit = time.Minute, 30*time.Minute
	default:
	}
	pause := base
	for range t.Failures - 1 {
		if pause = 2 * pause; pause >= limit {
			pause = limit
			break
		}
	}
	return t.At.Add(pause + fraction(key, int64(t.Failures), pause/4))
}

// spread is the part of window by which an account is earlier than it had to be.
func spread(key string, r Record, window time.Duration) time.Duration {
	return fraction(key, r.Generation, window)
}

// fraction is a part of window that is the same for the same arguments and
// differs between accounts.
func fraction(key string, n int64, window time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key + "/" + strconv.FormatInt(n, 10))) // a hash never fails
	// The low bits of FNV differ most between similar texts.
	return time.Duration(float64(h.Sum64()&0xffffff) / float64(1<<24) * float64(window))
}
