package circuit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// both is a circuit and its model, which get the same commands in the same order.
type both struct {
	mu    sync.Mutex
	b     Breaker
	m     model
	p     Policy
	now   time.Time
	log   []string
	wrong string
}

type bothPermit struct {
	t Ticket
	m *modelPermit
}

func (x *both) note(format string, args ...any) {
	x.log = append(x.log, fmt.Sprintf(format, args...))
	if len(x.log) > 60 {
		x.log = x.log[1:]
	}
	if n := len(x.b.probes); n > x.p.HalfOpenMax || n > 0 && x.b.state != HalfOpen {
		x.fail(fmt.Sprintf("%d probes in state %v", n, x.b.state))
	}
	if x.b.state != x.m.state || x.b.state == Open && !x.b.until.Equal(x.m.until) || x.b.opened != x.m.opened || len(x.b.probes) != len(x.m.probes) {
		x.fail(fmt.Sprintf("circuit: %v until %v, opened %d, %d probes; model: %v until %v, opened %d, %d probes", x.b.state, x.b.until.Unix(),
			x.b.opened, len(x.b.probes), x.m.state, x.m.until.Unix(), x.m.opened, len(x.m.probes)))
	}
}

func (x *both) fail(why string) {
	if x.wrong == "" {
		x.wrong = why + "\n" + strings.Join(x.log, "\n")
	}
}

var kindsOfModel = []outcome.Kind{outcome.OK, outcome.OK, outcome.OK, outcome.ServerError, outcome.ConnectFailed, outcome.Truncated, outcome.RateLimited,
	outcome.CallerError, outcome.CallerGone, outcome.Shed, outcome.Overloaded, outcome.QuotaExhausted, outcome.FirstEventTimeout, outcome.Incomplete}

// worker is one of many callers: it asks, waits, and reports what it likes.
func (x *both) worker(r *rand.Rand, caller string, steps int, good int) {
	var held []bothPermit
	for range steps {
		x.mu.Lock()
		x.now = x.now.Add(time.Duration(r.IntN(300)) * time.Millisecond)
		if r.IntN(500) == 0 {
			x.now = x.now.Add(time.Duration(r.IntN(400)) * time.Second)
		}
		id := uint64(caller[len(caller)-1])
		switch {
		case len(held) == 0 || len(held) < 5 && r.IntN(3) == 0:
			t, _, _, ok := x.b.Admit(x.p, id, x.now)
			m := x.m.permit(caller, x.now)
			x.note("%d %s admitted %v", x.now.UnixMilli(), caller, ok)
			if ok != (m != nil) || ok && (t.probe != 0) != m.probe {
				x.fail(fmt.Sprintf("admitted %v, the model %v", ok, m != nil))
			}
			if ok {
				held = append(held, bothPermit{t, m})
			}
		case r.IntN(3) == 0:
			h := &held[r.IntN(len(held))]
			x.b.Event(x.p, &h.t, x.now)
			x.m.event(h.m, x.now)
			x.note("%d %s event of period %d, probe %d", x.now.UnixMilli(), caller, h.t.epoch, h.t.probe)
		case r.IntN(1000) == 0:
			x.b.Tick(x.p, x.now)
			x.m.time(x.now)
			x.b.Hint(x.now)
			if x.m.state == Closed {
				x.m.hinted = x.now.Add(hintLife)
			}
			x.note("%d hint", x.now.UnixMilli())
		default:
			i := r.IntN(len(held))
			k := kindsOfModel[r.IntN(len(kindsOfModel))]
			if r.IntN(100) < good {
				k = outcome.OK
			}
			account := r.IntN(3)
			x.b.Done(x.p, &held[i].t, k, uint64(1+account), x.now)
			x.m.done(held[i].m, k, fmt.Sprint(account), x.now)
			x.note("%d %s %v of period %d, probe %d, account %d", x.now.UnixMilli(), caller, k, held[i].t.epoch, held[i].t.probe, account)
			held = slices.Delete(held, i, i+1)
		}
		stop := x.wrong != ""
		x.mu.Unlock()
		if stop {
			return
		}
	}
}

// T17: 64 callers report in any order; at every step the circuit is where the
// reference says.
func TestT17_AgainstTheModel(t *testing.T) {
	moved := map[State]int{}
	for seed := range uint64(6) {
		b := defaults()
		b.HalfOpenMaxCalls, b.SuccessThreshold = 1+int(seed%3), 1+int(seed%2)
		b.ConsecutiveFailures = []int{5, 100}[seed%2]
		b.ProbeVerdictSeconds = []int{30, 2, 5}[seed%3]
		b.MinDistinctAccounts, b.MinDistinctCallers = 1+int(seed%3), 1+int(seed%4)
		x := &both{p: PolicyOf(b, 3), now: time.Unix(1_800_000_000, 0), b: Breaker{Salt: seed}}
		x.m = model{p: x.p, salt: seed, seen: map[string]time.Time{}, probes: map[*modelPermit]time.Time{}, period: 1}
		var all sync.WaitGroup
		for w := range 64 {
			all.Go(func() {
				x.worker(rand.New(rand.NewPCG(seed, uint64(w))), "caller"+string(rune('A'+w)), 100, []int{0, 50, 80}[seed%3])
			})
		}
		all.Wait()
		if x.wrong != "" {
			t.Fatalf("seed %d: %s", seed, x.wrong)
		}
		for _, c := range x.b.Changes() {
			moved[c.To]++
		}
	}
	for _, s := range []State{Closed, Open, HalfOpen} {
		if moved[s] < 8 {
			t.Errorf("the circuits went to %v %d times only: the test sees little", s, moved[s])
		}
	}
}

