package account

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// waiter is one turn that waits for room. It owns nothing, unless it came with a
// permit.
type waiter struct {
	want Want
	// done gets exactly one value, unless the waiter leaves first.
	done chan outcome
	// timer ends the patience of the lane.
	timer clock.Timer
}

// outcome is one of the two.
type outcome struct {
	lease  *Lease
	refuse *failure.Failure
}

type ticket = bulkhead.Ticket[*waiter]

// Acquire returns a lease of the account that takes the turn, together with a
// permit of the turn's lane: both or neither. If one of them is not to be had now
// it waits, for as long as the lane's queue timeout and ctx allow. Clients that
// wait take turns; whoever is held up by its account holds up nobody else.
//
// Every error is a *failure.Failure, and nothing was sent before it. QueueTimeout:
// the time to wait is over. BulkheadFull: there was no place to wait in, or another
// client that had fewer got it. All others come as soon as waiting is pointless. If
// ctx was cancelled with a *failure.Failure as its cause, that is the error.
func (r *Registry) Acquire(ctx context.Context, w Want) (*Lease, error) {
	if !w.Permit.Held() {
		w.Permit = nil
	} else {
		w.Lane = w.Permit.Lane()
	}
	began := r.clock.Now()
	o := r.acquire(ctx, w)
	r.observer.Waited(w.Lane, r.clock.Now().Sub(began))
	if o.lease != nil {
		return o.lease, nil
	}
	if o.refuse.LimitScope != "" {
		r.observer.Rejected(o.refuse.Code)
	}
	return nil, o.refuse
}

func (r *Registry) acquire(ctx context.Context, w Want) outcome {
	o, waiting := r.enter(w)
	if waiting == nil {
		return o
	}
	select {
	case o = <-waiting.Value.done:
		return o
	case <-ctx.Done():
		return outcome{refuse: r.leave(ctx, waiting)}
	}
}

// enter serves, refuses or queues a turn.
func (r *Registry) enter(w Want) (outcome, *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if !r.wakeAt.IsZero() && !now.Before(r.wakeAt) {
		r.serveWaiters(now) // the timer is about to: no overtaking
	}
	r.look(now)
	if f := r.refuse(w, now); f != nil {
		return outcome{refuse: f}, nil
	}
	i, found := Pick(r.view, r.strategy, w, r.cursor)
	if found && (w.Permit != nil || r.room.HasRoom(w.Lane)) {
		permit := w.Permit
		if permit == nil {
			permit = r.room.Take(w.Lane, now)
		}
		return outcome{lease: r.grant(i, permit, w.Permit != nil, now)}, nil
	}
	return r.queue(w, now)
}

func (r *Registry) queue(w Want, now time.Time) (outcome, *ticket) {
	waiting := &waiter{want: w, done: make(chan outcome, 1)}
	ask := bulkhead.Ask{Lane: w.Lane, Client: w.Client, Class: w.class(), Permit: w.Permit}
	t, evicted := r.room.Enter(ask, waiting, now)
	if evicted != nil {
		evicted.Value.settle(outcome{refuse: r.full(evicted.Value.want, now)})
	}
	if t == nil {
		return outcome{refuse: r.full(w, now)}, nil
	}
	waiting.timer = r.clock.AfterFunc(r.room.Limits(w.Lane).QueueTimeout, func() { r.expire(t) })
	r.arm(now)
	r.askPermits()
	return outcome{}, t
}

// settle ends the waiting of one who is no longer in the room.
func (w *waiter) settle(o outcome) {
	w.timer.Stop()
	w.done <- o
}

// expire ends the patience of one who waits.
func (r *Registry) expire(t *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.room.Leave(t) {
		return
	}
	t.Value.settle(outcome{refuse: r.late(t.Value.want, r.clock.Now())})
	r.rest()
}

// leave takes one out who waits no longer, and says why it got nothing. What it
// was given meanwhile goes to the next.
func (r *Registry) leave(ctx context.Context, t *ticket) *failure.Failure {
	r.mu.Lock()
	r.room.Leave(t)
	t.Value.timer.Stop()
	r.rest()
	f := r.gaveUp(ctx, t.Value.want)
	r.mu.Unlock()
	select {
	case o := <-t.Value.done:
		if o.lease != nil {
			o.lease.Release()
		}
	default:
	}
	return f
}

// rest stops the timer if nobody waits.
func (r *Registry) rest() {
	if r.room.Waiting() == 0 {
		r.disarm()
	}
}

// serveWaiters judges all who wait anew: anything may have changed.
func (r *Registry) serveWaiters(now time.Time) {
	for again := r.room.Waiting() > 0; again; {
		r.look(now)
		pointless := func(t *ticket) bool { return r.refuse(t.Value.want, now) != nil }
		for _, t := range r.room.Sweep(pointless) {
			t.Value.settle(outcome{refuse: r.refuse(t.Value.want, now)})
		}
		again = r.serve(now)
	}
	r.arm(now)
}

