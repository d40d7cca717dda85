package share

import (
	"container/list"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// gauge counts the turns on one account in all replicas.
type gauge struct {
	mu        sync.Mutex
	now, most int
	begun     map[string]int // by replica
	limit     int
}

func (g *gauge) add(replica string, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now += n
	g.most = max(g.most, g.now)
	if n > 0 {
		g.begun[replica]++
	}
}

// exceeded says whether there ever were more than the limit.
func (g *gauge) exceeded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most > g.limit
}

func (g *gauge) get() (now, most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now, g.most
}

// site is the accounts of one replica, of which there is one.
type site struct {
	name  string
	gauge *gauge
	share int // without a lease
	wake  func()

	mu                sync.Mutex
	limit             int
	allowed, inflight int
	leased            bool
	waiting           list.List // of chan struct{}
}

func newSite(name string, g *gauge, share int) *site {
	return &site{name: name, gauge: g, limit: g.limit, share: share, wake: func() {}}
}

func (s *site) Loads() []account.Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == 0 {
		return nil
	}
	return []account.Load{{Name: "a", Limit: s.limit, Allowed: s.allowed, Inflight: s.inflight, Waiting: s.waiting.Len()}}
}

func (s *site) SetPermits(_ string, limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowed, s.leased = limit, limit != noLease
	if !s.leased {
		s.allowed = s.share
	}
	s.serve()
	return s.inflight
}

func (s *site) serve() {
	for s.inflight < s.allowed && s.waiting.Len() > 0 {
		s.begin()
		close(s.waiting.Remove(s.waiting.Front()).(chan struct{}))
	}
}

func (s *site) begin() {
	s.inflight++
	s.gauge.add(s.name, 1)
}

// turn runs one turn for as long as it takes; false = ctx ended before it began.
func (s *site) turn(ctx context.Context, takes time.Duration) bool {
	s.mu.Lock()
	if s.inflight < s.allowed && s.waiting.Len() == 0 {
		s.begin()
		s.mu.Unlock()
	} else {
		served := make(chan struct{})
		place := s.waiting.PushBack(served)
		s.mu.Unlock()
		s.wake()
		select {
		case <-served:
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			select {
			case <-served:
				s.end()
			default:
				s.waiting.Remove(place)
			}
			return false
		}
	}
	pass(takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	return true
}

func (s *site) end() {
	s.inflight--
	s.gauge.add(s.name, -1)
	s.serve()
}

func (s *site) state() (allowed int, leased bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allowed, s.leased
}

// replicas share an account of a limit.
func newGauge(limit int) *gauge { return &gauge{limit: limit, begun: map[string]int{}} }

func leasing(s *site, p Permits, log *logged) *Capacity {
	begun := time.Now()
	c := NewCapacity(CapacityOptions{
		Permits: p, Accounts: s, Me: store.Holder{Pod: s.name, Process: s.name}, Clock: clock.RealClock{},
		Instant: func() time.Duration { return time.Since(begun) }, Log: log.logger(),
	})
	s.wake = c.Wake
	return c
}

// keepBusy lets some clients run turns one after the other until ctx ends.
func (s *site) keepBusy(ctx context.Context, all *sync.WaitGroup, clients int, takes func() time.Duration) {
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				s.turn(ctx, takes())
			}
		})
	}
}

// The limit holds exactly while replicas come, have much or nothing to do, and go.
func TestB81_ASharedLimitHoldsExactly(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			r := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // a test repeats itself
			random := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return r.IntN(n)
			}
			g := newGauge(1 + random(9))
			var log logged
			b := &slow{store.NewMemory(time.Now), func() time.Duration { return time.Duration(random(300)) * time.Millisecond }}
			var stops []func()
			for i := range 3 {
				s := newSite(fmt.Sprint("p", i), g, 1)
				stops = append(stops, start(t, leasing(s, b, &log).Run))
				takes := func() time.Duration { return time.Duration(random(5_000)) * time.Millisecond }
				var all sync.WaitGroup
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(30+random(60))*time.Second)
				s.keepBusy(ctx, &all, random(8), takes)
				stop := stops[i]
				stops[i] = func() {
					defer cancel()
					all.Wait()
					stop()
				}
			}
			for _, stop := range stops {
				stop()
			}
			if now, most := g.get(); now != 0 || g.exceeded() {
				t.Errorf("seed %d: %d turns of %d at once, %d left", seed, most, g.limit, now)
			}
			if lines := log.lines(); lines[0] != "" {
				t.Errorf("%q", lines)
			}
		})
	}
}

