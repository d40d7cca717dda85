package account

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// bounded is a configuration with the limits of some lanes.
func bounded(rt *config.Runtime, lanes ...bundle.Bulkhead) *config.Runtime {
	rt.Bundle.Circuit.Bulkheads = lanes
	return rt
}

func lane(l bulkhead.Lane, concurrent, queued int) bundle.Bulkhead {
	return bundle.Bulkhead{Lane: l.String(), MaxConcurrent: concurrent, MaxQueued: queued, QueueTimeoutSeconds: 30}
}

func asFailure(t *testing.T, err error) *failure.Failure {
	t.Helper()
	var f *failure.Failure
	if !errors.As(err, &f) {
		t.Fatalf("%v is no failure", err)
	}
	return f
}

// refused asks in vain.
func refused(t *testing.T, r *Registry, w Want) *failure.Failure {
	t.Helper()
	l, err := r.Acquire(t.Context(), w)
	if err == nil {
		t.Fatalf("%+v got %s", w, l.Account().Name)
	}
	return asFailure(t, err)
}

// at is one lane's state.
func at(r *Registry, l bulkhead.Lane) bulkhead.State { return r.Lanes()[l] }

// empty checks that nothing is held and nobody waits.
func empty(t *testing.T, r *Registry) {
	t.Helper()
	for _, s := range r.Lanes() {
		if s.Inflight != 0 || s.Queued != 0 {
			t.Errorf("lane %s ends with %d in flight, %d queued", s.Lane, s.Inflight, s.Queued)
		}
	}
	for _, s := range r.States() {
		if s.Inflight != 0 {
			t.Errorf("account %s ends with %d in flight", s.Name, s.Inflight)
		}
	}
	r.mu.Lock()
	waiting := r.room.Waiting()
	r.mu.Unlock()
	if waiting != 0 || timed(r) {
		t.Errorf("%d wait, a timer runs: %t", waiting, timed(r))
	}
}

// timed says whether a timer waits for an account.
func timed(r *Registry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wake != nil
}

func TestBulkheads(t *testing.T) {
	t.Run("Scenario T26: one active, one queued, the third is refused at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(bounded(runtime("", enabled("a", 1)), lane(bulkhead.HTTP, 10, 1)))
			active := acquire(t, r, Want{Client: "x"})
			queued := wait(t.Context(), r, Want{Client: "y"})
			began := time.Now()
			f := refused(t, r, Want{Client: "z"})
			if f.Code != failure.BulkheadFull || f.Status != 503 || f.LimitScope != "account" || f.Dispatch != failure.DispatchNone ||
				f.RetryAfter < time.Second || time.Since(began) > 10*time.Millisecond {
				t.Errorf("%+v after %s", f, time.Since(began))
			}
			active.Release()
			expect(t, "the one in the queue", queued, "a")
			if s := at(r, bulkhead.HTTP); s.Queued != 0 || s.Inflight != 1 {
				t.Errorf("%+v", s)
			}
			queued.lease.Release()
			empty(t, r)
		})
	})
	t.Run("Scenario T26: the lane is the limit", func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 0)), lane(bulkhead.HTTP, 1, 0)))
		active := acquire(t, r, Want{})
		if f := refused(t, r, Want{}); f.Code != failure.BulkheadFull || f.LimitScope != "http" {
			t.Errorf("%+v", f)
		}
		active.Release()
		empty(t, r)
	})
	t.Run("Scenario T27: a place is freed however its turn ends", placesAreFreed)
	t.Run("Scenario T28: one stalled account does not hold up the others", stalledAccount)
	t.Run("Scenario T29: a thousand waiters do not double the waits of ten", fairWaits)
	t.Run("Scenario T30: an unlimited lane admits ten thousand and says so", unlimitedLane)
	t.Run("Scenario T31: images do not take the places of text", lanesApart)
	t.Run("Scenario T32: the permit is held until the last byte", permitOutlivesAccount)
}

