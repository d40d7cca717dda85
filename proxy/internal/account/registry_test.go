package account

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runtime is a configuration with a credential for each account.
func runtime(strategy string, accounts ...bundle.Account) *config.Runtime {
	rt := &config.Runtime{Credentials: bundle.Credentials{Accounts: map[string]bundle.Credential{}}}
	rt.Bundle.Pool = bundle.Pool{Accounts: accounts, Strategy: strategy}
	rt.Bundle.Circuit.Ejection = bundle.Ejection{BaseSeconds: 30, MaxSeconds: 600}
	for _, a := range accounts {
		rt.Credentials.Accounts[a.Name] = bundle.Credential{APIKey: "sk-" + a.Name}
	}
	return rt
}

func enabled(name string, limit int) bundle.Account {
	return bundle.Account{Name: name, Kind: bundle.KindAPIKey, State: bundle.AccountEnabled, MaxConcurrent: limit}
}

func registry(rt *config.Runtime) *Registry {
	r := NewRegistry(clock.RealClock{})
	r.Update(rt)
	return r
}

func acquire(t *testing.T, r *Registry, w Want) *Lease {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // whoever has to wait fails
	l, err := r.Acquire(ctx, w)
	if err != nil {
		t.Fatalf("acquiring %+v: %v", w, err)
	}
	return l
}

func code(err error) string {
	var f *failure.Failure
	if errors.As(err, &f) {
		return f.Code
	}
	return fmt.Sprint(err)
}

// pending is a turn that waits in its own goroutine.
type pending struct {
	mu    sync.Mutex
	lease *Lease
	err   error
	done  bool
}

func wait(ctx context.Context, r *Registry, w Want) *pending {
	p := &pending{}
	go func() {
		l, err := r.Acquire(ctx, w)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.lease, p.err, p.done = l, err, true
	}()
	synctest.Wait() // it is queued before the next one comes
	return p
}

func (p *pending) outcome() string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.done:
		return "waiting"
	case p.err != nil:
		return code(p.err)
	default:
		return p.lease.Account().Name
	}
}

func expect(t *testing.T, what string, p *pending, want string) {
	t.Helper()
	if got := p.outcome(); got != want {
		t.Fatalf("%s: %s, want %s", what, got, want)
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyLeastLoaded, enabled("a", 1)))
		held := acquire(t, r, Want{})
		first, second := wait(t.Context(), r, Want{}), wait(t.Context(), r, Want{})
		expect(t, "first", first, "waiting")
		held.Release()
		held.Release() // a second release gives nothing away
		expect(t, "first", first, "a")
		expect(t, "second", second, "waiting")
		first.lease.Release()
		expect(t, "second", second, "a")
		second.lease.Release()
	})
}

func TestWaiterDoesNotHoldUpThoseBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyLeastLoaded, enabled("a", 1), enabled("b", 1)))
		a, b := acquire(t, r, Want{Only: "a"}), acquire(t, r, Want{Only: "b"})
		wantsA, wantsB := wait(t.Context(), r, Want{Only: "a"}), wait(t.Context(), r, Want{Only: "b"})
		anyone := wait(t.Context(), r, Want{})
		b.Release()
		expect(t, "the one that wants b", wantsB, "b")
		expect(t, "the one that wants a", wantsA, "waiting")
		a.Release()
		expect(t, "the one that wants a", wantsA, "a")
		wantsB.lease.Release()
		expect(t, "the one that takes any", anyone, "b")
		wantsA.lease.Release()
		anyone.lease.Release()
	})
}

func TestNewcomerDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyLeastLoaded, enabled("a", 1)))
		held := acquire(t, r, Want{})
		first := wait(t.Context(), r, Want{})
		held.Release()
		newcomer := wait(t.Context(), r, Want{})
		expect(t, "newcomer", newcomer, "waiting")
		expect(t, "first", first, "a")
		first.lease.Release()
		expect(t, "newcomer", newcomer, "a")
		newcomer.lease.Release()
	})
}

func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyLeastLoaded, enabled("a", 1)))
		held := acquire(t, r, Want{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		impatient, patient := wait(ctx, r, Want{}), wait(t.Context(), r, Want{})
		<-ctx.Done()
		expect(t, "impatient", impatient, failure.QueueTimeout)
		held.Release()
		expect(t, "patient", patient, "a")
		patient.lease.Release()
		if n := r.room.Waiting(); n != 0 {
			t.Errorf("%d waiters left", n)
		}
		if s := r.States()[0]; s.Inflight != 0 {
			t.Errorf("%d turns in flight, want 0", s.Inflight)
		}
	})
}

// Room that was given to a turn in the moment its time ended goes to the next.
func TestRoomGivenToATurnThatLeftIsNotLost(t *testing.T) {
	r := registry(runtime(bundle.StrategyLeastLoaded, enabled("a", 1)))
	held := acquire(t, r, Want{})
	_, gone := r.enter(Want{})
	_, next := r.enter(Want{})
	held.Release()
	r.leave(t.Context(), gone)
	o := <-next.Value.done
	o.lease.Release()
	if s := r.States()[0]; s.Inflight != 0 {
		t.Errorf("%d turns in flight, want 0", s.Inflight)
	}
}

