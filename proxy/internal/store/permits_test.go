package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// ask leases permits of "n" and expects a count and a fair share.
func (s subject) ask(me Holder, a Ask, count, fair int) {
	s.t.Helper()
	a.Name = "n"
	got := s.LeasePermits(s.t.Context(), me, []Ask{a}, lease)[0]
	if got != (Grant{Count: count, Fair: fair}) {
		s.t.Fatalf("%s asks %+v and gets %+v, want %d, fair %d", me.Pod, a, got, count, fair)
	}
}

// keeps says that all is in use, needs that nothing is known yet.
func keeps(limit, n int) Ask { return Ask{Limit: limit, Keep: n, Need: n, Want: n} }
func needs(limit, n int) Ask { return Ask{Limit: limit, Need: n, Want: n} }

var permits = map[string]func(subject){
	"B81: all that there is goes to who needs it, and no more": func(s subject) {
		s.ask(podA, needs(10, 7), 7, 7)
		s.ask(podB, needs(10, 7), 3, 5) // and A will be asked for two
		s.ask(podA, keeps(10, 7), 7, 5)
		s.ask(podA, Ask{Limit: 10, Keep: 6, Need: 7, Want: 7}, 6, 5) // one turn has ended
		s.ask(podB, Ask{Limit: 10, Keep: 3, Need: 7, Want: 7}, 4, 5)
		s.ask(podA, Ask{Limit: 10, Keep: 5, Need: 7, Want: 7}, 5, 5)
		s.ask(podB, Ask{Limit: 10, Keep: 4, Need: 7, Want: 7}, 5, 5)
	},
	"a reserve is what nobody needs, and one stays": func(s subject) {
		s.ask(podA, Ask{Limit: 10, Need: 2, Want: 20}, 9, 9)
		s.ask(podB, needs(10, 3), 1, 3)
		s.ask(podA, Ask{Limit: 10, Keep: 9, Need: 2, Want: 20}, 9, 6)
		s.ask(podA, Ask{Limit: 10, Keep: 6, Need: 2, Want: 20}, 6, 6)
		s.ask(podB, Ask{Limit: 10, Keep: 1, Need: 3, Want: 3}, 3, 3)
	},
	"who needs little gets it, and the rest goes to the others": func(s subject) {
		s.ask(podA, needs(10, 1), 1, 1)
		s.ask(podB, needs(10, 20), 9, 9)
	},
	"what is kept is never taken, whatever the limit": func(s subject) {
		s.ask(podA, needs(8, 8), 8, 8)
		s.ask(podA, keeps(2, 8), 8, 2)
		s.ask(podB, needs(2, 1), 0, 1)
		s.ask(podA, Ask{Limit: 2, Keep: 1, Need: 3, Want: 3}, 1, 1)
		s.ask(podB, needs(2, 1), 1, 1)
	},
	"what a holder has that is not heard of is free after its life": func(s subject) {
		s.ask(podA, needs(4, 4), 4, 4)
		s.advance(lease - 6*time.Second)
		s.ask(podB, needs(4, 4), 0, 2)
		s.advance(6 * time.Second)
		s.ask(podB, needs(4, 4), 4, 4)
		s.advance(lease - 6*time.Second)
		s.ask(podB, keeps(4, 4), 4, 4)
		s.advance(6 * time.Second)
		s.ask(podA, needs(4, 4), 0, 2) // an ask is a new lease
	},
	"a short lease does not end a long one": func(s subject) {
		s.ask(podA, needs(4, 4), 4, 4)
		g := s.LeasePermits(s.t.Context(), podB, []Ask{{Name: "n", Limit: 4, Need: 1, Want: 1}}, time.Second)[0]
		s.ok(g.Err)
		s.advance(lease - 6*time.Second)
		s.ask(podB, needs(4, 4), 0, 2)
	},
	"what an earlier process of the pod had is free at once": func(s subject) {
		s.ask(podA, needs(4, 4), 4, 4)
		s.ask(podAAgain, needs(4, 1), 1, 1)
		s.ask(podB, needs(4, 3), 3, 3)
		s.ask(podA, Ask{Limit: 8, Keep: 2, Need: 4, Want: 4}, 2, 4) // it is as unknown as any other
	},
	"an ask for nothing gives all back": func(s subject) {
		s.ask(podA, needs(4, 4), 4, 4)
		s.ask(podA, Ask{Limit: 4}, 0, 0)
		s.ask(podB, needs(4, 4), 4, 4)
	},
	"a holder that the store has forgotten gets no more than it has": func(s subject) {
		s.ask(podB, Ask{Limit: 10, Keep: 3, Need: 9, Want: 9}, 3, 9)
		s.ask(podA, keeps(10, 7), 7, 5)
		s.ask(podB, Ask{Limit: 10, Keep: 3, Need: 9, Want: 9}, 3, 5)
	},
	"names have nothing to do with each other": func(s subject) {
		asks := []Ask{{Name: "x", Limit: 2, Need: 2, Want: 2}, {Name: strings.Repeat("x", MaxNoteName+1)}, {}, {Name: "y", Limit: 5, Need: 1, Want: 2}}
		got := s.LeasePermits(s.t.Context(), podA, asks, lease)
		for i, want := range []Grant{{Count: 2, Fair: 2}, {Err: ErrTooLarge}, {Err: ErrTooLarge}, {Count: 2, Fair: 2}} {
			if got[i] != want {
				s.t.Errorf("%d: %+v, want %+v", i, got[i], want)
			}
		}
		if got := s.LeasePermits(s.t.Context(), podA, nil, lease); len(got) != 0 {
			s.t.Error(got)
		}
	},
	"numbers without sense do no harm": func(s subject) {
		s.ask(podA, Ask{Limit: -5, Keep: -1, Need: -1, Want: -1}, 0, 0)
		s.ask(podA, Ask{Limit: 3, Need: 1 << 40, Want: 2}, 3, 3)
		s.ask(podB, Ask{Limit: 3, Need: 1, Want: -7}, 0, 1)
	},
	"an ask has a time, too": func(s subject) {
		ctx, cancel := context.WithCancel(s.t.Context())
		cancel()
		g := s.LeasePermits(ctx, podA, []Ask{{Name: "n", Limit: 1, Need: 1, Want: 1}}, lease)[0]
		if !errors.Is(g.Err, ErrUnavailable) || g.Count != 0 {
			s.t.Fatalf("%+v", g)
		}
		s.ask(podB, needs(1, 1), 1, 1)
	},
}

