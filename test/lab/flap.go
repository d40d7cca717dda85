package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/test/upstream"
)

// The flap, in life: for five minutes the upstream answers three of five turns with
// 502, and heals. The policy's times, those of the phases and the budget of closing
// are divided by the same factor; what the policy cannot divide further stays at its
// least, and is said. Opening takes turns that fail and no time of the policy, and the
// turns come no faster than in life, so that its budget stays as it is.
const (
	flapReplicas = 3
	flapCallers  = 2
	flapRate     = 20 // turns a second of each caller at each replica
	flapOutage   = 5 * time.Minute
	flapHealed   = 6 * time.Minute
	flapFailing  = 0.6
	// flapCalm is how long everything has to be served until it counts as healed.
	flapCalm = 3 * time.Second

	opensIn    = 10 * time.Second
	closesIn   = 30 * time.Second // beyond the longest open time
	doomedWord = "doomed"
)

// flapPolicy is the built-in one, faster.
type flapPolicy struct{ window, open, longest, verdict int }

func newFlapPolicy(factor float64) flapPolicy {
	in := func(seconds, least float64) int { return int(math.Round(max(least, seconds/factor))) }
	return flapPolicy{window: in(60, 10), open: in(15, 1), longest: in(300, 1), verdict: in(30, 1)}
}

func (p flapPolicy) String() string {
	return fmt.Sprintf("breaker: {windowSeconds: %d, openSeconds: %d, maxOpenSeconds: %d, probeVerdictSeconds: %d}", p.window, p.open, p.longest, p.verdict)
}

// inLife is how long something takes here that takes d in life.
func inLife(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) / factor)
}

// flapTime is how long all phases take at most.
func flapTime(factor float64) time.Duration {
	return time.Duration(newFlapPolicy(factor).window)*time.Second + inLife(flapOutage+flapHealed, factor)
}

func runFlap(ctx context.Context, b *bed, s settings) (section, error) {
	policy := newFlapPolicy(s.factor)
	part := section{title: fmt.Sprintf("Flap, %g times faster than in life: of the turns to the upstream %.0f %% fail for %s, then none; %d replicas, %d turns a second each;\n%s",
		s.factor, 100*flapFailing, inLife(flapOutage, s.factor).Round(time.Second), flapReplicas, flapCallers*flapRate, policy)}
	redis, err := b.startRedis(ctx)
	if err != nil {
		return part, err
	}
	if redis == "" {
		part.note("redis-server is missing: the replicas do not hear of each other.")
	}
	f := &flap{bed: b, policy: policy, factor: s.factor}
	config := pool{policy: policy.String(), redis: redis}
	for i := range flapCallers {
		config.clients = append(config.clients, fmt.Sprint("caller-", i))
	}
	for range flapReplicas {
		to, err := b.start(ctx, config)
		if err != nil {
			return part, err
		}
		f.replicas = append(f.replicas, to)
	}
	if err := f.live(ctx, s.seed); err != nil {
		return part, err
	}
	f.judge(&part)
	return part, f.works()
}

type flap struct {
	*bed
	policy   flapPolicy
	factor   float64
	replicas []*replica

	broke, healed, ended time.Time

	mu      sync.Mutex // guards answers
	answers map[*replica][]answer
	probes  map[*replica][]time.Time
}

// live sends turns to all replicas while the upstream breaks and heals.
func (f *flap) live(ctx context.Context, seed uint64) error {
	f.answers = map[*replica][]answer{}
	load, stop := context.WithCancel(ctx)
	defer stop()
	var callers sync.WaitGroup
	for i, to := range f.replicas {
		for j := range flapCallers {
			rng := rand.New(rand.NewPCG(seed, uint64(i*flapCallers+j)))
			callers.Go(func() { f.call(load, f.caller(to, fmt.Sprint("caller-", j)), rng) })
		}
	}
	err := f.phases(ctx)
	stop()
	callers.Wait()
	return err
}

