package session

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Overview is the state of all sessions of this replica at one moment. Keys are
// shown as 12 hex digits of their digest.
type Overview struct {
	// Active sessions have a turn; Idle ones keep a socket warm; Draining ones
	// finish their turn and end; Quarantined ones do not use their anchor.
	Active, Idle, Draining, Quarantined int
	// OldestTurn is the age of the oldest live turn; 0 = none.
	OldestTurn time.Duration
	// Open and HalfOpen count retry circuits that are not closed.
	Open, HalfOpen int
	// Circuits are those that stay longest, at most 32, the longest first.
	Circuits []CircuitView
	// Quarantines are the newest, at most 5, newest first.
	Quarantines []QuarantineView
}

// CircuitView is a retry circuit that is not closed.
type CircuitView struct {
	Key      string
	HalfOpen bool
	// Reason is the class of the newest strike, one CamelCase word.
	Reason string
	// Until is when the state ends at the latest; zero = with the next turn.
	Until time.Time
}

// QuarantineView is a session whose anchor is not used.
type QuarantineView struct {
	Key string
	// Reason in one CamelCase word: AnchorDenied, Wedged, Eventless, CircuitOpened.
	Reason string
	Since  time.Time
	// Until is when an untouched record is forgotten.
	Until time.Time
}

// View is one session for the admin port. It holds nothing that a client sent.
type View struct {
	Key     string `json:"key"`
	Kind    string `json:"kind"`
	State   string `json:"state"` // active, idle, draining
	Account string `json:"account,omitempty"`
	Model   string `json:"model,omitempty"`
	// Anchor is none, good, suspect or dead.
	Anchor  string `json:"anchor"`
	Strikes int    `json:"strikes"`
	// Circuit is closed, open, half_open or probing.
	Circuit      string     `json:"circuit"`
	CircuitUntil *time.Time `json:"circuitUntil,omitempty"`
	Turns        int        `json:"turns"`
	// Owned says whether the store knows this replica as the owner.
	Owned     bool      `json:"owned"`
	Epoch     int64     `json:"epoch,omitempty"`
	Version   int64     `json:"version"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// Detail is one session with its last attempts, oldest first.
type Detail struct {
	View
	Attempts []AttemptView `json:"attempts"`
}

// AttemptView is what is kept of an attempt after its verdict.
type AttemptView struct {
	Turn    string    `json:"turn"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
	Account string    `json:"account,omitempty"`
	Class   string    `json:"class"`
	// Anchor is the provenance: none, client, injected.
	Anchor string   `json:"anchor"`
	Facts  []string `json:"facts"`
	// Verdict is the row of the verdict table.
	Verdict string `json:"verdict"`
	Strike  string `json:"strike,omitempty"`
	// Recovery is what was done about it; empty = nothing.
	Recovery string `json:"recovery,omitempty"`
}

// Bounds of what is shown.
const (
	maxCircuits    = 32
	maxQuarantines = 5
	// askTimeout is how long a session may take to describe itself.
	askTimeout = time.Second
)

// noteHealth keeps what an actor says of its health.
func (r *Registry) noteHealth(a *actor, n notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n == (notice{}) {
		delete(r.unwell, a)
		return
	}
	r.unwell[a] = n
}

// Overview describes all sessions.
func (r *Registry) Overview() Overview {
	now := r.world.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	var o Overview
	for _, e := range r.sessions {
		switch {
		case e.turns == 0:
			o.Idle++
		case r.closing:
			o.Draining++
		default:
			o.Active++
		}
		if e.turns > 0 {
			o.OldestTurn = max(o.OldestTurn, now.Sub(e.busySince))
		}
	}
	for a, n := range r.unwell {
		o.add(a.key.Short(), n, now, max(minRecordLife, a.policy.Retain))
	}
	slices.SortFunc(o.Circuits, func(x, y CircuitView) int {
		return cmp.Or(y.Until.Compare(x.Until), cmp.Compare(x.Key, y.Key))
	})
	slices.SortFunc(o.Quarantines, func(x, y QuarantineView) int {
		return cmp.Or(y.Since.Compare(x.Since), cmp.Compare(x.Key, y.Key))
	})
	o.Circuits = o.Circuits[:min(len(o.Circuits), maxCircuits)]
	o.Quarantines = o.Quarantines[:min(len(o.Quarantines), maxQuarantines)]
	return o
}

func (o *Overview) add(key string, n notice, now time.Time, retained time.Duration) {
	if n.quarantined {
		o.Quarantined++
		o.Quarantines = append(o.Quarantines, QuarantineView{Key: key, Reason: string(n.cause), Since: n.since, Until: n.since.Add(retained)})
	}
	if n.until.IsZero() || n.circuit == CircuitClosed {
		return
	}
	c := CircuitView{Key: key, Reason: n.class.String(), Until: n.until}
	if c.HalfOpen = !now.Before(n.until); c.HalfOpen {
		c.Until = time.Time{}
		o.HalfOpen++
	} else {
		o.Open++
	}
	o.Circuits = append(o.Circuits, c)
}

// Views describes up to limit sessions, the most recently used first, and says
// how many there are. A session that does not answer in time is left out.
func (r *Registry) Views(limit int) (views []View, total int) {
	r.mu.Lock()
	total = len(r.sessions)
	var actors []*actor
	for e := r.recent.Front(); e != nil && len(actors) < limit; e = e.Next() {
		actors = append(actors, e.Value.(*entry).actor)
	}
	r.mu.Unlock()
	views = make([]View, 0, len(actors))
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	for _, a := range actors {
		if d, ok := r.ask(ctx, a); ok {
			views = append(views, d.View)
		}
	}
	return views, total
}

// Detail describes the session whose key is shown so.
func (r *Registry) Detail(key string) (Detail, bool) {
	r.mu.Lock()
	var found *actor
	for k, e := range r.sessions {
		if k.Short() == key {
			found = e.actor
			break
		}
	}
	r.mu.Unlock()
	if found == nil {
		return Detail{}, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	return r.ask(ctx, found)
}

func (r *Registry) ask(ctx context.Context, a *actor) (Detail, bool) {
	answer := make(chan Detail, 1)
	select {
	case a.mail <- asking{answer}:
	case <-a.done:
		return Detail{}, false
	case <-ctx.Done():
		return Detail{}, false
	}
	select {
	case d := <-answer:
		return d, true
	case <-a.done:
	case <-ctx.Done():
	}
	return Detail{}, false
}

// ResetCircuits closes the circuits of all sessions, also of those that are
// found in the store later, unless they were closed under the same token.
func (r *Registry) ResetCircuits(token string) {
	if token == "" {
		return
	}
	r.mu.Lock()
	r.reset = token
	actors := make([]*actor, 0, len(r.sessions))
	for e := r.recent.Front(); e != nil; e = e.Next() { // in an order, for simulations
		actors = append(actors, e.Value.(*entry).actor)
	}
	r.mu.Unlock()
	for _, a := range actors {
		r.world.hand(a, reset{token})
	}
}

func (r *Registry) resetToken() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reset
}
