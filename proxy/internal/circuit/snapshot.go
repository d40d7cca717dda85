package circuit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Entry is what of a circuit outlives its process, and what siblings tell each
// other. Its times are wall time.
type Entry struct {
	Key   string `json:"key"`
	State string `json:"state"`
	// Until is when an open circuit lets a probe through.
	Until time.Time `json:"until"`
	// Opened is how many times in a row it has opened.
	Opened int `json:"opened"`
}

// Snapshot lists the circuits that are not closed, by key. What is forced is not
// in it: that is the wish of a person for one process.
func (r *Routes) Snapshot() []Entry {
	var out []Entry
	for _, s := range r.collect() {
		if s.own != Closed {
			out = append(out, Entry{Key: s.Key, State: s.own.String(), Until: s.ownUntil.Round(0).UTC(), Opened: s.Opened})
		}
	}
	return out
}

// Restore loads what an earlier process left: what was open stays open for the
// time that is left of it, at most the longest open time from now. What is too
// old, or is known better here, is left out. Call Update before.
func (r *Routes) Restore(entries []Entry) {
	now := r.options.Clock.Now()
	for _, e := range entries {
		key, ok := ParseKey(e.Key)
		if !ok || e.State == Closed.String() {
			continue
		}
		left := e.Until.Sub(now) // of wall clocks
		r.command(key, func(b *Breaker) {
			if left > -r.policy.MaxOpen && b.idle() {
				b.restore(r.policy, now.Add(left), e.Opened, now)
			}
		})
	}
}

// Hint learns what is open at a sibling: for a while one failure is enough here.
func (r *Routes) Hint(entries []Entry) {
	now := r.options.Clock.Now()
	for _, e := range entries {
		if key, ok := ParseKey(e.Key); ok && e.State == Open.String() && e.Until.After(now) {
			r.command(key, func(b *Breaker) { b.Hint(now) })
		}
	}
}

// Status is a circuit as status, metrics and commands show it.
type Status struct {
	Key   string
	State State
	// Until is when it lets a probe through, or when the force ends; zero = now.
	Until  time.Time
	Opened int
	Forced bool

	own      State
	ownUntil time.Time
}

// States lists all circuits by key.
func (r *Routes) States() []Status { return r.collect() }

func (r *Routes) collect() []Status {
	r.mu.Lock()
	now := r.options.Clock.Now()
	out := make([]Status, 0, len(r.breakers))
	changed := map[Key][]Change{}
	for key, b := range r.breakers {
		b.Tick(r.policy, now)
		if c := b.Changes(); len(c) > 0 {
			changed[key] = c
		}
		s := Status{Key: key.String(), State: b.shown(), Opened: b.opened, own: b.state, ownUntil: b.until}
		switch {
		case b.forced != nil:
			s.Until, s.Forced = b.forcedUntil, true
		case b.state == Open:
			s.Until = b.until
		}
		out = append(out, s)
	}
	r.mu.Unlock()
	for key, c := range changed {
		r.tell(key, c)
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// MaxForce is the longest time for which a circuit can be forced: no state is
// without an end.
const MaxForce = 24 * time.Hour

// ErrForce says that a command names no valid route or time.
var ErrForce = errors.New("not a route or time to force")

// ForceOpen refuses everything on a route for a while. by names who asks for it.
func (r *Routes) ForceOpen(key string, ttl time.Duration, by string) error {
	return r.force(key, Open, ttl, by)
}

// ForceClosed lets everything through on a route for a while.
func (r *Routes) ForceClosed(key string, ttl time.Duration, by string) error {
	return r.force(key, Closed, ttl, by)
}

func (r *Routes) force(name string, to State, ttl time.Duration, by string) error {
	key, ok := ParseKey(name)
	if !ok {
		return fmt.Errorf("forcing route %q: %w: host or host/family/transport", name, ErrForce)
	}
	if ttl <= 0 || ttl > MaxForce {
		return fmt.Errorf("forcing route %q: %w: time must be above 0 and at most %v", name, ErrForce, MaxForce)
	}
	until := r.options.Clock.Now().Add(ttl)
	r.options.Log.Info("Forcing circuit of route", "audit", true, "route", name, "to", to.String(), "until", until.Round(0), "by", by)
	r.command(key, func(b *Breaker) { b.Force(to, until) })
	return nil
}

// Reset closes the circuit of a route, and ends a force.
func (r *Routes) Reset(name, by string) error {
	key, ok := ParseKey(name)
	if !ok {
		return fmt.Errorf("resetting route %q: %w: host or host/family/transport", name, ErrForce)
	}
	r.options.Log.Info("Resetting circuit of route", "audit", true, "route", name, "by", by)
	now := r.options.Clock.Now()
	r.command(key, func(b *Breaker) { b.Reset(now) })
	return nil
}

// command does something with the circuit of a key.
func (r *Routes) command(key Key, do func(*Breaker)) {
	r.mu.Lock()
	key, b := r.breaker(key)
	do(b)
	changes := b.Changes()
	r.mu.Unlock()
	r.tell(key, changes)
}