func TestB81_AnAccountWithLessThanOneForEachGoesRound(t *testing.T) {
	clock := newClock()
	m := NewMemory(clock.read)
	holders := []Holder{podA, podB, {Pod: "c", Process: "c1"}}
	had := map[string]int{}
	for range 4 * len(holders) {
		clock.advance(permitTurn)
		sum := 0
		for range 2 { // from the second round on all are known
			sum = 0
			for _, h := range holders {
				g := m.LeasePermits(t.Context(), h, []Ask{{Name: "n", Limit: 2, Need: 9, Want: 9}}, lease)[0]
				must(t, g.Err)
				sum += g.Fair
				had[h.Pod] += g.Fair
			}
		}
		if sum != 2 {
			t.Fatalf("%d of 2", sum)
		}
	}
	if had["a"] != had["b"] && had["b"] != had["c"] {
		t.Fatal(had)
	}
}

func TestSharesAreEven(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test repeats itself
	for range 20_000 {
		limit, window := random.IntN(20), random.Int64N(9)
		var all []holding
		needed := 0
		for i := range random.IntN(6) {
			all = append(all, holding{pod: fmt.Sprint("p", i), need: random.IntN(10)})
			needed += all[i].need
		}
		shares := even(limit, slices.Clone(all), window)
		sum := 0
		for _, h := range all {
			share := shares[h.pod]
			sum += share
			if share > h.need {
				t.Fatalf("limit %d, %+v: %v", limit, all, shares)
			}
			for _, o := range all {
				if share < h.need && shares[o.pod] > share+1 {
					t.Fatalf("limit %d, %+v: %v, and %s gets less than %s", limit, all, shares, h.pod, o.pod)
				}
			}
		}
		if sum != min(limit, needed) {
			t.Fatalf("limit %d, %+v: %v", limit, all, shares)
		}
	}
}

// permitWalk is a world of holders that obey, and of their turns.
type permitWalk struct {
	random *rand.Rand
	limit  int
	// allowed is what each may use, used what it does, waiting what it would.
	allowed, used, waiting []int
}

