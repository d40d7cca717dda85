package account

import (
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
)

// entry is the live half of an account. It outlives configurations: counters
// and cool-downs belong to the name.
type entry struct {
	account Account
	// declared is the state that the user gave, models the allow-list.
	declared string
	models   []string
	// present is false for an account that the configuration no longer has but
	// that live turns or cool-downs still refer to.
	present  bool
	inflight int
	// pace is how often a turn ends.
	pace bulkhead.Meter
	// cooling holds the end of each cool-down by reason: one reason may end
	// early without touching the others.
	cooling map[string]time.Time
	// failures counts incidents without a hint since the last success.
	failures int
}

// apply takes over one configuration.
func (e *entry) apply(a bundle.Account, c bundle.Credential) {
	if e.account.Credential != c {
		// The rejection was about the old credential.
		delete(e.cooling, ReasonAuthRejected)
	}
	e.account = Account{Name: a.Name, Kind: a.Kind, MaxConcurrent: a.MaxConcurrent, Credential: c}
	e.declared, e.models, e.present = a.State, a.Models, true
}

// candidate judges the account at one moment.
func (e *entry) candidate(now time.Time) Candidate {
	c := Candidate{Name: e.account.Name, Inflight: e.inflight, MaxConcurrent: e.account.MaxConcurrent, Models: e.models}
	reason, until := e.coolDown(now)
	switch {
	case e.declared == bundle.AccountDisabled:
		c.State = Disabled
	case e.account.Credential.Bearer() == "":
		c.State, c.Reason = Unknown, ReasonNoCredential
	case reason != "":
		c.State, c.Reason, c.Until = stateOf(reason), reason, until
	case e.declared == bundle.AccountDraining:
		c.State = Draining
	case e.declared == bundle.AccountEnabled || e.declared == "":
		c.State = Usable
	default:
		// A newer operator may know states that we do not; taking turns then
		// would be a guess.
		c.State = Unknown
	}
	return c
}

// coolDown is the cool-down that ends last and thus decides; reason is empty if
// there is none.
func (e *entry) coolDown(now time.Time) (reason string, until time.Time) {
	for r, u := range e.cooling {
		if !u.After(now) {
			continue
		}
		if u.After(until) || u.Equal(until) && r < reason {
			reason, until = r, u
		}
	}
	return reason, until
}

func (e *entry) forgettable(now time.Time) bool {
	reason, _ := e.coolDown(now)
	return !e.present && e.inflight == 0 && reason == ""
}

// backoff is base doubled with each incident, at most limit.
func backoff(base, limit time.Duration, incidents int) time.Duration {
	d := base
	for range incidents - 1 {
		if d >= limit/2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}