func TestB81_ALimitGoesRoundBetweenThoseWhoNeedIt(t *testing.T) {
	for name, limit := range map[string]int{"one for all": 1, "less than all": 2, "uneven": 4, "plenty": 30} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGauge(limit)
				b := store.NewMemory(time.Now)
				var log logged
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				var all sync.WaitGroup
				for i, clients := range []int{40, 10, 10} { // the greedy one comes first
					s := newSite(fmt.Sprint("p", i), g, 1)
					stop := start(t, leasing(s, b, &log).Run)
					defer stop()
					s.keepBusy(ctx, &all, clients, func() time.Duration { return 2 * time.Second })
					pass(5 * time.Second)
				}
				all.Wait()
				var counts []int
				for _, n := range g.begun {
					counts = append(counts, n)
				}
				if len(counts) < 3 || slices.Max(counts) > 2*slices.Min(counts) {
					t.Errorf("turns of the replicas: %v", g.begun)
				}
				sum := 0
				for _, n := range counts {
					sum += n
				}
				// Permits are handed on between turns, not left lying about.
				if sum*2 < limit*180*7/10 || g.exceeded() {
					t.Errorf("%d turns of 2 s in 3 minutes, at most %d at once", sum, g.most)
				}
			})
		})
	}
}

func TestATurnWaitsForItsPermitOnlyAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGauge(5)
		b := store.NewMemory(time.Now)
		var log logged
		var sites []*site
		for i := range 3 {
			sites = append(sites, newSite(fmt.Sprint("p", i), g, 1))
			defer start(t, leasing(sites[i], b, &log).Run)()
		}
		pass(10 * time.Second)
		allowed := 0
		for _, s := range sites {
			n, _ := s.state()
			allowed += n
		}
		if allowed != 3 {
			t.Fatalf("%d in reserve", allowed)
		}
		var all sync.WaitGroup
		begun := time.Now()
		for range 5 { // all on one replica, though the others have reserves
			all.Go(func() { sites[0].turn(t.Context(), 20*time.Second) })
		}
		pass(breath)
		synctest.Wait()
		if now, _ := g.get(); now != 3 {
			t.Errorf("%d run at once", now)
		}
		pass(2 * Every)
		synctest.Wait()
		if now, _ := g.get(); now != 5 {
			t.Errorf("%d run after two seconds: others keep what they do not need", now)
		}
		all.Wait()
		if took := time.Since(begun); took > 20*time.Second+2*Every {
			t.Errorf("%s", took)
		}
		pass(linger + 3*Every)
		for i, s := range sites {
			if n, _ := s.state(); n > 2 {
				t.Errorf("replica %d keeps %d that it does not use", i, n)
			}
		}
	})
}

func TestAnOutageOfTheStoreKeepsWhatIsGrantedAndThenTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &flaky{Permits: store.NewMemory(time.Now)}
		g := newGauge(9)
		s := newSite("p0", g, 3)
		var log logged
		failures := 0
		c := leasing(s, b, &log)
		c.options.Failed = func() { failures++ }
		defer start(t, c.Run)()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		s.keepBusy(ctx, &all, 9, func() time.Duration { return 500 * time.Millisecond })
		pass(5 * time.Second)
		is := func(what string, want int, leased bool) {
			t.Helper()
			synctest.Wait()
			if n, l := s.state(); n != want || l != leased {
				t.Errorf("%s: %d, leased %t; want %d, %t", what, n, l, want, leased)
			}
		}
		is("with the store", 9, true)
		b.away(true)
		pass(leaseLife - leaseMargin - 2*Every)
		is("at the start of an outage", 9, true)
		pass(2 * (Every + patience))
		is("when the lease is over", 3, false)
		if leaseMargin <= Every+patience {
			t.Error("a lease may end here after it has ended in the store")
		}
		pass(10 * time.Minute)
		is("in a long outage", 3, false)
		b.away(false)
		pass(2*Every + patience)
		is("with the store again", 9, true)
		lines := log.lines()
		if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[1], "level=INFO") || failures < 100 {
			t.Errorf("%d failures, %q", failures, lines)
		}
		cancel()
		all.Wait()
	})
}

// flaky is a store that can be silent.
type flaky struct {
	Permits
	mu     sync.Mutex
	silent bool
}

func (f *flaky) away(silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = silent
}