func (f *flap) phases(ctx context.Context) error {
	// The breaker's window is full of good turns, as it is in life.
	if err := pause(ctx, time.Duration(f.policy.window)*time.Second); err != nil {
		return err
	}
	failing := upstream.Rule{Match: upstream.Match{InputContains: doomedWord},
		Fault: &upstream.Fault{Action: upstream.ActStatus, Status: 502, Code: "server_error", Message: "The server had an error."}}
	f.broke = time.Now()
	if err := f.up.Script(script(failing)); err != nil {
		return err
	}
	if err := pause(ctx, inLife(flapOutage, f.factor)); err != nil {
		return err
	}
	f.healed = time.Now()
	if err := f.up.Script(script()); err != nil {
		return err
	}
	for limit := f.healed.Add(inLife(flapHealed, f.factor)); time.Now().Before(limit) && !f.calm(); {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	f.ended = time.Now()
	return nil
}

// call sends turns at a steady rate. Which of them the upstream will fail is drawn
// here, and shows in them.
func (f *flap) call(ctx context.Context, c *caller, rng *rand.Rand) {
	var under sync.WaitGroup
	defer under.Wait()
	tick := time.NewTicker(time.Second / flapRate)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		word := "fine"
		if rng.Float64() < flapFailing {
			word = doomedWord
		}
		under.Go(func() {
			a := c.ask(ctx, time.Now(), modelAny, word)
			if ctx.Err() == nil {
				f.mu.Lock()
				f.answers[c.to] = append(f.answers[c.to], a)
				f.mu.Unlock()
			}
		})
	}
}

// calm says whether every replica has served everything for a while.
func (f *flap) calm() bool {
	since := time.Now().Add(-flapCalm)
	if since.Before(f.healed) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, to := range f.replicas {
		if slices.ContainsFunc(f.answers[to], func(a answer) bool { return a.ended.After(since) && !a.ok() }) {
			return false
		}
	}
	return true
}

const routeOpen = "circuit_open" // the code of a refusal by the breaker of a route

func (a answer) refused() bool { return a.code == routeOpen }

// judge makes the figures of what has been seen.
func (f *flap) judge(part *section) {
	opened, closed, gaps := f.opened(), f.closed(), f.probing()
	asked, wasted := f.wasted()
	bound := time.Duration(f.policy.longest)*time.Second*12/10 + inLife(closesIn, f.factor)
	together, chance := f.inStep(gaps)
	part.figures = []figure{
		{name: "time until all replicas have opened", unit: "s", reference: none(), measured: opened, most: opensIn.Seconds(), digits: 2},
		{name: "failed dispatches, of the turns asked for while it fails", unit: "%", reference: 100 * flapFailing, measured: percent(wasted, asked), most: 5, digits: 2},
		{name: "time from healing until all have closed", unit: "s", reference: none(), measured: closed, most: bound.Seconds(), digits: 2},
		{name: "gaps between the probes of a replica, coefficient of variation", reference: none(), measured: variation(slices.Concat(gaps...)), least: 0.1, digits: 2},
		{name: "probes with another replica's beside them (reference: by chance)", unit: "%", reference: chance, measured: together, most: 50, digits: 0},
	}
	part.note("%d probes, %d turns while it failed; answers: %s", f.count(), asked, f.codes())
	if f.policy.window > int(60/f.factor) {
		part.note("windowSeconds is the policy's least, %g times faster than in life.", 60/float64(f.policy.window))
	}
}

// opened is when the last replica has begun to refuse, in seconds after the fault;
// NaN = one never has.
func (f *flap) opened() float64 {
	worst := 0.0
	for _, to := range f.replicas {
		i := slices.IndexFunc(f.answers[to], func(a answer) bool { return a.refused() && a.due.After(f.broke) })
		if i < 0 {
			return none()
		}
		worst = max(worst, f.answers[to][i].due.Sub(f.broke).Seconds())
	}
	return worst
}

// closed is when the last refusal came, in seconds after the upstream had healed;
// NaN = refusals never ended.
func (f *flap) closed() float64 {
	if f.ended.Sub(f.healed) >= inLife(flapHealed, f.factor) {
		return none()
	}
	worst := 0.0
	for _, to := range f.replicas {
		for _, a := range f.answers[to] {
			if a.refused() {
				worst = max(worst, a.due.Sub(f.healed).Seconds())
			}
		}
	}
	return worst
}