// T17: the registry under 64 goroutines that nobody keeps in order.
func TestT17_RegistryUnderLoad(t *testing.T) {
	b := defaults()
	b.HalfOpenMaxCalls, b.ConsecutiveFailures, b.MinDistinctCallers = 3, 2, 1
	r := newRig(t, b, 2)
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(17, uint64(w)))
			for range 150 {
				r.clock.step(time.Duration(random.IntN(200)) * time.Millisecond)
				p, refusal := r.routes.Permit(route, fmt.Sprint("caller", w))
				if refusal != nil {
					continue
				}
				if random.IntN(2) == 0 {
					p.Event()
				}
				k := kindsOfModel[random.IntN(len(kindsOfModel))]
				var twice sync.WaitGroup // an end is often seen by two
				twice.Go(func() { p.Done(k, fmt.Sprint("account", w%2)) })
				p.Done(k, fmt.Sprint("account", w%2))
				twice.Wait()
				for _, s := range r.routes.States() {
					if s.State > HalfOpen {
						t.Errorf("%+v", s)
					}
				}
				r.routes.mu.Lock()
				for _, c := range r.routes.breakers {
					if n := len(c.probes); n > 3 {
						t.Errorf("%d probes", n)
					}
				}
				r.routes.mu.Unlock()
				if random.IntN(100) == 0 {
					r.routes.Hint([]Entry{{Key: route.String(), State: "open", Until: r.clock.Now().Add(time.Minute)}})
					r.routes.Update(b, 2)
					_ = r.routes.Snapshot()
				}
			}
		})
	}
	all.Wait()
	// Whatever happened, it gets well again.
	for i := 0; r.status().State != Closed && i < 10; i++ {
		r.clock.step(10 * time.Minute)
		r.is(HalfOpen)
		r.permit("x").Event()
		if r.status().State != Closed {
			r.permit("x").Event()
		}
	}
	r.is(Closed)
}

// FuzzBreaker: any order of commands, one byte each, against the model.
func FuzzBreaker(f *testing.F) {
	f.Add([]byte("aaaaaaaaaabbbbbbbbbbzzzzzzzzzzccccc"), uint8(0))
	f.Add([]byte{0, 3, 0, 3, 0, 3, 0, 3, 0, 3, 250, 250, 250, 0, 1, 0, 1, 2, 2}, uint8(3))
	f.Fuzz(func(t *testing.T, commands []byte, config uint8) {
		p := PolicyOf(fuzzed(config), 1+int(config%3))
		x := &both{p: p, now: time.Unix(1_800_000_000, 0)}
		x.m = model{p: p, seen: map[string]time.Time{}, probes: map[*modelPermit]time.Time{}, period: 1}
		var held []bothPermit
		for i, c := range commands[:min(len(commands), 600)] {
			r := rand.New(rand.NewPCG(uint64(c), uint64(i)))
			x.now = x.now.Add(time.Duration(c%7) * 400 * time.Millisecond)
			if c > 240 {
				x.now = x.now.Add(time.Duration(c-240) * 5 * time.Second)
			}
			caller := "caller" + string(rune('A'+c%5))
			if len(held) == 0 || c%3 == 0 {
				tk, _, _, ok := x.b.Admit(p, uint64(1+c%5), x.now)
				m := x.m.permit(caller, x.now)
				x.note("admit %v", ok)
				if ok != (m != nil) {
					x.fail("admitted by one only")
				} else if ok {
					held = append(held, bothPermit{tk, m})
				}
			} else if h := &held[r.IntN(len(held))]; c%3 == 1 {
				x.b.Event(p, &h.t, x.now)
				x.m.event(h.m, x.now)
				x.note("event")
			} else {
				k := kindsOfModel[r.IntN(len(kindsOfModel))]
				account := int(c>>3) % 3
				x.b.Done(p, &h.t, k, uint64(1+account), x.now)
				x.m.done(h.m, k, fmt.Sprint(account), x.now)
				x.note("done %v", k)
				*h = held[len(held)-1]
				held = held[:len(held)-1]
			}
			if x.wrong != "" {
				t.Fatal(x.wrong)
			}
		}
	})
}

func fuzzed(config uint8) bundle.Breaker {
	b := defaults()
	b.HalfOpenMaxCalls, b.SuccessThreshold = 1+int(config>>2&3), 1+int(config>>4&1)
	b.ConsecutiveFailures, b.MinSamples, b.ProbeVerdictSeconds = 1+int(config>>5), 5, 3
	return b
}
