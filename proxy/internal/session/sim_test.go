package session

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/store"
)

var simSeed = flag.Uint64("sim.seed", 0, "run this one seed of the simulation and print its trace")

// simSteps are the steps of the whole test: a million, less where each is slow.
// CAUSEWAY_SIM_STEPS sets another number.
func simSteps() int {
	if n, err := strconv.Atoi(os.Getenv("CAUSEWAY_SIM_STEPS")); err == nil {
		return n
	}
	switch {
	case testing.Short():
		return 50_000
	case raceEnabled:
		return 100_000
	}
	return 1_000_000
}

func newSim(seed uint64) (*sim, error) {
	s := &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 125)), now: simEpoch, asks: map[string]*simAsk{}, judged: map[string]bool{}, counts: simCounts{}}
	if err := s.draw(); err != nil {
		return nil, err
	}
	s.shared = newSimShared(s)
	s.up = &simUpstream{sim: s, responses: map[string]*simResponse{}}
	for i := range s.plan.pods {
		pod := &simPod{name: fmt.Sprintf("pod%d", i)}
		s.pods = append(s.pods, pod)
		s.startProc(pod)
	}
	for i := range s.plan.talks {
		s.startTalk(i)
	}
	s.calamities()
	return s, nil
}

// run lives one world to its end; broken is the invariant that did not hold.
func (s *sim) run() (broken *simBroken) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case simBroken:
			broken = &r
		default:
			broken = &simBroken{"no panic", fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	for s.steps < s.plan.steps {
		s.must(s.step(), "something happens", "nothing is due")
	}
	s.heal()
	begun, steps := s.now, s.steps
	for !s.quiet() {
		s.must(s.step(), "something happens", "nothing is due")
		s.must(s.now.Sub(begun) < patienceAfter && s.steps-steps < patienceSteps, "every client is served", "%s", s.stuck())
	}
	s.finish()
	return nil
}

// quiet says whether every conversation has gone on.
func (s *sim) quiet() bool {
	for _, t := range s.talks {
		if !t.watch.idle || len(t.asks) > 0 {
			return false
		}
	}
	return true
}

func (s *sim) stuck() string {
	var b strings.Builder
	for _, t := range s.talks {
		if !t.watch.idle || len(t.asks) > 0 {
			_, _ = fmt.Fprintf(&b, "talk %d: %+v, %d asks; ", t.number, t.watch, len(t.asks))
		}
	}
	return b.String()
}

// finish drains all replicas: nothing may be left.
func (s *sim) finish() {
	for _, pod := range s.pods {
		if p := pod.proc; !p.dead && !p.draining {
			p.drain(time.Minute)
		}
	}
	lives := map[*simPod]int{}
	for _, pod := range s.pods {
		lives[pod] = pod.lives
	}
	begun := s.now
	for s.now.Sub(begun) < 5*time.Minute {
		s.step()
	}
	for _, pod := range s.pods {
		s.must(pod.lives == lives[pod]+1 || pod.proc.dead, "a drained replica ends", "%s", pod.name)
	}
	for key := range s.shared.owners {
		e := s.shared.entry(key)
		s.must(e.Holder == (store.Holder{}), "keys are released", "%s is held by %s", key, e.Holder.Process)
	}
}

// report describes a failure so that it can be looked at again.
func (s *sim) report(b *simBroken) string {
	lines := s.trace.last()
	return fmt.Sprintf("%s\n\nseed %d, step %d: %s: %s\nreplay: go test ./proxy/internal/session -run Simulation -sim.seed=%d -v\n%+v",
		strings.Join(lines, "\n"), s.seed, s.steps, b.invariant, b.detail, s.seed, s.counts)
}

func TestScenario125_Simulation(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	total, seed := 0, uint64(0)
	sum := simCounts{}
	for budget := simSteps(); total < budget && !t.Failed(); {
		seed++
		s := simulate(t, seed)
		total += s.steps
		for what, n := range s.counts {
			sum[what] += n
		}
	}
	t.Logf("%d seeds, %d steps: %+v", seed, total, sum)
}

func simulate(t *testing.T, seed uint64) *sim {
	t.Helper()
	s, err := newSim(seed)
	if err != nil {
		t.Fatal(err)
	}
	if b := s.run(); b != nil {
		t.Error(s.report(b))
	} else if *simSeed != 0 {
		t.Log("\n" + strings.Join(s.trace.last(), "\n"))
	}
	return s
}

func TestScenario125_SimulationIsDeterministic(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		first, second := simulate(t, seed), simulate(t, seed)
		if first.trace.digest != second.trace.digest || first.steps != second.steps {
			t.Errorf("seed %d: %x after %d steps, then %x after %d", seed, first.trace.digest, first.steps, second.trace.digest, second.steps)
		}
	}
}
