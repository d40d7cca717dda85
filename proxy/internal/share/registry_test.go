package share

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// configuration is a pool with one account.
func configuration(scope string, limit int) *config.Runtime {
	rt := &config.Runtime{Credentials: bundle.Credentials{Accounts: map[string]bundle.Credential{"a": {APIKey: "sk-test"}}}}
	rt.Bundle.Pool = bundle.Pool{
		Strategy: bundle.StrategyLeastLoaded, CapacityScope: scope,
		Accounts: []bundle.Account{{Name: "a", Kind: bundle.KindAPIKey, State: bundle.AccountEnabled, MaxConcurrent: limit}},
	}
	return rt
}

// busy runs turns on the registry of a replica, one after the other for each
// client, until ctx ends.
func busy(t *testing.T, ctx context.Context, r *account.Registry, g *gauge, name string, clients int, takes func() time.Duration, all *sync.WaitGroup) { //nolint:revive // t comes first in tests
	t.Helper()
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := r.Acquire(ctx, account.Want{Client: name})
				if err != nil {
					var f *failure.Failure
					if ctx.Err() == nil && !errors.As(err, &f) {
						t.Error(err)
					}
					continue
				}
				g.add(name, 1)
				pass(takes())
				g.add(name, -1)
				l.Release()
			}
		})
	}
}

// Three replicas that start cold at the same time, with a real Redis.
func TestB81_TheLimitOfAnAccountHoldsOverThreeReplicas(t *testing.T) {
	socket := startRedis(t)
	const limit, replicas = 4, 3
	for scope, most := range map[string]int{"Shared": limit, "Partitioned": limit} {
		t.Run(scope, func(t *testing.T) {
			g := newGauge(most)
			var log logged
			var all sync.WaitGroup
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			for i := range replicas {
				name := fmt.Sprint(scope, i)
				r := account.NewRegistry(clock.RealClock{})
				begun := time.Now()
				c := NewCapacity(CapacityOptions{
					Permits: openRedis(t, socket), Accounts: r, Me: store.Holder{Pod: name, Process: name}, Clock: clock.RealClock{},
					Instant: func() time.Duration { return time.Since(begun) }, Log: log.logger(),
				})
				r.SetShare(account.Share{Replicas: replicas, Rank: i})
				r.LeasePermits(c.Wake)
				r.Update(configuration(scope, limit))
				defer start(t, c.Run)()
				busy(t, ctx, r, g, name, 6, func() time.Duration { return time.Duration(rand.IntN(20)) * time.Millisecond }, &all) //nolint:gosec // a load
			}
			all.Wait()
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.most != most || len(g.begun) != replicas {
				t.Errorf("at most %d at once, bound %d; turns %v", g.most, most, g.begun)
			}
			if lines := log.lines(); lines[0] != "" {
				t.Errorf("%q", lines)
			}
		})
	}
}

// With fewer turns than replicas a divided limit is exceeded, to one for each.
func TestB81_TheStatedBoundOfADividedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, replicas = 2, 3
		g := newGauge(max(limit, replicas))
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range replicas {
			r := account.NewRegistry(clock.RealClock{})
			r.SetShare(account.Share{Replicas: replicas, Rank: i})
			r.Update(configuration("Partitioned", limit))
			busy(t, ctx, r, g, fmt.Sprint(i), 3, func() time.Duration { return time.Second }, &all)
		}
		all.Wait()
		if _, most := g.get(); most != g.limit {
			t.Errorf("at most %d at once, bound %d", most, g.limit)
		}
	})
}

// A limit that is hit on one replica, and a turn that works on another.
func TestB50_RegistriesTellEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := store.NewMemory(time.Now)
		var log logged
		var all []*account.Registry
		for i := range 2 {
			r := account.NewRegistry(clock.RealClock{})
			r.Update(configuration("PerReplica", 0))
			all = append(all, r)
			defer run(t, b, log.logger(), NewCoolDowns(r, fmt.Sprint("p", i)))()
		}
		pass(10 * time.Second)
		until := time.Now().Add(time.Hour)
		all[0].CoolDown("a", until, account.ReasonQuotaExhausted)
		all[0].CoolDown("a", until, account.ReasonConnectFailed) // is the business of that replica
		pass(2 * Every)
		synctest.Wait()
		s := all[1].States()[0]
		if s.State != account.QuotaExhausted || !s.Until.Equal(until) {
			t.Fatalf("the other shows %s, %s until %s", s.State, s.Reason, s.Until)
		}
		if len(all[1].CoolDowns()) != 1 {
			t.Error("a way that one replica cannot go is closed for the other")
		}
		all[1].Reset("a", "now")
		pass(2 * Every)
		synctest.Wait()
		if n := len(all[0].CoolDowns()); n != 0 {
			t.Errorf("%d cool-downs left after a reset", n)
		}
		fresh := account.NewRegistry(clock.RealClock{})
		fresh.Update(configuration("PerReplica", 0))
		New(Options{Board: b, Sources: []Source{NewCoolDowns(fresh, "fresh")}, Clock: clock.RealClock{}, Log: log.logger()}).Once(t.Context())
		if s := fresh.States()[0].State; s != account.Usable {
			t.Errorf("a new process starts with %s", s)
		}
	})
}
