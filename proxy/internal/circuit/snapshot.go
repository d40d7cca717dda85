package circuit

import (
	"cmp"
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
	// Reason is why it was opened or forced, from a closed set; empty = it is closed.
	Reason string
	Forced bool

	own      State
	ownUntil time.Time
}

// States lists all circuits by key.
func (r *Routes) States() []Status { return r.collect() }

func (r *Routes) collect() []Status {
	out := []Status{}
	now := r.options.Clock.Now()
	r.all(func(key Key, b *Breaker) {
		b.Tick(r.policy, now)
		s := Status{Key: key.String(), State: b.shown(), Opened: b.opened, Reason: b.reason(), own: b.state, ownUntil: b.until}
		switch {
		case b.forced != nil:
			s.Until, s.Forced = b.forcedUntil, true
		case b.state == Open:
			s.Until = b.until
		}
		out = append(out, s)
	})
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

// Reset closes all circuits; what is under way counts nowhere. What is forced
// stays so: that has its own end. by names who asks for it.
func (r *Routes) Reset(by string) {
	now := r.options.Clock.Now()
	r.options.Log.Info("Resetting circuits of routes", "audit", true, "by", by)
	r.all(func(_ Key, b *Breaker) { b.Reset(now) })
}

// all does something with each circuit.
func (r *Routes) all(do func(Key, *Breaker)) {
	r.mu.Lock()
	changed := map[Key][]Change{}
	for key, b := range r.breakers {
		do(key, b)
		if c := b.Changes(); len(c) > 0 {
			changed[key] = c
		}
	}
	r.mu.Unlock()
	for key, c := range changed {
		r.tell(key, c)
	}
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