func placesAreFreed(t *testing.T) {
	for _, c := range []struct {
		name   string
		end    func(cancel context.CancelCauseFunc)
		code   string
		reason string
		none   string // dispatch
		after  time.Duration
	}{
		{"cancelled", func(cancel context.CancelCauseFunc) { cancel(nil) }, failure.QueueTimeout, "cancelled", failure.DispatchNone, 0},
		{"the lane's patience ends", func(context.CancelCauseFunc) {}, failure.QueueTimeout, "account_capacity", failure.DispatchNone, 30 * time.Second},
		{"the proxy drains", func(cancel context.CancelCauseFunc) {
			cancel(failure.New(failure.Draining, "The proxy is stopping."))
		}, failure.Draining, "", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registry(bounded(runtime("", enabled("a", 1)), lane(bulkhead.HTTP, 10, 1)))
				active := acquire(t, r, Want{})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				began := time.Now()
				var took time.Duration
				done := make(chan error)
				go func() {
					_, err := r.Acquire(ctx, Want{})
					took = time.Since(began)
					done <- err
				}()
				synctest.Wait()
				c.end(cancel)
				f := asFailure(t, <-done)
				if f.Code != c.code || f.Reason != c.reason || f.Dispatch != c.none || took != c.after {
					t.Errorf("%+v after %s", f, took)
				}
				next := wait(t.Context(), r, Want{})
				expect(t, "the next in its place", next, "waiting")
				active.Release()
				expect(t, "the next in its place", next, "a")
				next.lease.Release()
				empty(t, r)
			})
		})
	}
}

func stalledAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("x", 1), enabled("y", 1)), lane(bulkhead.HTTP, 200, 400)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		stalled := acquire(t, r, Want{Only: "x"})
		for range 400 {
			go func() { _, _ = r.Acquire(ctx, Want{Client: "one", Only: "x"}) }()
		}
		synctest.Wait()
		if s := at(r, bulkhead.HTTP); s.Queued != 400 || s.Inflight != 1 {
			t.Fatalf("%+v", s)
		}
		// Even of the same client, with the queue full of what cannot be served.
		for range 20 {
			first := acquire(t, r, Want{Client: "one", Only: "y"})
			second := wait(ctx, r, Want{Client: "one", Only: "y"})
			expect(t, "a turn on the other account", second, "waiting")
			first.Release()
			expect(t, "a turn on the other account", second, "y")
			second.lease.Release()
		}
		stalled.Release()
		<-ctx.Done()
	})
}

// rounds is how many releases each of the client's turns waits for when one place
// is given back again and again. Others arrive first.
func rounds(t *testing.T, others int) []int {
	t.Helper()
	var waits []int
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 1)), lane(bulkhead.HTTP, 2000, 2000)))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		held := acquire(t, r, Want{Client: "before"})
		got := make(chan *Lease, 1)
		served := make(chan string, 1)
		enter := func(client string) {
			go func() {
				if l, err := r.Acquire(ctx, Want{Client: client}); err == nil {
					served <- client
					got <- l
				}
			}()
			synctest.Wait()
		}
		for range others {
			enter("greedy")
		}
		for range 10 {
			enter("small")
		}
		for round := 1; len(waits) < 10; round++ {
			held.Release()
			if client := <-served; client == "small" {
				waits = append(waits, round)
			}
			held = <-got
		}
		held.Release()
		cancel()
		synctest.Wait()
		for len(served) > 0 { // what was in the hands of nobody
			<-served
			(<-got).Release()
			synctest.Wait()
		}
	})
	return waits
}

func fairWaits(t *testing.T) {
	alone, beside := rounds(t, 0), rounds(t, 1000)
	for i := range alone {
		if beside[i] > 2*alone[i] {
			t.Errorf("turn %d waits for %d releases beside a thousand, %d alone", i, beside[i], alone[i])
		}
	}
}

func unlimitedLane(t *testing.T) {
	r := registry(bounded(runtime("", enabled("a", 0)), bundle.Bulkhead{Lane: "HTTP"}))
	leases := make([]*Lease, 10_000)
	for i := range leases {
		leases[i] = acquire(t, r, Want{Client: fmt.Sprint(i % 7)})
	}
	s := at(r, bulkhead.HTTP)
	if !s.Limits.Unlimited() || s.Inflight != 10_000 || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
	if at(r, bulkhead.Media).Limits.Unlimited() {
		t.Error("a lane that nobody wrote is unlimited")
	}
	for _, l := range leases {
		l.Release()
	}
	empty(t, r)
}

func lanesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 0)), lane(bulkhead.Media, 8, 16)))
		images := make([]*Lease, 8) // of one request with n = 8: each call upstream has its own permit
		for i := range images {
			images[i] = acquire(t, r, Want{Lane: bulkhead.Media})
		}
		ninth := wait(t.Context(), r, Want{Lane: bulkhead.Media})
		expect(t, "the ninth image", ninth, "waiting")
		for _, l := range []bulkhead.Lane{bulkhead.HTTP, bulkhead.WebSocket, bulkhead.Compact, bulkhead.Background} {
			acquire(t, r, Want{Lane: l}).Release()
		}
		if s := at(r, bulkhead.Media); s.Inflight != 8 || s.Queued != 1 {
			t.Errorf("%+v", s)
		}
		images[0].Release()
		expect(t, "the ninth image", ninth, "a")
		ninth.lease.Release()
		for _, l := range images {
			l.Release()
		}
		empty(t, r)
	})
}

func permitOutlivesAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 1)), lane(bulkhead.HTTP, 1, 5), lane(bulkhead.Compact, 1, 5)))
		l := acquire(t, r, Want{})
		permit := l.Permit()
		l.Release()
		if s := at(r, bulkhead.HTTP); s.Inflight != 1 || r.States()[0].Inflight != 0 {
			t.Fatalf("the stream is open: %+v, account %+v", s, r.States()[0])
		}
		acquire(t, r, Want{Lane: bulkhead.Compact}).Release() // the account is free for others
		next := wait(t.Context(), r, Want{})
		expect(t, "the next in the lane", next, "waiting")
		permit.Release()
		permit.Release()
		l.Release()
		expect(t, "the next in the lane", next, "a")
		if s := at(r, bulkhead.HTTP); s.Inflight != 1 || !next.lease.Permit().Held() || permit.Held() {
			t.Errorf("%+v", s)
		}
		next.lease.Release()
		next.lease.Permit().Release()
		empty(t, r)
	})
}

func TestTurnThatGoesToAnotherAccountKeepsItsPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 0), enabled("b", 1)), lane(bulkhead.Media, 1, 1)))
		first := acquire(t, r, Want{Only: "a", Lane: bulkhead.Media})
		permit := first.Permit()
		first.Release()
		busy := acquire(t, r, Want{Only: "b", Lane: bulkhead.HTTP})
		queued := wait(t.Context(), r, Want{Lane: bulkhead.Media})
		// The lane and its queue are full; the turn under way is not turned away.
		again := wait(t.Context(), r, Want{Exclude: []string{"a"}, Permit: permit})
		expect(t, "the turn under way", again, "waiting")
		if s := at(r, bulkhead.Media); s.Inflight != 1 || s.Queued != 1 {
			t.Errorf("%+v", s)
		}
		acquire(t, r, Want{Only: "a", Permit: permit}).Release() // nor does it wait for its own lane
		busy.Release()
		expect(t, "the turn under way", again, "b")
		if again.lease.Permit() != permit {
			t.Error("another permit")
		}
		again.lease.Release()
		expect(t, "who waits for the lane", queued, "waiting")
		permit.Release()
		expect(t, "who waits for the lane", queued, "a")
		queued.lease.Release()

		// One that was given back counts for nothing.
		spent := acquire(t, r, Want{Permit: permit})
		if spent.Permit() == permit || at(r, bulkhead.HTTP).Inflight != 1 {
			t.Errorf("%+v", at(r, bulkhead.HTTP))
		}
		spent.Permit().Release()
		spent.Release()
		empty(t, r)
	})
}

func TestPlaceInTheQueueGoesToTheSmallClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 1)), lane(bulkhead.HTTP, 10, 3)))
		active := acquire(t, r, Want{})
		var greedy []*pending
		for range 3 {
			greedy = append(greedy, wait(t.Context(), r, Want{Client: "greedy"}))
		}
		small := wait(t.Context(), r, Want{Client: "small"})
		expect(t, "the youngest of the greedy one", greedy[2], failure.BulkheadFull)
		if f := asFailure(t, greedy[2].err); f.LimitScope != "account" || f.Dispatch != failure.DispatchNone {
			t.Errorf("%+v", f)
		}
		for _, p := range []*pending{greedy[0], small, greedy[1]} {
			active.Release()
			expect(t, "in turn", p, "a")
			active = p.lease
		}
		active.Release()
		empty(t, r)
	})
}

func TestTurnsOwnTimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 1)), lane(bulkhead.HTTP, 1, 3)))
		held := acquire(t, r, Want{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Acquire(ctx, Want{})
		if f := asFailure(t, err); f.Code != failure.QueueTimeout || f.Reason != "lane_capacity" || f.LimitScope != "http" {
			t.Errorf("%+v", f)
		}
		// A turn that has its place in the lane can only miss the account.
		if f := refused(t, r, Want{Permit: held.Permit()}); f.Code != failure.QueueTimeout || f.LimitScope != "account" {
			t.Errorf("%+v", f)
		}
		held.Permit().Release()
		held.Release()
		empty(t, r)
	})
}

func TestNoTimerRunsForTurnsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 1), enabled("b", 1)), lane(bulkhead.HTTP, 10, 3)))
		r.CoolDown("b", time.Now().Add(time.Hour), ReasonQuotaExhausted)
		held := acquire(t, r, Want{})
		refused(t, r, Want{})
		if synctest.Wait(); timed(r) {
			t.Error("a timer runs after the lane's patience has ended")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Acquire(ctx, Want{}); err == nil || timed(r) {
			t.Errorf("after the turn's own time: %v, a timer runs: %t", err, timed(r))
		}
		held.Release()
		empty(t, r)
	})
}

// The turn that gets the room uses up what the next one needs.
func TestRoomThatIsFreeAndNotYetAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := enabled("a", 1)
		a.RequestsPerMinute = 12 // two at once, then one in 5 s
		r := registry(runtime("", a))
		began := time.Now()
		held := acquire(t, r, Want{})
		first, second := wait(t.Context(), r, Want{}), wait(t.Context(), r, Want{})
		held.Release()
		expect(t, "first", first, "a")
		first.lease.Release()
		expect(t, "second", second, "waiting")
		<-time.After(5*time.Second + time.Millisecond)
		expect(t, fmt.Sprint("second, after ", time.Since(began)), second, "a")
		second.lease.Release()
		empty(t, r)
	})
}

// The time of a turn ends in the moment in which it is served.
func TestTurnThatWasServedIsNotTooLate(t *testing.T) {
	r := registry(bounded(runtime("", enabled("a", 1)), lane(bulkhead.HTTP, 10, 3)))
	held := acquire(t, r, Want{})
	_, waiting := r.enter(Want{})
	held.Release()
	r.expire(waiting)
	if o := <-waiting.Value.done; o.lease == nil {
		t.Errorf("got %v", o.refuse)
	} else {
		o.lease.Release()
	}
	empty(t, r)
}

func TestRetryAfterTellsHowFastRoomComesFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 1), enabled("b", 1)), lane(bulkhead.HTTP, 2, 4), lane(bulkhead.Media, 10, 4)))
		for range 60 { // one in two seconds on a, four on b
			l := acquire(t, r, Want{Only: "a"})
			<-time.After(2 * time.Second)
			l.Release()
		}
		a, b := acquire(t, r, Want{Only: "a"}), acquire(t, r, Want{Only: "b"})
		ctx, cancel := context.WithCancel(t.Context())
		for range 4 {
			wait(ctx, r, Want{})
			wait(ctx, r, Want{Only: "a", Lane: bulkhead.Media})
		}
		if f := refused(t, r, Want{}); f.LimitScope != "http" || f.RetryAfter.Round(time.Second) != 10*time.Second {
			t.Errorf("four wait before it, one place in 2 s: %s, %s", f.RetryAfter, f.LimitScope)
		}
		if f := refused(t, r, Want{Only: "a", Lane: bulkhead.Media}); f.LimitScope != "account" || f.RetryAfter.Round(time.Second) != 10*time.Second {
			t.Errorf("four wait before it for an account that is free every 2 s: %s, %s", f.RetryAfter, f.LimitScope)
		}
		cancel()
		synctest.Wait()
		a.Release()
		b.Release()
		empty(t, r)
	})
}

func TestLimitsOfLanesFollowTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 0)), lane(bulkhead.HTTP, 1, 5)))
		first := acquire(t, r, Want{})
		second := wait(t.Context(), r, Want{})
		expect(t, "second", second, "waiting")
		r.Update(bounded(runtime("", enabled("a", 0)), lane(bulkhead.HTTP, 2, 5)))
		expect(t, "second", second, "a")
		r.Update(bounded(runtime("", enabled("a", 0)), lane(bulkhead.HTTP, 1, 5)))
		third := wait(t.Context(), r, Want{})
		second.lease.Release()
		expect(t, "third, in a lane that is one above its limit", third, "waiting")
		first.Release()
		expect(t, "third", third, "a")
		third.lease.Release()
		empty(t, r)
		// Whoever waits for the lane hears at once that waiting is pointless.
		last := acquire(t, r, Want{})
		hopeless := wait(t.Context(), r, Want{Model: "m"})
		r.Update(bounded(runtime(""), lane(bulkhead.HTTP, 1, 5)))
		expect(t, "a turn without accounts", hopeless, failure.NoAccounts)
		last.Release()
	})
}

