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

// The simulation bites: each of these single breaks of a rule is caught, by the seed
// that is named among others. Whatever changes the order of events moves the seeds:
// a break that its seed does not catch any more is looked for among all.
//
//	file              break                                                     seed  invariant that did not hold
//	decide.go         clean close: sent again whether or not any account can       2  nothing is sent twice without proof
//	decide.go         anchor silent or denied: deltas go without it as well       11  nothing is sent twice without proof
//	decide.go         the upstream's own failure strikes after events too          2  no strike after a sign of life
//	decide.go         wedged: also once the response was created                   1  an anchor is suspect for a reason
//	health.go         a cool-down lets everybody through as an early probe         3  a circuit is left alone for its time
//	health.go         the circuit opens one strike later                           3  a circuit that is not closed lets only a probe through
//	health.go         a clean close raises the cool-down instead of capping it     6  the wait is that of the timer that refuses
//	health.go         renewing a probe does not move its end                      22  a probe is renewed while it runs
//	record.go         a denial does not kill the anchor                            5  no dead anchor is sent
//	record.go         the opening of the circuit does not make its anchor suspect 63  no suspect anchor on a whole payload
//	record.go         an anchor of another process' socket stays good              3  an anchor of another process' socket is dead
//	plan.go           an anchor is injected while another may own the key          1  only an owner injects an anchor
//	plan.go           an anchor is injected on any socket of its account           8  no anchor outside of its connection
//	plan.go           a whole payload takes a suspect anchor                       1  no suspect anchor on a whole payload
//	plan.go           interrupted tools get no output                             19  an interrupted tool is answered
//	owner.go          a lease that has run out is still good                       1  only an owner injects an anchor
//	owner.go          a claim does not take the stored record over                 1  a successor knows the anchor
//	actor_settle.go   who has lost the key publishes an anchor                     1  only an owner publishes an anchor
//	actor_settle.go   a probe's token stays with a turn that has ended             8  a probe is returned at its end
//	actor_settle.go   a turn keeps its account's lease when it ends                1  leases of accounts are balanced
//	actor_settle.go   sending the whole does not use up the turn's recovery        1  no turn is sent for ever
//	actor_send.go     a turn takes the socket of another account                   1  a turn runs on the account that it holds
//	actor_receive.go  response.created leaves the gate closed                      1  the gate is not leaked
//	actor_receive.go  late events of a response that has ended go to the next turn 5  no event of another response
//	actor.go          a turn is sent while another waits for its response          5  one turn at a time waits for its response
//	earlier.go        a delta of unknown outcome is run again after a while        5  nothing is sent again while its outcome is unknown

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
