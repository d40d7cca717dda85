package account

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// ledger counts what turns hold, apart from the registry.
type ledger struct {
	t  *testing.T
	mu sync.Mutex
	// limits and held by the name of an account or a lane.
	limits, held map[string]int
	served       map[string]int
}

func (g *ledger) take(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[name]++
	if g.held[name] > g.limits[name] {
		g.t.Errorf("%s: %d at once, limit %d", name, g.held[name], g.limits[name])
	}
}

func (g *ledger) give(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[name]--
}

func (g *ledger) count(what string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.served[what]++
}

// turns is one client's life: turns with random needs, that last a random time, go
// to another account in the middle, are cancelled while they wait, or give things
// back twice and at the same moment.
func (g *ledger) turns(ctx context.Context, r *Registry, random *rand.Rand, client string) {
	pause := func(most int) { <-time.After(time.Duration(random.IntN(most)+1) * time.Millisecond) }
	for range 40 {
		w := Want{Client: client, Lane: bulkhead.Lanes()[random.IntN(3)]}
		switch random.IntN(4) {
		case 0:
			w.Only = []string{"a", "b", "c"}[random.IntN(3)]
		case 1:
			w.Prefer, w.Exclude = "b", []string{"c"}
		default:
		}
		patience := 20 * time.Second
		if random.IntN(5) == 0 {
			patience = time.Duration(random.IntN(20)) * time.Millisecond
		}
		waiting, cancel := context.WithTimeout(ctx, patience)
		l, err := r.Acquire(waiting, w)
		cancel()
		if err != nil {
			if c := code(err); patience == 20*time.Second && (c == failure.QueueTimeout || c == failure.BulkheadFull) {
				g.t.Errorf("%s starves: %v", client, err)
			}
			continue
		}
		g.count(client)
		g.run(ctx, r, random, w, l, pause)
		pause(5)
	}
}

func (g *ledger) run(ctx context.Context, r *Registry, random *rand.Rand, w Want, l *Lease, pause func(int)) {
	place, name := w.Lane.String(), l.Account().Name
	g.take(place)
	g.take(name)
	pause(30)
	if random.IntN(4) == 0 { // one that never heard of permits
		g.give(name)
		g.give(place)
		both(l.Release)
		return
	}
	permit := l.Permit()
	g.give(name)
	both(l.Release)
	if random.IntN(2) == 0 {
		again, err := r.Acquire(ctx, Want{Client: w.Client, Exclude: []string{name}, Permit: permit})
		if err == nil {
			g.take(again.Account().Name)
			pause(30)
			g.give(again.Account().Name)
			both(again.Release)
		}
	}
	pause(10) // the last bytes
	g.give(place)
	both(permit.Release)
}

// both does something twice at once.
func both(do func()) {
	var wg sync.WaitGroup
	wg.Go(do)
	wg.Go(do)
	wg.Wait()
}

func TestRandomTurnsKeepWithinEveryLimit(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := bounded(runtime(bundle.StrategyLeastLoaded, enabled("a", 2), enabled("b", 3), enabled("c", 1)),
					lane(bulkhead.HTTP, 4, 100), lane(bulkhead.WebSocket, 3, 100), lane(bulkhead.Compact, 1, 100))
				r := registry(rt)
				g := &ledger{t: t, held: map[string]int{}, served: map[string]int{},
					limits: map[string]int{"a": 2, "b": 3, "c": 1, "HTTP": 4, "WebSocket": 3, "Compact": 1}}
				var wg sync.WaitGroup
				for i := range 64 {
					wg.Go(func() {
						random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // repeatable
						g.turns(t.Context(), r, random, fmt.Sprint("client ", i%12))
					})
				}
				ended := make(chan struct{})
				go func() { // things change meanwhile
					for {
						select {
						case <-ended:
							return
						case <-time.After(50 * time.Millisecond):
							r.CoolDown("b", time.Now().Add(20*time.Millisecond), ReasonConnectFailed)
							r.Update(rt)
						}
					}
				}()
				wg.Wait()
				close(ended)
				<-time.After(time.Minute)
				empty(t, r)
				for i := range 12 {
					if n := g.served[fmt.Sprint("client ", i)]; n < 100 {
						t.Errorf("client %d was served %d times", i, n)
					}
				}
			})
		})
	}
}

// A client that has many turns at once, against one that has one at a time: of
// equal shares, nobody gets more.
func TestSharesAreEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(bounded(runtime("", enabled("a", 4)), lane(bulkhead.HTTP, 10, 400)))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		g := &ledger{t: t, held: map[string]int{}, served: map[string]int{}, limits: map[string]int{}}
		var wg sync.WaitGroup
		for client, at := range map[string]int{"greedy": 100, "small": 8, "other": 8} {
			for range at {
				wg.Go(func() {
					for ctx.Err() == nil {
						l, err := r.Acquire(ctx, Want{Client: client})
						if err != nil {
							if code(err) != failure.QueueTimeout {
								t.Error(err)
							}
							continue
						}
						g.count(client)
						<-time.After(100 * time.Millisecond)
						l.Release()
					}
				})
			}
		}
		wg.Wait()
		empty(t, r)
		for client, n := range g.served {
			if n < 1200 || n > 1450 { // a third of 4,000
				t.Errorf("%s was served %d of 4,000 turns", client, n)
			}
		}
	})
}

// BenchmarkRelease is a turn that ends while thousands wait for another account.
func BenchmarkRelease(b *testing.B) {
	rt := bounded(runtime(bundle.StrategyLeastLoaded), bundle.Bulkhead{Lane: "HTTP"})
	for i := range 50 {
		rt.Bundle.Pool.Accounts = append(rt.Bundle.Pool.Accounts, enabled(fmt.Sprint("a", i), 1))
		rt.Credentials.Accounts[fmt.Sprint("a", i)] = bundle.Credential{APIKey: "sk"}
	}
	r := registry(rt)
	for i := range 49 {
		if _, err := r.Acquire(b.Context(), Want{Only: fmt.Sprint("a", i)}); err != nil {
			b.Fatal(err)
		}
	}
	r.mu.Lock()
	for i := range 5000 {
		if o, _ := r.queue(Want{Client: fmt.Sprint(i % 100), Only: fmt.Sprint("a", i%49)}, r.clock.Now()); o.refuse != nil {
			b.Fatal(o.refuse)
		}
	}
	r.mu.Unlock()
	for b.Loop() {
		l, err := r.Acquire(b.Context(), Want{Only: "a49"})
		if err != nil {
			b.Fatal(err)
		}
		l.Release()
	}
}