// A bundle of an older operator names only some lanes.
func TestLanesThatAreNotNamedAreBounded(t *testing.T) {
	r := NewRegistry(lateTimers{})
	for _, bulkheads := range [][]bundle.Bulkhead{nil, {{Lane: "HTTP", MaxConcurrent: 200, MaxQueued: 400}, {Lane: "Tomorrow"}}} {
		r.limitLanes(bulkheads)
		want := map[bulkhead.Lane][2]int{bulkhead.HTTP: {200, 400}, bulkhead.WebSocket: {200, 400}, bulkhead.Compact: {32, 64},
			bulkhead.Media: {8, 16}, bulkhead.Background: {16, 32}}
		for _, s := range r.Lanes() {
			if got := [2]int{s.Limits.MaxConcurrent, s.Limits.MaxQueued}; got != want[s.Lane] || s.Limits.QueueTimeout != 30*time.Second {
				t.Errorf("%s: %+v", s.Lane, s.Limits)
			}
		}
	}
}

// Whatever decides whether a want can be served has to be in its class; else one
// turn is judged by another's needs.
func TestClassHoldsAllThatDecides(t *testing.T) {
	held := registry(runtime("", enabled("a", 0)))
	base := Want{Model: "m", Only: "a", Exclude: []string{"b"}}
	differ := map[string]Want{
		"Model": {Model: "n", Only: "a", Exclude: []string{"b"}}, "Only": {Model: "m", Only: "b", Exclude: []string{"b"}},
		"Exclude":   {Model: "m", Only: "a", Exclude: []string{"b", "c"}},
		"Continues": {Model: "m", Continues: true}, "Prefer": {Model: "m", Prefer: "a"},
		"Permit": {Model: "m", Only: "a", Exclude: []string{"b"}, Permit: acquire(t, held, Want{}).Permit()},
	}
	alike := map[string]Want{"Client": {Client: "x"}, "Lane": {Lane: bulkhead.Media}}
	for field := range reflect.TypeFor[Want]().Fields() {
		w, decides := differ[field.Name]
		other, known := alike[field.Name]
		from := base
		if field.Name == "Continues" || field.Name == "Prefer" {
			from = Want{Model: "m"} // Only says the same as they
		}
		switch {
		case decides && w.class() == from.class():
			t.Errorf("%s makes no difference", field.Name)
		case known && other.class() != (&Want{}).class():
			t.Errorf("%s makes a difference", field.Name)
		case !decides && !known:
			t.Errorf("does %s decide whether a turn can be served? If so it belongs in the class", field.Name)
		}
	}
	a, b := Want{Exclude: []string{"x", "y"}}, Want{Exclude: []string{"y", "x"}}
	forged := Want{Model: "m\x00a"}
	if a.class() != b.class() || forged.class() == (&Want{Model: "m", Only: "a"}).class() || !slices.Equal(b.Exclude, []string{"y", "x"}) {
		t.Error("the class is not what it names")
	}
}

type recordingObserver struct {
	waits    []string
	rejected []string
}

func (o *recordingObserver) Waited(l bulkhead.Lane, took time.Duration) {
	o.waits = append(o.waits, fmt.Sprint(l, " ", took))
}

func (o *recordingObserver) Rejected(reason string) { o.rejected = append(o.rejected, reason) }

func TestEveryWaitIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recordingObserver
		r := registry(bounded(runtime("", enabled("a", 1)), lane(bulkhead.Media, 1, 0)))
		r.Tell(&seen)
		held := acquire(t, r, Want{})
		refused(t, r, Want{})
		media := wait(t.Context(), r, Want{Lane: bulkhead.Media})
		expect(t, "no queue", media, failure.BulkheadFull)
		refused(t, r, Want{Model: "m", Only: "b"})
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Acquire(cancelled, Want{}); err == nil {
			t.Error("served")
		}
		held.Release()
		permit := acquire(t, r, Want{Lane: bulkhead.Media}).Permit()
		refused(t, r, Want{Only: "b", Permit: permit}) // in the lane that it is in
		wantWaits := []string{"HTTP 0s", "HTTP 30s", "Media 0s", "HTTP 0s", "HTTP 0s", "Media 0s", "Media 0s"}
		if want := []string{failure.QueueTimeout, failure.BulkheadFull}; !slices.Equal(seen.rejected, want) || !slices.Equal(seen.waits, wantWaits) {
			t.Errorf("rejected %q, waits %q", seen.rejected, seen.waits)
		}
	})
}