// refuse says why a turn cannot be served, however long it waits. A turn that has
// its permit is under way and was counted when it came.
func (r *Registry) refuse(w Want, now time.Time) *failure.Failure {
	if w.Permit == nil {
		if f := r.budgets.refuse(w.goesOn(), now); f != nil {
			return f
		}
	}
	return refuse(r.view, r.strategy, w, now, r.room.Limits(w.Lane).QueueTimeout)
}

// serveRoom gives away what was given back. Nothing else has changed. What a turn
// uses up may make another wait for a time instead of for room.
func (r *Registry) serveRoom(now time.Time) {
	if !r.room.MayServe() {
		return
	}
	r.look(now)
	if len(r.free) > 0 && r.serve(now) {
		r.serveWaiters(now)
		return
	}
	r.arm(now)
}

// serve gives what there is to those who wait, in order. Of those who need the
// same, one is judged for all. It says whether waiting has become pointless for
// some, because a quota of the pool was used up.
func (r *Registry) serve(now time.Time) (pointless bool) {
	pass := r.room.Begin()
	for t := pass.Next(); t != nil; t = pass.Next() {
		usedUp := t.Permit() == nil && r.budgets.refuse(t.Value.want.goesOn(), now) != nil
		i, found := r.pick(&t.Value.want)
		if !found || usedUp {
			pointless = pointless || usedUp
			pass.Block(t)
			continue
		}
		underWay := t.Permit() != nil
		permit := pass.Serve(t, now)
		t.Value.settle(outcome{lease: r.grant(i, permit, underWay, now)})
		r.look(now)
	}
	return pointless
}

// pick is Pick, for when few accounts have room: of many who need something else
// each costs no more than a look at those.
func (r *Registry) pick(w *Want) (int, bool) {
	if !slices.ContainsFunc(r.free, func(i int) bool { return r.view[i].takes(r.strategy, *w) }) {
		return 0, false
	}
	return Pick(r.view, r.strategy, *w, r.cursor)
}

// grant makes the lease. The permit is the caller's own if it came with it.
func (r *Registry) grant(i int, permit *bulkhead.Permit, own bool, now time.Time) *Lease {
	e := r.entries[r.view[i].Name]
	if e.inflight == 0 {
		e.pace.Begin(now)
	}
	e.inflight++
	l := &Lease{registry: r, entry: e, account: e.account, permit: permit, began: now}
	r.admitted(l, &r.view[i], own, now)
	l.apart.Store(own)
	return l
}

// Scopes of limits beside the lanes.
const scopeAccount = "account"

// scope is the limit that a turn waits for.
func (r *Registry) scope(w Want) string {
	if w.Permit == nil && !r.room.HasRoom(w.Lane) {
		return Scope(w.Lane)
	}
	return scopeAccount
}

// full refuses a turn that found no place to wait in, or lost it.
func (r *Registry) full(w Want, now time.Time) *failure.Failure {
	return failure.New(failure.BulkheadFull, "All places for such requests are taken, and so are those to wait in.",
		failure.Scope(r.scope(w)), failure.After(r.estimate(w, now)))
}

// late refuses a turn that has waited too long.
func (r *Registry) late(w Want, now time.Time) *failure.Failure {
	r.look(now)
	if f := refuse(r.view, r.strategy, w, now, 0); f != nil {
		return f // it waited for a cool-down that was prolonged
	}
	scope := r.scope(w)
	reason, message := "lane_capacity", "All places for such requests are taken, and the time to wait for one has ended."
	if scope == scopeAccount {
		reason, message = "account_capacity", "Every usable account is busy, and the time to wait for one has ended."
	}
	return failure.New(failure.QueueTimeout, message, failure.Reason(reason), failure.Scope(scope), failure.After(r.estimate(w, now)))
}

// gaveUp is why a turn whose ctx has ended got nothing.
func (r *Registry) gaveUp(ctx context.Context, w Want) *failure.Failure {
	var cause *failure.Failure
	switch {
	case errors.As(context.Cause(ctx), &cause):
		return cause
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return r.late(w, r.clock.Now())
	default:
		f := failure.New(failure.QueueTimeout, "The request was given up while it waited.", failure.Reason("cancelled"))
		f.Dispatch = failure.DispatchNone
		return f
	}
}

// estimate is how long such a turn would wait if it came now, by how often room of
// its kind was given back lately.
func (r *Registry) estimate(w Want, now time.Time) time.Duration {
	if r.scope(w) != scopeAccount {
		return r.room.WaitFor(w.Lane, now)
	}
	r.look(now)
	rate := 0.0
	for i := range r.view {
		if r.view[i].takes(r.strategy, w) {
			rate += r.entries[r.view[i].Name].pace.PerSecond(now)
		}
	}
	return bulkhead.Wait(r.room.Class(w.class())+1, rate, r.room.Limits(w.Lane).QueueTimeout)
}
