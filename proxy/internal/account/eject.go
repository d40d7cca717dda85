package account

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// ejection leaves an account alone of which several turns in a row broke. Whether
// the pool can afford it is decided by limitEjections.
type ejection struct {
	// failures in a row since the last success; eventless of them were such that
	// nothing came back.
	failures, eventless int
	// count of ejections since the last success, for the growth of the next.
	count int
	until time.Time
}

// ejectionPolicy is CircuitPolicy.ejection.
type ejectionPolicy struct {
	// failures in a row that eject; 0 = none do.
	failures    int
	base, limit time.Duration
	// percent of the usable accounts that may be ejected at once.
	percent int
}

func ejectionOf(e bundle.Ejection) ejectionPolicy {
	return ejectionPolicy{
		failures: e.ConsecutiveFailures, percent: e.MaxEjectPercent,
		base: time.Duration(e.BaseSeconds) * time.Second, limit: time.Duration(e.MaxSeconds) * time.Second,
	}
}

// fail notes one failure. While an ejection runs none begins.
func (e *ejection) fail(p ejectionPolicy, eventless bool, now time.Time) {
	if e.until.After(now) {
		return
	}
	e.failures++
	e.eventless += one(eventless)
	if p.failures <= 0 || e.failures < p.failures {
		return
	}
	e.count++
	e.until = now.Add(backoff(p.base, p.limit, e.count))
	e.failures = 0 // e.eventless stays: see forgive
}

// forgive takes back what failures without an event did.
func (e *ejection) forgive() {
	if e.eventless > 0 {
		*e = ejection{count: max(e.count-1, 0)}
	}
}

func (e *ejection) end(now time.Time) time.Time {
	if e.until.After(now) {
		return e.until
	}
	return time.Time{}
}

// limitEjections decides which ejections hold: at most percent of the accounts
// that are usable otherwise, never all of them, and never the last that has some
// model. Those that end last hold first. What does not hold leaves the account
// usable: to send turns to a sick account is better than to send them nowhere.
func limitEjections(view []Candidate, percent int) {
	var ejected []int
	usable := 0
	for i := range view {
		if view[i].State == Usable {
			usable++
			if !view[i].Ejected.IsZero() {
				ejected = append(ejected, i)
			}
		}
	}
	if len(ejected) == 0 {
		return
	}
	slices.SortFunc(ejected, func(a, b int) int {
		return cmp.Or(view[b].Ejected.Compare(view[a].Ejected), strings.Compare(view[a].Name, view[b].Name))
	})
	afford := usable * percent / 100
	for _, i := range ejected {
		if c := &view[i]; afford > 0 && spared(view, i) {
			c.State, c.Reason, c.Until = CoolingDown, ReasonEjected, c.Ejected
			afford--
		}
	}
}

// spared says whether each model of account i has another usable account.
func spared(view []Candidate, i int) bool {
	served := func(model string) bool {
		for j := range view {
			if j != i && view[j].State == Usable && (len(view[j].Models) == 0 || slices.Contains(view[j].Models, model)) {
				return true
			}
		}
		return false
	}
	for _, model := range view[i].Models {
		if !served(model) {
			return false
		}
	}
	// An account for all models is replaced by nothing less.
	return len(view[i].Models) > 0 || slices.ContainsFunc(view, func(c Candidate) bool {
		return c.Name != view[i].Name && c.State == Usable && len(c.Models) == 0
	})
}
