package account

import (
	"slices"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// Candidate is one account as the selection sees it at one moment.
type Candidate struct {
	Name string
	// State is what this account is good for now: one of the states.
	State string
	// Reason and Until are those of State.
	Reason string
	Until  time.Time
	// Inflight counts live turns, never idle sockets.
	Inflight int
	// MaxConcurrent 0 = unlimited.
	MaxConcurrent int
	// Models is the allow-list; empty = all.
	Models []string
}

// Strategy is how a pool spreads new turns.
type Strategy struct {
	// Type is one of bundle.Strategy*.
	Type string
	// SingleAccount is the one account of bundle.StrategySingleAccount.
	SingleAccount string
}

// Pick returns the index of the account that takes the turn now, or false if
// none can. cursor advances by one with each turn taken and starts at random in
// each process, so that replicas do not all begin with the first account.
func Pick(view []Candidate, s Strategy, w Want, cursor uint64) (int, bool) {
	if w.Prefer != "" {
		for i := range view {
			if view[i].Name == w.Prefer && view[i].takes(s, w) && view[i].hasRoom() {
				return i, true
			}
		}
	}
	if s.Type == bundle.StrategyRoundRobin {
		return firstFrom(view, s, w, cursor)
	}
	// SingleAccount and a turn bound to one account leave one choice at most.
	// The weighted, draining and filling strategies need the quota each account
	// has left, which no code observes yet; spreading by load is right for any
	// pool meanwhile.
	return leastLoaded(view, s, w, cursor)
}

// firstFrom is the first account at or after the cursor that can take the turn.
func firstFrom(view []Candidate, s Strategy, w Want, cursor uint64) (int, bool) {
	n := len(view)
	for step := range n {
		i := rotate(cursor, step, n)
		if view[i].takes(s, w) && view[i].hasRoom() {
			return i, true
		}
	}
	return 0, false
}

// leastLoaded is the account with the smallest load; among equals, the first at
// or after the cursor.
func leastLoaded(view []Candidate, s Strategy, w Want, cursor uint64) (int, bool) {
	n, best := len(view), -1
	byRatio := allBounded(view, s, w)
	for step := range n {
		i := rotate(cursor, step, n)
		if !view[i].takes(s, w) || !view[i].hasRoom() {
			continue
		}
		if best < 0 || lighter(&view[i], &view[best], byRatio) {
			best = i
		}
	}
	return max(best, 0), best >= 0
}

// allBounded says whether shares of limits can be compared. With one unlimited
// account among the choices only plain counts give an order without cycles.
func allBounded(view []Candidate, s Strategy, w Want) bool {
	for i := range view {
		if view[i].takes(s, w) && view[i].MaxConcurrent == 0 {
			return false
		}
	}
	return true
}

func lighter(a, b *Candidate, byRatio bool) bool {
	if byRatio {
		return a.Inflight*b.MaxConcurrent < b.Inflight*a.MaxConcurrent
	}
	return a.Inflight < b.Inflight
}

func rotate(cursor uint64, step, n int) int {
	return (int(cursor%uint64(n)) + step) % n //nolint:gosec // smaller than n, which is an int
}

// takes says whether the account may take the turn, now or when it has room.
func (c *Candidate) takes(s Strategy, w Want) bool {
	if !c.allows(w.Model) || slices.Contains(w.Exclude, c.Name) {
		return false
	}
	if w.Only != "" {
		// A draining account takes nothing new, but ends what it has begun.
		return c.Name == w.Only && (c.State == Usable || c.State == Draining)
	}
	return c.State == Usable && s.permits(c.Name)
}

func (c *Candidate) hasRoom() bool { return c.MaxConcurrent == 0 || c.Inflight < c.MaxConcurrent }

func (c *Candidate) allows(model string) bool {
	return model == "" || len(c.Models) == 0 || slices.Contains(c.Models, model)
}

// permits says whether the strategy lets the account take turns at all.
func (s Strategy) permits(name string) bool {
	return s.Type != bundle.StrategySingleAccount || s.SingleAccount == name
}
