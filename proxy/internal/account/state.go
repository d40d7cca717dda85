package account

import "time"

// State is what reports and metrics show of an account.
type State struct {
	Name string
	Kind string
	// State is one of the states of this package.
	State string
	// Reason is one of Reasons; empty for an account that is just usable.
	Reason string
	// Since is when the cool-down was learned; zero = there is none.
	Since time.Time
	// Until is the end of the cool-down; zero = not bound to a time.
	Until time.Time
	// NextProbe is when one turn may see whether the limit still holds; zero = none
	// will before Until.
	NextProbe time.Time
	// Inflight counts live turns.
	Inflight int
	// Tier is how well it works.
	Tier Tier
	// Usage of the quota windows that is known; a window that is not listed is
	// unknown, not unused.
	Usage []Window
	// LastSuccess is the end of the last good turn; zero = there was none.
	LastSuccess time.Time
	// Generation is the operator's number of the credential; 0 = it has none.
	Generation int64
}

// localLimitTime is how long a limit per minute has to hold an account back before
// it is worth telling: shorter waits come and go with every turn.
const localLimitTime = 5 * time.Second

// States describes every account of the configuration, in its order.
func (r *Registry) States() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.look(now)
	states := make([]State, 0, len(r.order))
	for i, name := range r.order {
		e, c := r.entries[name], &r.view[i]
		s := State{
			Name: name, Kind: e.account.Kind, State: c.State, Reason: c.Reason, Until: c.Until, Inflight: c.Inflight,
			Tier: c.Tier, Usage: e.usage.current(now), LastSuccess: e.succeeded, Generation: e.account.Credential.Generation,
		}
		if cooling, runs := e.cooling[c.Reason]; runs {
			s.Since = cooling.since
		}
		if probe := e.cooling.nextProbe(now); probe.Before(c.Until) {
			s.NextProbe = probe
		}
		if c.State == Usable && c.NotBefore.Sub(now) > localLimitTime {
			s.Reason = ReasonLocalLimit
		}
		states = append(states, s)
	}
	return states
}
