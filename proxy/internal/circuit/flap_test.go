package circuit

import (
	"container/heap"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// world is virtual time: events in order, and nothing sleeps.
type world struct {
	clock  *fakeClock
	start  time.Time
	events agenda
	number int
}

type happening struct {
	at     time.Time
	number int // of equal times the earlier plan comes first
	do     func()
}

type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	if a[i].at.Equal(a[j].at) {
		return a[i].number < a[j].number
	}
	return a[i].at.Before(a[j].at)
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func newWorld() *world {
	start := time.Unix(1_800_000_000, 0)
	return &world{clock: &fakeClock{now: start}, start: start}
}

func (w *world) in(d time.Duration, do func()) {
	w.number++
	heap.Push(&w.events, happening{w.clock.Now().Add(d), w.number, do})
}

func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && !w.events[0].at.After(w.start.Add(until)) {
		h := heap.Pop(&w.events).(happening)
		w.clock.step(h.at.Sub(w.clock.Now()))
		h.do()
	}
}

func (w *world) elapsed() time.Duration { return w.clock.Now().Sub(w.start) }

// flap is an upstream that fails for a while, and three replicas before it.
type flap struct {
	*world
	random   *rand.Rand
	replicas []*Routes
	from, to time.Duration

	turns, wasted int             // of the time of the flap, after the first opening
	opened        []time.Duration // per replica: the first opening
	closed        []time.Duration // per replica: since when every turn has gone through
	probes        [][]time.Duration
}

func newFlap(seed uint64) *flap {
	f := &flap{world: newWorld(), random: rand.New(rand.NewPCG(seed, 1)), from: 2 * time.Minute, to: 7 * time.Minute}
	for range 3 {
		r := New(Options{Clock: f.clock, Salt: f.random.Uint64(), Log: slog.New(slog.DiscardHandler), Metrics: &counts{changes: map[string]int{}}})
		r.Update(defaults(), 8)
		f.replicas = append(f.replicas, r)
	}
	f.opened, f.closed, f.probes = make([]time.Duration, 3), make([]time.Duration, 3), make([][]time.Duration, 3)
	return f
}

func (f *flap) between(low, high time.Duration) time.Duration {
	return low + time.Duration(f.random.Int64N(int64(high-low)))
}

func (f *flap) flapping() bool { return f.elapsed() >= f.from && f.elapsed() < f.to }

// arrive plans turns, as many a second on average over all replicas.
func (f *flap) arrive(perSecond float64) {
	f.in(time.Duration(f.random.ExpFloat64()/perSecond*float64(time.Second)), func() {
		f.turn(f.random.IntN(3))
		f.arrive(perSecond)
	})
}

func (f *flap) turn(replica int) {
	r := f.replicas[replica]
	caller, account := fmt.Sprint("caller", f.random.IntN(40)), fmt.Sprint("account", f.random.IntN(8))
	halfOpen := f.state(replica) == HalfOpen
	late := f.opened[0]+f.opened[1]+f.opened[2] > 0 && f.flapping()
	if late {
		f.turns++
	}
	p, refusal := r.Permit(route, caller)
	if refusal != nil {
		f.closed[replica] = 0
		if f.opened[replica] == 0 {
			f.opened[replica] = f.elapsed()
		}
		return
	}
	switch {
	case halfOpen:
		f.probes[replica] = append(f.probes[replica], f.elapsed())
		f.closed[replica] = 0
	case f.closed[replica] == 0:
		f.closed[replica] = f.elapsed()
	}
	if f.flapping() && f.random.IntN(10) < 6 {
		if late {
			f.wasted++
		}
		k := []outcome.Kind{outcome.Overloaded, outcome.ServerError, outcome.CutEventless, outcome.Unavailable}[f.random.IntN(4)]
		f.in(f.between(50*time.Millisecond, 1500*time.Millisecond), func() { p.Done(k, account) })
		return
	}
	first := f.between(300*time.Millisecond, 3*time.Second)
	f.in(first, p.Event)
	f.in(first+f.between(2*time.Second, 40*time.Second), func() { p.Done(outcome.OK, account) })
}

