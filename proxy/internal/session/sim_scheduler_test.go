package session

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// sim is a whole world on one goroutine: replicas with real registries and real
// actors, a store, upstream accounts and clients. Whatever could happen at once in
// the real world is a task here, and a seed decides which one is next.
type sim struct {
	seed  uint64
	rng   *rand.Rand
	plan  simPlan
	now   time.Time
	due   simHeap
	ready []*simTask
	steps int
	still int // steps since the clock moved
	order uint64
	trace simTrace

	up     *simUpstream
	shared *simShared
	pods   []*simPod
	talks  []*simTalk
	asks   map[string]*simAsk
	judged map[string]bool // attempts that have their verdict
	// blocked says that the work which runs now has to be tried again later.
	blocked bool
	healed  bool
	// healedAt is when all faults stopped.
	healedAt time.Time
	counts   simCounts
}

// simCounts say how much of what is to be tested has happened at all.
type simCounts map[string]int

// simTask is one thing that can happen. proc is the process in which it does: it
// waits while that one is paused and vanishes with it.
type simTask struct {
	proc  *simProc
	name  string
	run   func()
	at    time.Time
	order uint64
}

type simHeap []*simTask

func (h simHeap) Len() int { return len(h) }
func (h simHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].order < h[j].order
}
func (h simHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *simHeap) Push(x any)   { *h = append(*h, x.(*simTask)) }
func (h *simHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// soon makes a task that can happen from now on.
func (s *sim) soon(p *simProc, name string, run func()) {
	s.ready = append(s.ready, &simTask{proc: p, name: name, run: run})
}

// later makes a task that can happen after d.
func (s *sim) later(d time.Duration, p *simProc, name string, run func()) {
	s.order++
	heap.Push(&s.due, &simTask{proc: p, name: name, run: run, at: s.now.Add(d), order: s.order})
}

// hurry is how far the clock may run ahead of what could happen now: a slow
// process, and the reason why every deadline races with everything else.
const hurry = 5 * time.Second

// step lets one thing happen; false = nothing can.
func (s *sim) step() bool {
	if len(s.ready) == 0 {
		if !s.tick() {
			return false
		}
	} else if s.chance(s.plan.haste) && len(s.due) > 0 && s.due[0].at.Sub(s.now) < hurry {
		s.tick()
	}
	if len(s.ready) == 0 {
		return true
	}
	i := s.rng.IntN(len(s.ready))
	t := s.ready[i]
	last := len(s.ready) - 1
	s.ready[i], s.ready[last] = s.ready[last], nil
	s.ready = s.ready[:last]
	if p := t.proc; p != nil {
		if p.dead {
			return true
		}
		if p.paused {
			p.held = append(p.held, t)
			return true
		}
	}
	s.steps++
	if s.still++; s.still > simStill {
		s.must(false, "nothing spins", "%s, again and again at the same moment", t.name)
	}
	s.log("%s", t.name)
	t.run()
	return true
}

// simStill is more than can happen at one moment.
const simStill = 2000

// tick moves the clock to the next thing that is due.
func (s *sim) tick() bool {
	if len(s.due) == 0 {
		return false
	}
	if s.due[0].at.After(s.now) {
		s.still = 0
	}
	s.now = s.due[0].at
	for len(s.due) > 0 && !s.due[0].at.After(s.now) {
		s.ready = append(s.ready, heap.Pop(&s.due).(*simTask))
	}
	return true
}

func (s *sim) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

// upTo is a random time below limit, in milliseconds; most are short.
func (s *sim) upTo(limit time.Duration) time.Duration {
	f := s.rng.Float64()
	return time.Duration(f * f * float64(limit)).Truncate(time.Millisecond)
}

// simTrace remembers the last steps and the digest of all.
type simTrace struct {
	lines  []string
	next   int
	digest uint64
}

// simTraceLines are kept of each run, and many more of one that is looked at.
const (
	simTraceLines     = 300
	simTraceLinesSeed = 200_000
)

func (s *sim) log(format string, args ...any) {
	line := fmt.Sprintf("%6d %s ", s.steps, s.now.Format("15:04:05.000")) + fmt.Sprintf(format, args...)
	t := &s.trace
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x%s", t.digest, line)
	t.digest = h.Sum64()
	limit := simTraceLines
	if *simSeed != 0 {
		limit = simTraceLinesSeed
	}
	if len(t.lines) < limit {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % limit
}

// last are the lines in their order.
func (t *simTrace) last() []string {
	return append(append([]string(nil), t.lines[t.next:]...), t.lines[:t.next]...)
}

// simBroken is an invariant that does not hold.
type simBroken struct{ invariant, detail string }

// must ends the run if an invariant does not hold.
func (s *sim) must(holds bool, invariant, format string, args ...any) {
	if !holds {
		panic(simBroken{invariant, fmt.Sprintf(format, args...)})
	}
}