func newPermitWalk(seed uint64, holders int) *permitWalk {
	random := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // a test repeats itself
	return &permitWalk{random, 1 + random.IntN(12), make([]int, holders), make([]int, holders), make([]int, holders)}
}

// next lets one holder's turns come and go, and makes its ask.
func (w *permitWalk) next() (i int, a Ask) {
	i = w.random.IntN(len(w.used))
	w.used[i] -= w.random.IntN(w.used[i] + 1)
	w.waiting[i] = w.random.IntN(6)
	for w.waiting[i] > 0 && w.used[i] < w.allowed[i] {
		w.waiting[i]--
		w.used[i]++
	}
	need := w.used[i] + w.waiting[i]
	return i, Ask{Name: "n", Limit: w.limit, Keep: max(w.allowed[i], w.used[i]), Need: need, Want: need + w.random.IntN(3)}
}

func (w *permitWalk) take(t *testing.T, i int, g Grant) {
	t.Helper()
	w.allowed[i] = min(g.Count, g.Fair)
	sum := 0
	for j, n := range w.allowed {
		sum += max(n, w.used[j])
	}
	if g.Err != nil || sum > w.limit {
		t.Fatalf("limit %d, allowed %v, used %v: %+v", w.limit, w.allowed, w.used, g)
	}
}

func TestB81_HoldersThatObeyNeverExceedTheLimit(t *testing.T) {
	for seed := range uint64(300) {
		clock := newClock()
		m := NewMemory(clock.read)
		w := newPermitWalk(seed, 1+int(seed%5))
		for range 200 {
			clock.advance(100 * time.Millisecond)
			i, a := w.next()
			w.take(t, i, m.LeasePermits(t.Context(), Holder{Pod: fmt.Sprint(i), Process: "p"}, []Ask{a}, time.Hour)[0])
		}
	}
}

// What is decided in Lua is what is decided in Go.
func TestRedisSharesOutAsMemoryDoes(t *testing.T) {
	srv := startServer(t)
	c := srv.client()
	for seed := range uint64(20) {
		clock := newClock()
		m, r := NewMemory(clock.read), srv.store(t)
		w := newPermitWalk(seed, 1+int(seed%5))
		for range 100 {
			i, a := w.next()
			me := Holder{Pod: fmt.Sprint("p", i), Process: "p"}
			clock.now = c.Time(t.Context()).Val()
			got := r.LeasePermits(t.Context(), me, []Ask{a}, time.Hour)[0]
			want := m.LeasePermits(t.Context(), me, []Ask{a}, time.Hour)[0]
			if later := c.Time(t.Context()).Val(); got != want && later.Unix()/5 != clock.now.Unix()/5 {
				break // the odd permit went on to the next between the two
			}
			if got != want {
				t.Fatalf("seed %d, %+v: Redis says %+v, memory %+v", seed, a, got, want)
			}
			w.take(t, i, got)
		}
	}
}

func TestForeignHoldersCountForNothing(t *testing.T) {
	srv := startServer(t)
	c := srv.client()
	for name, value := range map[string]string{
		"text": "hello", "over": "1 0 3 3 p", "a count beyond all": "9000000000000 0 99999999 1 p", "no process": "9000000000000 0 3 3",
	} {
		t.Run(name, func(t *testing.T) {
			s := subject{srv.store(t), t, nil}
			must(t, c.HSet(t.Context(), s.Backend.(*redisStore).permits("n"), "foreign", value).Err())
			s.ask(podA, needs(4, 4), 4, 4)
		})
	}
	t.Run("another type", func(t *testing.T) {
		s := subject{srv.store(t), t, nil}
		must(t, c.Set(t.Context(), s.Backend.(*redisStore).permits("n"), "x", 0).Err())
		s.ask(podA, needs(4, 4), 4, 4)
	})
}

func TestPermitsSurviveAServerWithoutScripts(t *testing.T) {
	srv := startServer(t)
	s := subject{srv.store(t), t, nil}
	s.ask(podA, needs(4, 1), 1, 1)
	must(t, srv.client().ScriptFlush(t.Context()).Err())
	s.ask(podB, needs(4, 3), 3, 3)
	srv.kill()
	g := s.LeasePermits(t.Context(), podA, []Ask{{Name: "n"}, {Name: "m"}}, lease)
	for i := range g {
		if !errors.Is(g[i].Err, ErrUnavailable) {
			t.Errorf("%d: %+v", i, g[i])
		}
	}
}