func TestWaiterTakesAnAccountWhoseCoolDownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyLeastLoaded, enabled("a", 1), enabled("b", 1)))
		held := acquire(t, r, Want{Only: "a"})
		begin := time.Now()
		r.CoolDown("b", begin.Add(20*time.Second), ReasonRateLimited)
		l, err := r.Acquire(t.Context(), Want{})
		if err != nil || l.Account().Name != "b" || time.Since(begin) != 20*time.Second {
			t.Fatalf("%v, %v after %s; want b after 20s", l, err, time.Since(begin))
		}
		l.Release()
		held.Release()
		if r.wake != nil {
			t.Error("the timer runs though nobody waits")
		}
	})
}

func TestUpdateJudgesWaitersAnew(t *testing.T) {
	cases := []struct {
		name   string
		change func(*Registry)
		want   string
	}{
		{"a larger limit", func(r *Registry) { r.Update(runtime("", enabled("a", 2))) }, "a"},
		{"a new account", func(r *Registry) { r.Update(runtime("", enabled("a", 1), enabled("b", 1))) }, "b"},
		{"the account disabled", func(r *Registry) {
			a := enabled("a", 1)
			a.State = bundle.AccountDisabled
			r.Update(runtime("", a))
		}, failure.NoAccounts},
		{"the account removed", func(r *Registry) { r.Update(runtime("")) }, failure.NoAccounts},
		{"the model taken from it", func(r *Registry) {
			a := enabled("a", 1)
			a.Models = []string{"other"}
			r.Update(runtime("", a))
		}, failure.ModelNotFound},
		{"a quota reached", func(r *Registry) { r.CoolDown("a", time.Now().Add(time.Hour), ReasonQuotaExhausted) }, failure.UsageLimitReached},
		{"nothing of note", func(r *Registry) { r.Update(runtime("", enabled("a", 1))) }, "waiting"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := registry(runtime("", enabled("a", 1)))
				held := acquire(t, r, Want{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p := wait(ctx, r, Want{Model: "m"})
				c.change(r)
				expect(t, c.name, p, c.want)
				held.Release()
			})
		})
	}
}

// B80: a cap counts live turns, never idle sessions.
func TestB80_IdleSessionsHoldNoCapacity(t *testing.T) {
	r := registry(runtime(bundle.StrategyLeastLoaded, enabled("a", 5)))
	for range 5 {
		l := acquire(t, r, Want{}) // a session runs its turn, and stays open
		l.Release()
	}
	sixth := acquire(t, r, Want{})
	if got := r.States()[0].Inflight; got != 1 {
		t.Errorf("%d turns in flight, want 1", got)
	}
	sixth.Release()
}

func TestManyTurnsStayWithinTheLimits(t *testing.T) {
	r := registry(runtime(bundle.StrategyRoundRobin, enabled("a", 2), enabled("b", 3)))
	var wg sync.WaitGroup
	var mu sync.Mutex
	live := map[string]int{}
	count := func(name string, by int) {
		mu.Lock()
		defer mu.Unlock()
		live[name] += by
		if live["a"] > 2 || live["b"] > 3 {
			t.Errorf("over the limit: %v", live)
		}
	}
	for i := range 64 {
		wg.Go(func() {
			for range 50 {
				l, err := r.Acquire(t.Context(), Want{Prefer: []string{"a", "b"}[i%2]})
				if err != nil {
					t.Error(err)
					return
				}
				count(l.Account().Name, 1)
				count(l.Account().Name, -1)
				l.Release()
			}
		})
	}
	wg.Wait()
	for _, s := range r.States() {
		if s.Inflight != 0 {
			t.Errorf("%s ends with %d turns in flight", s.Name, s.Inflight)
		}
	}
}

// lateTimers is a clock whose timers never fire in time.
type lateTimers struct{ *clocktesting.FakePassiveClock }

func (lateTimers) AfterFunc(time.Duration, func()) clock.Timer {
	return clock.RealClock{}.NewTimer(time.Hour)
}

func TestNewcomerDoesNotOvertakeWhenTheTimerIsLate(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	c := lateTimers{clocktesting.NewFakePassiveClock(now)}
	r := NewRegistry(c)
	r.Update(runtime("", enabled("a", 1), enabled("b", 1)))
	r.CoolDown("b", now.Add(time.Second), ReasonRateLimited)
	held := acquire(t, r, Want{})
	_, first := r.enter(Want{})
	c.SetTime(now.Add(time.Second))
	_, newcomer := r.enter(Want{})
	if newcomer == nil {
		t.Fatal("the newcomer got the room that the first waited for")
	}
	(<-first.Value.done).lease.Release()
	(<-newcomer.Value.done).lease.Release()
	held.Release()
}
