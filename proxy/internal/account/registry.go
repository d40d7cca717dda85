package account

import (
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/config"
)

// Clock is the time the registry lives by; clock.RealClock is one.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) clock.Timer
}

// Observer is told how turns fare in the waiting room. Its methods must not block.
type Observer interface {
	// Waited is called for each turn that asked for room, with the time it waited,
	// which is often none, whatever came of it.
	Waited(lane bulkhead.Lane, took time.Duration)
	// Rejected is called for a turn that was turned away for lack of room, with the
	// code of its failure.
	Rejected(reason string)
}

// Registry hands out leases of the pool's accounts and permits of its lanes. It is
// safe for concurrent use. It starts no goroutine; a timer runs for each turn that
// waits, and one while turns wait and an account cools down.
type Registry struct {
	clock    Clock
	observer Observer

	mu       sync.Mutex // guards all below; never held over IO or a wait
	entries  map[string]*entry
	order    []string // names of the configuration, in the manifest's order
	strategy Strategy
	// ejection bounds cool-downs that come without a hint, too.
	ejection ejectionPolicy
	// cursor counts turns, from 1.
	salt, cursor uint64
	shares       shares
	// capacity says how the limits of accounts are divided: pool.capacityScope.
	capacity string
	budgets  budgets
	// short is told of turns that wait for a permit; nil = permits are not leased.
	short func()
	// wish is the last reset that was asked for.
	wish string
	// room has the lanes and who waits. Between two calls none of them could be
	// served: whoever changes something serves them in the same call.
	room *bulkhead.Room[*waiter]
	// wakeAt is when an account may become usable by itself while turns wait.
	wakeAt time.Time
	wake   clock.Timer
	// view is every account as look saw it, free those of them that have room.
	view []Candidate
	free []int
}

// NewRegistry returns a registry without accounts; see Update.
func NewRegistry(c Clock) *Registry {
	r := &Registry{
		clock: c, observer: nobody{}, entries: map[string]*entry{},
		cursor: 1, salt: rand.Uint64(), //nolint:gosec // spreads load, guards nothing
	}
	r.room = bulkhead.NewRoom[*waiter](r.permitReleased)
	r.limitLanes(nil)
	return r
}

// Tell makes o the observer. Call it before the first turn.
func (r *Registry) Tell(o Observer) { r.observer = o }

// nobody is the observer of a registry that has none.
type nobody struct{}

func (nobody) Waited(bulkhead.Lane, time.Duration) {}
func (nobody) Rejected(string)                     {}

// Update takes over a configuration. Live counters, cool-downs and permits
// survive; a changed credential lifts an auth cool-down. Turns that wait are
// judged anew.
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
			e = newEntry()
			r.entries[a.Name] = e
		}
		e.apply(a, rt.Credentials.Accounts[a.Name])
		e.limit(pool.CapacityScope, r.shares.now, now)
		e.permits.need(r.short != nil && pool.CapacityScope == scopeShared && a.MaxConcurrent > 0)
		r.order = append(r.order, a.Name)
	}
	for name, e := range r.entries {
		if e.forgettable(now) {
			delete(r.entries, name)
		}
	}
	r.strategy = Strategy{Type: pool.Strategy, SingleAccount: pool.SingleAccount, Salt: r.salt}
	r.ejection, r.capacity = ejectionOf(rt.Bundle.Circuit.Ejection), pool.CapacityScope
	r.budgets = r.budgets.update(pool.Quotas, r.shares.now)
	r.reset(pool.CooldownReset())
	r.limitLanes(rt.Bundle.Circuit.Bulkheads)
	r.serveWaiters(now)
	r.askPermits()
}

// limitLanes sets the limits of all lanes. A bundle lists them all; one that an
// older operator wrote does not, and what it does not list is not unlimited.
func (r *Registry) limitLanes(written []bundle.Bulkhead) {
	for _, b := range effective.DefaultBulkheads() {
		lane, known := bulkhead.LaneOf(b.Lane)
		if !known {
			continue
		}
		fallback := b.QueueTimeoutSeconds
		for _, w := range written {
			if w.Lane == b.Lane {
				b = w
			}
		}
		if b.QueueTimeoutSeconds <= 0 {
			b.QueueTimeoutSeconds = fallback
		}
		r.room.Limit(lane, bulkhead.Limits{
			MaxConcurrent: b.MaxConcurrent, MaxQueued: b.MaxQueued, QueueTimeout: time.Duration(b.QueueTimeoutSeconds) * time.Second,
		})
	}
}

// Lanes says how full each lane is.
func (r *Registry) Lanes() []bulkhead.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.room.States()
}

// look refreshes the view.
func (r *Registry) look(now time.Time) {
	r.view = r.view[:0]
	for _, name := range r.order {
		r.view = append(r.view, r.entries[name].candidate(now, r.cursor))
	}
	limitEjections(r.view, r.ejection.percent)
	r.free = r.free[:0]
	for i := range r.view {
		if r.view[i].hasRoom() {
			r.free = append(r.free, i)
		}
	}
}

// arm sets the timer to the next moment at which a waiter may be served though
// nobody calls.
func (r *Registry) arm(now time.Time) {
	var next time.Time
	for _, name := range r.order {
		if r.room.Waiting() == 0 {
			break
		}
		if at := r.entries[name].wakeAt(now); at.After(now) {
			next = earlier(next, at)
		}
	}
	if next.Equal(r.wakeAt) {
		return
	}
	r.disarm()
	if !next.IsZero() {
		r.wakeAt, r.wake = next, r.clock.AfterFunc(next.Sub(now), r.wakeUp)
	}
}

func (r *Registry) disarm() {
	if r.wake != nil {
		r.wake.Stop()
	}
	r.wake, r.wakeAt = nil, time.Time{}
}

// wakeUp is called at wakeAt.
func (r *Registry) wakeUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serveWaiters(r.clock.Now())
}
