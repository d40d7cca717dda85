package account

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// Clock is the time the registry lives by; clock.RealClock is one.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) clock.Timer
}

// Registry hands out leases of the pool's accounts. It is safe for concurrent
// use. It starts no goroutine; one timer runs while turns wait and an account
// cools down.
type Registry struct {
	clock Clock

	mu       sync.Mutex // guards all below; never held over IO or a wait
	entries  map[string]*entry
	order    []string // names of the configuration, in the manifest's order
	strategy Strategy
	// base and limit bound the cool-downs that come without a hint.
	base, limit time.Duration
	cursor      uint64
	// waiters are in the order of arrival. Between two calls none of them
	// could be served: whoever changes something serves them in the same call.
	waiters *list.List
	// wakeAt is the earliest end of a cool-down while turns wait.
	wakeAt time.Time
	wake   clock.Timer
	view   []Candidate // scratch
}

// waiter is one turn that waits for room.
type waiter struct {
	want Want
	// done gets exactly one value, unless the waiter leaves first.
	done chan outcome
}

type outcome struct {
	lease  *Lease
	refuse *failure.Failure
}

// NewRegistry returns a registry without accounts; see Update.
func NewRegistry(c Clock) *Registry {
	return &Registry{
		clock: c, entries: map[string]*entry{}, waiters: list.New(),
		cursor: rand.Uint64(), //nolint:gosec // spreads load, guards nothing
	}
}

// Update takes over a configuration. Live counters and cool-downs survive by
// account name; a changed credential lifts an auth cool-down. Turns that wait
// are judged anew.
func (r *Registry) Update(rt *config.Runtime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	for _, e := range r.entries {
		e.present = false
	}
	r.order = r.order[:0]
	pool := rt.Bundle.Pool
	for _, a := range pool.Accounts {
		e, known := r.entries[a.Name]
		if !known {
			e = &entry{cooling: map[string]time.Time{}}
			r.entries[a.Name] = e
		}
		e.apply(a, rt.Credentials.Accounts[a.Name])
		r.order = append(r.order, a.Name)
	}
	for name, e := range r.entries {
		if e.forgettable(now) {
			delete(r.entries, name)
		}
	}
	r.strategy = Strategy{Type: pool.Strategy, SingleAccount: pool.SingleAccount}
	r.base = time.Duration(rt.Bundle.Circuit.Ejection.BaseSeconds) * time.Second
	r.limit = time.Duration(rt.Bundle.Circuit.Ejection.MaxSeconds) * time.Second
	r.serveWaiters(now)
}

// Acquire returns a lease of the account that takes the turn. If every account
// that would do is full it waits, first come first served, until ctx ends.
// Other errors than failure.QueueTimeout come at once: waiting would not help.
// Every error is a *failure.Failure.
func (r *Registry) Acquire(ctx context.Context, w Want) (*Lease, error) {
	lease, refusal, waiting := r.enter(w)
	switch {
	case lease != nil:
		return lease, nil
	case refusal != nil:
		return nil, refusal
	}
	select {
	case o := <-waiting.Value.(*waiter).done:
		if o.refuse != nil {
			return nil, o.refuse
		}
		return o.lease, nil
	case <-ctx.Done():
		r.leave(waiting)
		return nil, failure.New(failure.QueueTimeout, "Every usable account is busy, and the time to wait for one has ended.",
			failure.Reason("account_capacity"))
	}
}

// enter serves, refuses or queues a turn.
func (r *Registry) enter(w Want) (*Lease, *failure.Failure, *list.Element) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if r.waiters.Len() > 0 && !r.wakeAt.IsZero() && !now.Before(r.wakeAt) {
		r.serveWaiters(now) // the timer is about to: no overtaking
	}
	o := r.judge(w, now)
	if o.lease != nil || o.refuse != nil {
		return o.lease, o.refuse, nil
	}
	element := r.waiters.PushBack(&waiter{want: w, done: make(chan outcome, 1)})
	r.arm(now)
	return nil, nil, element
}

// leave takes a waiter out whose time has ended. What it was given meanwhile
// goes to the next.
func (r *Registry) leave(element *list.Element) {
	r.mu.Lock()
	r.waiters.Remove(element)
	if r.waiters.Len() == 0 {
		r.disarm()
	}
	r.mu.Unlock()
	select {
	case o := <-element.Value.(*waiter).done:
		if o.lease != nil {
			o.lease.Release()
		}
	default:
	}
}

// judge decides on one turn now; an empty outcome means that it has to wait.
func (r *Registry) judge(w Want, now time.Time) outcome {
	r.look(now)
	if i, ok := Pick(r.view, r.strategy, w, r.cursor); ok {
		return outcome{lease: r.grant(r.entries[r.view[i].Name])}
	}
	return outcome{refuse: refuse(r.view, r.strategy, w, now)}
}

func (r *Registry) look(now time.Time) {
	r.view = r.view[:0]
	for _, name := range r.order {
		r.view = append(r.view, r.entries[name].candidate(now))
	}
}

func (r *Registry) grant(e *entry) *Lease {
	e.inflight++
	r.cursor++
	return &Lease{registry: r, entry: e, account: e.account}
}

// serveWaiters judges all waiters again, in order. One that cannot be served
// stays and holds up nobody behind it.
func (r *Registry) serveWaiters(now time.Time) {
	for element := r.waiters.Front(); element != nil; {
		next := element.Next()
		w := element.Value.(*waiter)
		if o := r.judge(w.want, now); o.lease != nil || o.refuse != nil {
			r.waiters.Remove(element)
			w.done <- o
		}
		element = next
	}
	r.arm(now)
}

// serveFrom gives room on one account to those who wait for it. Nothing else
// has changed, so that nobody else could be served.
func (r *Registry) serveFrom(e *entry, now time.Time) {
	c := e.candidate(now)
	for element := r.waiters.Front(); element != nil && e.present && c.hasRoom(); {
		next := element.Next()
		if w := element.Value.(*waiter); c.takes(r.strategy, w.want) {
			r.waiters.Remove(element)
			w.done <- outcome{lease: r.grant(e)}
			c.Inflight++
		}
		element = next
	}
	if r.waiters.Len() == 0 {
		r.disarm()
	}
}

// arm sets the timer to the next moment at which a waiter may be served though
// nobody calls.
func (r *Registry) arm(now time.Time) {
	r.disarm()
	if r.waiters.Len() == 0 {
		return
	}
	for _, name := range r.order {
		if _, until := r.entries[name].coolDown(now); until.After(now) {
			r.wakeAt = earlier(r.wakeAt, until)
		}
	}
	if !r.wakeAt.IsZero() {
		r.wake = r.clock.AfterFunc(r.wakeAt.Sub(now), r.coolDownEnded)
	}
}

func (r *Registry) disarm() {
	if r.wake != nil {
		r.wake.Stop()
	}
	r.wake, r.wakeAt = nil, time.Time{}
}

func (r *Registry) coolDownEnded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serveWaiters(r.clock.Now())
}
