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

// model is a second, slower circuit, written from the rules: it keeps every
// sample and derives everything from them.
type model struct {
	p       Policy
	salt    uint64
	state   State
	until   time.Time
	opened  int
	closed  time.Time // when it closed last
	period  int
	samples []modelSample
	limits  []modelSample
	seen    map[string]time.Time
	probes  map[*modelPermit]time.Time // end of the lease
	good    int
	lapsed  int // the period whose probes were given up, while nothing newer decided
	closers int // the period whose probes closed it
	hinted  time.Time
}

type modelSample struct {
	at              time.Time
	start, ok, wire bool
	counted         bool // a limit that is a failure already
	account, caller string
}

type modelPermit struct {
	period             int
	probe, event, good bool
	caller             string
}

func (m *model) enter(s State) {
	m.state, m.period, m.closers = s, m.period+1, 0
	m.samples, m.limits, m.seen, m.probes, m.good = nil, nil, map[string]time.Time{}, map[*modelPermit]time.Time{}, 0
}

func (m *model) open(at time.Time) {
	if m.state == Closed && at.Sub(m.closed) > m.p.Window+m.p.MaxOpen {
		m.opened = 0
	}
	m.opened++
	m.until, m.lapsed = at.Add(m.p.openFor(m.opened, m.salt)), 0
	m.enter(Open)
}

func (m *model) close(now time.Time, by int) {
	m.closed, m.lapsed, m.hinted = now, 0, time.Time{}
	m.enter(Closed)
	m.closers = by
}

func (m *model) time(now time.Time) {
	if m.state == HalfOpen {
		var first time.Time
		for _, end := range m.probes {
			if !end.After(now) && (first.IsZero() || end.Before(first)) {
				first = end
			}
		}
		if !first.IsZero() {
			p := m.period
			m.open(first)
			m.lapsed = p
		}
	}
	if m.state == Open && !m.until.After(now) {
		m.enter(HalfOpen)
	}
}

func (m *model) permit(caller string, now time.Time) *modelPermit {
	m.time(now)
	p := &modelPermit{period: m.period, caller: caller}
	switch m.state {
	case Open:
		return nil
	case HalfOpen:
		if len(m.probes) == m.p.HalfOpenMax {
			return nil
		}
		p.probe = true
		m.probes[p] = now.Add(m.p.Verdict)
	case Closed:
		m.seen[caller] = now
	}
	return p
}

func (m *model) mine(p *modelPermit) bool {
	return m.state == Closed && (p.period == m.period || p.good && p.period == m.closers)
}

func (m *model) verdict(p *modelPermit, v outcome.Probe, now time.Time) {
	p.good = v == outcome.ProbeSuccess
	if m.state != HalfOpen || p.period != m.period {
		if p.good && p.period == m.lapsed {
			m.close(now, p.period)
		}
		return
	}
	delete(m.probes, p)
	switch v {
	case outcome.ProbeNeutral:
	case outcome.ProbeFailure:
		m.open(now)
	case outcome.ProbeSuccess:
		m.lapsed = 0
		if m.good++; m.good == m.p.Successes {
			m.close(now, p.period)
		}
	}
}

func (m *model) event(p *modelPermit, now time.Time) {
	m.time(now)
	if p.event {
		return
	}
	if p.probe {
		p.event = true
		m.verdict(p, outcome.ProbeSuccess, now)
	} else if m.mine(p) {
		p.event = true
		m.limits = nil
		m.samples = append(m.samples, modelSample{at: now, start: true, ok: true})
	}
}

func (m *model) done(p *modelPermit, k outcome.Kind, account string, now time.Time) {
	m.time(now)
	if p.probe && !p.event {
		m.verdict(p, k.Effect().Probe, now)
		return
	}
	if !m.mine(p) {
		return
	}
	s := modelSample{at: now, account: account, caller: p.caller, wire: direct(k)}
	switch k.Effect().Route {
	case outcome.RouteNeutral:
		return
	case outcome.RouteSuccess:
		m.limits, s.ok = nil, true
		m.add(s, !p.event)
		if now.Sub(m.closed) >= m.p.Window {
			m.opened = 0
		}
		return
	case outcome.RouteCounted:
		m.add(s, !p.event)
	case outcome.RouteIfMany:
		m.limits = slices.DeleteFunc(append(m.limits, s), func(l modelSample) bool { return now.Sub(l.at) >= limitMemory })
		accounts := map[string]bool{}
		for _, l := range m.limits {
			accounts[l.account] = true
		}
		if len(accounts) < max(2, m.p.MinAccounts) {
			return
		}
		for i := range m.limits {
			if l := m.limits[i]; !l.counted {
				m.limits[i].counted, l.at = true, now
				m.add(l, !p.event)
			}
		}
	}
	if m.hinted.After(now) || m.bad(true, now) || m.bad(false, now) {
		m.open(now)
	}
}

func (m *model) add(s modelSample, start bool) {
	if start {
		x := s
		x.start = true
		m.samples = append(m.samples, x)
	}
	m.samples = append(m.samples, s)
}

// bad judges one side of the samples.
func (m *model) bad(start bool, now time.Time) bool {
	var side []modelSample
	for _, s := range m.samples {
		if s.start == start {
			side = append(side, s)
		}
	}
	failures := func(of []modelSample) (n, wire, accounts, callers int) {
		a, c := map[string]bool{}, map[string]bool{}
		for _, s := range of {
			if s.ok {
				continue
			}
			n++
			if s.wire {
				wire++
			}
			a[s.account], c[s.caller] = true, true
		}
		return n, wire, len(a), len(c)
	}
	active := 0
	for _, at := range m.seen {
		if now.Sub(at) <= m.p.Window {
			active++
		}
	}
	spread := func(accounts, callers int) bool {
		return accounts >= min(m.p.MinAccounts, m.p.Accounts) && callers >= min(m.p.MinCallers, max(1, active))
	}
	run := side
	for i, s := range side {
		if s.ok {
			run = side[i+1:]
		}
	}
	n, wire, accounts, callers := failures(run)
	if wire >= m.p.Consecutive || n >= m.p.Consecutive && spread(accounts, callers) {
		return true
	}
	in := func(of []modelSample, d time.Duration) []modelSample {
		return slices.DeleteFunc(slices.Clone(of), func(s modelSample) bool { return now.Sub(s.at) > d })
	}
	_, _, accounts, callers = failures(in(side, m.p.Window))
	share := func(of []modelSample, least int) bool {
		n, wire, _, _ := failures(of)
		enough := func(n int) bool { return len(of) >= least && n*100 >= m.p.Percent*len(of) }
		return enough(wire) || enough(n) && spread(accounts, callers)
	}
	return share(m.buckets(side, buckets, m.p.Window, now), m.p.MinSamples) ||
		share(m.buckets(side, newest, m.p.Window*newest/buckets, now), 2*m.p.MinSamples)
}

// buckets are the samples of the newest n buckets that began at most d ago. A
// bucket begins with a sample and takes all of a twelfth of the window.
func (m *model) buckets(side []modelSample, n int, d time.Duration, now time.Time) []modelSample {
	var starts []int
	for i, s := range side {
		if len(starts) == 0 || s.at.Sub(side[starts[len(starts)-1]].at) >= m.p.Window/buckets {
			starts = append(starts, i)
		}
	}
	from := len(side)
	for _, i := range slices.Backward(starts[max(0, len(starts)-n):]) {
		if now.Sub(side[i].at) <= d {
			from = i
		}
	}
	return side[from:]
}

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
