package account

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/config"
)

func sharedRuntime(accounts ...bundle.Account) *config.Runtime {
	rt := runtime(bundle.StrategyLeastLoaded, accounts...)
	rt.Bundle.Pool.CapacityScope = scopeShared
	return rt
}

func TestB81_TurnsOfASharedLimitNeedPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := NewRegistry(clock.RealClock{})
		r.LeasePermits(func() { asked++ })
		r.SetShare(Share{Replicas: 3, Rank: 0})
		r.Update(sharedRuntime(enabled("a", 4), enabled("free", 0)))
		if asked != 1 {
			t.Fatalf("asked %d times for the accounts of a configuration", asked)
		}
		is := func(what string, allowed, inflight, waiting int) {
			t.Helper()
			if got, want := r.Loads(), (Load{Name: "a", Limit: 4, Allowed: allowed, Inflight: inflight, Waiting: waiting}); len(got) != 1 || got[0] != want {
				t.Fatalf("%s: %+v, want %+v", what, got, want)
			}
		}
		is("at the start", 0, 0, 0)
		acquire(t, r, Want{Only: "free"}).Release() // what has no limit needs none
		first, second := wait(t.Context(), r, Want{Only: "a"}), wait(t.Context(), r, Want{Only: "a"})
		is("with two that wait", 0, 0, 2)
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
		r.SetPermits("a", 1)
		expect(t, "the first", first, "a")
		expect(t, "the second", second, "waiting")
		is("with one permit", 1, 1, 1)
		r.SetPermits("a", 3)
		expect(t, "the second", second, "a")
		if n := r.SetPermits("a", 0); n != 2 {
			t.Errorf("%d run, and they should run on", n)
		}
		third := wait(t.Context(), r, Want{Only: "a"})
		first.lease.Release()
		expect(t, "a turn without a permit", third, "waiting")
		is("with none", 0, 1, 1)
		r.SetPermits("a", -1) // the store is away
		expect(t, "with the share of two", third, "a")
		is("without a lease", 2, 2, 0)
		r.SetShare(Share{Replicas: 4, Rank: 0})
		is("with one replica more", 1, 2, 0)
		second.lease.Release()
		third.lease.Release()
		if r.SetPermits("no such account", 5) != 0 {
			t.Error("of nothing")
		}
	})
}

func TestPermitsFollowTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRegistry(clock.RealClock{})
		r.LeasePermits(func() {})
		r.Update(sharedRuntime(enabled("a", 4)))
		r.SetPermits("a", 2)
		r.Update(sharedRuntime(enabled("a", 9), enabled("b", 1)))
		if got := r.Loads(); len(got) != 2 || got[0].Allowed != 2 || got[0].Limit != 9 || got[1].Allowed != 0 {
			t.Errorf("a change of limits: %+v", got)
		}
		r.Update(runtime(bundle.StrategyLeastLoaded, enabled("a", 9)))
		if got := r.Loads(); len(got) != 0 {
			t.Errorf("PerReplica: %+v", got)
		}
		for range 9 {
			defer acquire(t, r, Want{}).Release()
		}
		r.Update(sharedRuntime(enabled("a", 9)))
		if got := r.Loads(); len(got) != 1 || got[0].Allowed != 0 || got[0].Inflight != 9 {
			t.Errorf("Shared again: %+v", got)
		}
	})
}

func TestWithoutAStoreASharedLimitHoldsForEachReplica(t *testing.T) {
	r := registry(sharedRuntime(enabled("a", 2)))
	r.SetPermits("a", 0)
	acquire(t, r, Want{}).Release()
	if len(r.Loads()) != 0 {
		t.Error("permits are wanted, though nobody leases them")
	}
}

// What waits for its lane would not run with a permit either.
func TestWhoWaitsForALaneNeedsNoPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := sharedRuntime(enabled("a", 40), enabled("b", 40))
		rt.Bundle.Circuit.Bulkheads = []bundle.Bulkhead{{Lane: "HTTP", MaxConcurrent: 1, MaxQueued: 10, QueueTimeoutSeconds: 60}}
		r := NewRegistry(clock.RealClock{})
		r.LeasePermits(func() {})
		r.Update(rt)
		waiting := wait(t.Context(), r, Want{})
		if got := r.Loads(); got[0].Waiting != 1 || got[1].Waiting != 1 {
			t.Errorf("one that takes either: %+v", got)
		}
		r.SetPermits("a", 1)
		expect(t, "the first", waiting, "a")
		next := wait(t.Context(), r, Want{})
		if got := r.Loads(); got[0].Waiting != 0 || got[1].Waiting != 0 {
			t.Errorf("the lane is full: %+v", got)
		}
		waiting.lease.Release()
		expect(t, "the next", next, "a")
		next.lease.Release()
	})
}

func TestACoolDownOfARemovedAccountIsNotOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime("", enabled("a", 0), enabled("b", 0)))
		until := time.Now().Add(time.Hour)
		r.CoolDown("b", until, ReasonQuotaExhausted)
		r.Update(runtime("", enabled("a", 0)))
		if got := r.CoolDowns(); len(got) != 1 || got[0] != (CoolDownOf{"b", ReasonQuotaExhausted, until}) {
			t.Errorf("%+v", got)
		}
	})
}