func (f *flap) state(replica int) State {
	for _, s := range f.replicas[replica].States() {
		return s.State
	}
	return Closed
}

// share tells the replicas once a second what is open at the others.
func (f *flap) share() {
	f.in(time.Second, func() {
		for i, r := range f.replicas {
			for j, other := range f.replicas {
				if i != j {
					other.Hint(r.Snapshot())
				}
			}
		}
		f.share()
	})
}

// The upstream fails three of five requests for five minutes, and heals.
func TestFlap_SixtyPercentForFiveMinutes(t *testing.T) {
	// The longest open time, and as much again as a tick, two probes and their first
	// events take.
	const bound = 300*time.Second + 15*time.Second
	for perSecond, within := range map[float64]time.Duration{
		6:  20 * time.Second, // two a second at each replica: a sample is rare
		20: 10 * time.Second,
		60: 10 * time.Second,
	} {
		together, all := 0, 0
		for seed := range uint64(max(2, 120/perSecond/2)) {
			f := newFlap(seed)
			f.arrive(perSecond)
			f.share()
			f.run(f.to + bound + time.Minute)
			for i, at := range f.opened {
				if at == 0 || at < f.from || at > f.from+within {
					t.Errorf("%v/s, seed %d: replica %d opened %v after the upstream began to fail", perSecond, seed, i, at-f.from)
				}
			}
			if f.wasted*20 > f.turns {
				t.Errorf("%v/s, seed %d: %d of %d turns were wasted after the first opening", perSecond, seed, f.wasted, f.turns)
			}
			for i, at := range f.closed {
				if at == 0 || at > f.to+bound {
					t.Errorf("%v/s, seed %d: replica %d closed %v after the upstream healed", perSecond, seed, i, at-f.to)
				}
			}
			x, y := f.inStep()
			together, all = together+x, all+y
			if testing.Verbose() {
				t.Logf("%v/s, seed %d: opened at %v, wasted %d of %d, closed at %v", perSecond, seed, f.opened, f.wasted, f.turns, f.closed)
			}
		}
		if together*3 > all { // in step, each would have two siblings
			t.Errorf("%v/s: %d of %d probes came within half a second of a sibling's", perSecond, together, all)
		}
	}
}

// inStep counts the probes that came within half a second of one of another
// replica.
func (f *flap) inStep() (together, all int) {
	for i, mine := range f.probes {
		for _, p := range mine {
			all++
			for j, others := range f.probes {
				for _, o := range others {
					if i != j && (p-o).Abs() < 500*time.Millisecond {
						together++
					}
				}
			}
		}
	}
	return together, all
}

// Three replicas whose circuits open in the same instant, before an upstream that
// stays dead: their probes spread out.
func TestFlap_ProbesAreNotInStep(t *testing.T) {
	together, all := 0, 0
	for seed := range uint64(20) {
		f := newFlap(seed)
		f.from, f.to = 0, 0
		var tick func(replica int)
		tick = func(replica int) {
			halfOpen := f.state(replica) == HalfOpen
			if p, refusal := f.replicas[replica].Permit(route, fmt.Sprint("caller", f.number%2)); refusal == nil {
				p.Done(outcome.ServerError, fmt.Sprint("account", f.number%2))
				if halfOpen {
					f.probes[replica] = append(f.probes[replica], f.elapsed())
				}
			}
			f.in(200*time.Millisecond, func() { tick(replica) })
		}
		for i := range f.replicas {
			tick(i)
		}
		f.run(10 * time.Minute)
		x, y := f.inStep()
		together, all = together+x, all+y
	}
	if all < 250 || together*6 > all {
		t.Errorf("%d of %d probes came within half a second of a sibling's", together, all)
	}
}