// wasted are the turns asked for while the upstream failed, and those of its
// dispatches that it failed.
func (f *flap) wasted() (asked, failed int) {
	for _, answers := range f.answers {
		for _, a := range answers {
			if a.due.After(f.broke) && a.due.Before(f.healed) {
				asked++
			}
		}
	}
	for _, d := range f.up.Ledger().Dispatches() {
		if d.Fault != "" {
			failed++
		}
	}
	return asked, failed
}

// probing finds the probes: turns that reach the upstream after a time without any,
// while the replica refuses others. It returns the gaps before them.
func (f *flap) probing() (gaps [][]time.Duration) {
	f.probes = map[*replica][]time.Time{}
	for _, to := range f.replicas {
		var own []time.Duration
		last := time.Time{}
		from, until := f.refusing(to)
		for _, d := range f.up.Ledger().Dispatches() {
			if !strings.HasPrefix(markOf(d.Body), to.name+".") {
				continue
			}
			if gap := d.Time.Sub(last); !last.IsZero() && d.Time.After(from) && d.Time.Before(until) && gap > time.Duration(f.policy.open)*time.Second/2 {
				own = append(own, gap)
				f.probes[to] = append(f.probes[to], d.Time)
			}
			last = d.Time
		}
		gaps = append(gaps, own)
	}
	return gaps
}

// refusing is when a replica began to refuse, and a little after it did last.
func (f *flap) refusing(to *replica) (from, until time.Time) {
	for _, a := range f.answers[to] {
		switch {
		case !a.refused():
		case from.IsZero() || a.due.Before(from):
			from, until = a.due, later(until, a.due)
		default:
			until = later(until, a.due)
		}
	}
	return from, until.Add(time.Second / flapRate)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (f *flap) count() (n int) {
	for _, p := range f.probes {
		n += len(p)
	}
	return n
}

// inStep is the share of probes that have one of another replica within a tenth of
// the shortest open time, and what chance would make it.
func (f *flap) inStep(gaps [][]time.Duration) (share, chance float64) {
	near := time.Duration(f.policy.open) * time.Second / 10
	together, alone := 0, 1.0
	for to, own := range f.probes {
		for _, at := range own {
			for other, times := range f.probes {
				if other != to && slices.ContainsFunc(times, func(t time.Time) bool { return t.Sub(at).Abs() < near }) {
					together++
					break
				}
			}
		}
	}
	var sum time.Duration
	all := slices.Concat(gaps...)
	for _, g := range all {
		sum += g
	}
	if len(all) == 0 {
		return none(), none()
	}
	mean := sum / time.Duration(len(all))
	for range flapReplicas - 1 {
		alone *= 1 - min(1, 2*near.Seconds()/mean.Seconds())
	}
	return percent(together, f.count()), 100 * (1 - alone)
}

// codes counts the answers while the upstream failed.
func (f *flap) codes() string {
	counts := map[string]int{}
	for _, answers := range f.answers {
		for _, a := range answers {
			switch {
			case a.due.Before(f.broke) || a.due.After(f.healed):
			case a.ok():
				counts["served"]++
			case a.err != nil:
				counts["broken off"]++
			default:
				counts[a.code]++
			}
		}
	}
	words := make([]string, 0, len(counts))
	for code, n := range counts {
		words = append(words, fmt.Sprintf("%d %s", n, code))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// works is an error if something failed that no fault explains.
func (f *flap) works() error {
	if _, failed := f.wasted(); failed == 0 {
		return fmt.Errorf("the upstream failed no turn: the fault hit nobody")
	}
	for _, answers := range f.answers {
		for _, a := range answers {
			if !a.ok() && a.ended.Before(f.broke) {
				return fmt.Errorf("a turn was not served before anything failed: %s", a)
			}
			if !a.ok() && f.ended.Sub(a.due) < flapCalm/2 {
				return fmt.Errorf("a turn is still not served long after the upstream has healed: %s", a)
			}
		}
	}
	return nil
}