func (f *flaky) LeasePermits(ctx context.Context, me store.Holder, asks []store.Ask, life time.Duration) []store.Grant {
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if !silent {
		return f.Permits.LeasePermits(ctx, me, asks, life)
	}
	<-ctx.Done()
	grants := make([]store.Grant, len(asks))
	for i := range grants {
		grants[i].Err = fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return grants
}

// slow is a store at the end of a long way.
type slow struct {
	Permits
	way func() time.Duration
}

func (s *slow) LeasePermits(ctx context.Context, me store.Holder, asks []store.Ask, life time.Duration) []store.Grant {
	pass(s.way())
	defer func() { pass(s.way()) }()
	return s.Permits.LeasePermits(ctx, me, asks, life)
}

// What may be used until the answer is there is not given to others.
func TestB81_NothingIsGivenAwayWhileTheAnswerIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGauge(2)
		var log logged
		b := store.NewMemory(time.Now)
		one, two := newSite("one", g, 1), newSite("two", g, 1)
		way := &slow{b, func() time.Duration { return 0 }}
		first, second := leasing(one, way, &log), leasing(two, b, &log)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { one.turn(t.Context(), time.Second) })
		}
		synctest.Wait()
		first.Once(t.Context())
		all.Wait() // and one keeps both permits for a while
		for range 2 {
			all.Go(func() { two.turn(t.Context(), time.Second) })
		}
		synctest.Wait()
		second.Once(t.Context()) // gets nothing, but is heard
		calls := 0
		way.way = func() time.Duration {
			if calls++; calls == 2 { // the answer is on its way back
				second.Once(t.Context())
				for range 2 {
					all.Go(func() { one.turn(t.Context(), time.Second) })
				}
				synctest.Wait()
			}
			return 0
		}
		first.Once(t.Context())
		if now, _ := g.get(); now != 2 || g.exceeded() {
			t.Errorf("%d turns of 2", now)
		}
		way.way = func() time.Duration { return 0 }
		for range 10 {
			pass(time.Second)
			first.Once(t.Context())
			second.Once(t.Context())
		}
		all.Wait()
	})
}

func TestPermitsStayForAFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGauge(20)
		s := newSite("p0", g, 1)
		var log logged
		defer start(t, leasing(s, store.NewMemory(time.Now), &log).Run)()
		pass(10 * time.Second)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { s.turn(t.Context(), 3*time.Second) })
		}
		all.Wait()
		pass(linger - 2*Every)
		if n, _ := s.state(); n < 8 {
			t.Errorf("%d are left for the next turns", n)
		}
		pass(4 * Every)
		if n, _ := s.state(); n != 1 {
			t.Errorf("%d are kept", n)
		}
	})
}

func TestAStoreThatWasNeverThereLeavesTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &flaky{Permits: store.NewMemory(time.Now), silent: true}
		s := newSite("p0", newGauge(9), 3)
		var log logged
		leasing(s, b, &log).Once(t.Context())
		if n, leased := s.state(); n != 3 || leased {
			t.Errorf("%d, leased %t", n, leased)
		}
	})
}

func TestAStopInTheMiddleOfAnAskIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &flaky{Permits: store.NewMemory(time.Now), silent: true}
		s := newSite("p0", newGauge(9), 3)
		var log logged
		c := leasing(s, b, &log)
		c.options.Failed = func() { t.Error("counted") }
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		c.Once(ctx)
		if n, _ := s.state(); n != 0 || log.lines()[0] != "" {
			t.Errorf("%d, %q", n, log.lines())
		}
	})
}

func TestWhatADeadReplicaHadIsFreeAfterItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := store.NewMemory(time.Now)
		var log logged
		dead := newSite("dead", newGauge(4), 1)
		dead.waiting.PushBack(make(chan struct{}))
		for range 3 {
			dead.waiting.PushBack(make(chan struct{}))
		}
		leasing(dead, b, &log).Once(t.Context())
		if n, _ := dead.state(); n != 4 {
			t.Fatalf("%d", n)
		}
		g := newGauge(4)
		alive := newSite("alive", g, 1)
		defer start(t, leasing(alive, b, &log).Run)()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		alive.keepBusy(ctx, &all, 4, func() time.Duration { return time.Second })
		pass(leaseLife - time.Second)
		if _, most := g.get(); most != 0 {
			t.Errorf("%d run before", most)
		}
		pass(3 * time.Second)
		if _, most := g.get(); most != 4 {
			t.Errorf("%d run after", most)
		}
		cancel()
		all.Wait()
	})
}

func TestAnAccountThatIsGoneIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := store.NewMemory(time.Now)
		var log logged
		one, two := newSite("one", newGauge(3), 1), newSite("two", newGauge(3), 1)
		for range 3 {
			one.waiting.PushBack(make(chan struct{}))
			two.waiting.PushBack(make(chan struct{}))
		}
		c := leasing(one, b, &log)
		c.Once(t.Context())
		one.limit = 0 // or its limit, or the scope of the pool
		c.Once(t.Context())
		leasing(two, b, &log).Once(t.Context())
		if n, _ := two.state(); n != 3 || len(c.demands) != 0 {
			t.Errorf("%d, and %d are remembered", n, len(c.demands))
		}
	})
}

func TestAStopGivesAllBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := store.NewMemory(time.Now)
		var log logged
		one, two := newSite("one", newGauge(3), 1), newSite("two", newGauge(3), 1)
		stop := start(t, leasing(one, b, &log).Run)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		one.keepBusy(ctx, &all, 3, func() time.Duration { return time.Second })
		pass(3 * time.Second)
		cancel()
		all.Wait()
		stop()
		two.waiting.PushBack(make(chan struct{}))
		leasing(two, b, &log).Once(t.Context())
		if n, _ := two.state(); n < 1 {
			t.Errorf("%d", n)
		}
	})
}
