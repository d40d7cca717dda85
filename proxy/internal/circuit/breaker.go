// Package circuit is the circuit breaker of upstream routes: a pure automaton,
// Breaker, and a registry of them, Routes.
//
// A closed circuit watches how attempts start and how they end, each for itself,
// and opens by a run of failures or by their share. A start is good at the first
// valid event, an end at the terminal one: streams that began before an outage
// and end well during it hide nothing, and an upstream that always dies in
// mid-stream opens the circuit although every start is good.
//
// After a while an open circuit lets a few probes through. The verdict about a
// probe is given at its first valid event, so that a long answer does not delay
// recovery; its end counts in the circuit that it has closed.
package circuit

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// State is the state of a circuit.
type State uint8

// States.
const (
	Closed State = iota
	Open
	HalfOpen
)

var stateNames = [...]string{"closed", "open", "half_open"}

func (s State) String() string { return stateNames[s] }

// Why a circuit changed its state.
const (
	byRun       = "consecutive_failures"
	byShare     = "failure_share"
	byTime      = "open_time_over"
	byProbe     = "probe_failed"
	byLapse     = "probe_without_verdict"
	bySuccess   = "probes_succeeded"
	byLate      = "late_success"
	byForce     = "forced"
	byForceOver = "force_over"
	byReset     = "reset"
	byRestore   = "restored"
)

// Change is one step of a circuit.
type Change struct {
	From, To State
	// Reason is from a closed set.
	Reason string
	// Until is when an open circuit lets a probe through.
	Until time.Time
	// Opened is how many times in a row it has opened.
	Opened int
	// Inconclusive: no step, but several probes in a row that decided nothing.
	Inconclusive bool
}

// Ticket is one admitted attempt. It belongs to the period of the circuit in
// which it was admitted, and counts only there.
type Ticket struct {
	epoch   uint64
	probe   uint64 // 0 = none
	caller  uint64
	started bool // its first valid event came
	decided bool // the probe has had a good verdict
}

type probeLease struct {
	id    uint64
	until time.Time
}

// inconclusiveAfter neutral probes in a row are worth an alarm.
const inconclusiveAfter = 5

// Breaker is the circuit of one route. It neither reads the clock nor does IO;
// its methods are total. It is not safe for concurrent use.
type Breaker struct {
	// Salt tells replicas apart.
	Salt uint64

	state State
	epoch uint64
	until time.Time // of Open
	// opened counts openings in a row, closedAt is the end of the last.
	opened   int
	openedBy string // the reason of the last
	closedAt time.Time

	// Closed.
	starts, ends track
	active       distinct // callers
	limits       limits

	// HalfOpen.
	probes    []probeLease
	nextProbe uint64
	successes int
	neutral   int // probes in a row without a verdict
	// late is the period whose probe was given up by time: its success still counts
	// while nothing newer has decided. from is the period whose probes closed it.
	late, from uint64

	hinted      time.Time // until then one failure is enough
	forced      *State
	forcedUntil time.Time

	changes []Change
}

// Admit asks for one attempt. If it is refused, wait says how long to stay away
// and running that probes are under way.
func (b *Breaker) Admit(p Policy, caller uint64, now time.Time) (t Ticket, wait time.Duration, running, ok bool) {
	b.Tick(p, now)
	if b.forced != nil {
		if *b.forced == Open {
			return Ticket{}, b.forcedUntil.Sub(now), false, false
		}
		return Ticket{}, 0, false, true // no period: its result counts nowhere
	}
	switch b.state {
	case Open:
		return Ticket{}, b.until.Sub(now), false, false
	case HalfOpen:
		if len(b.probes) >= p.HalfOpenMax {
			return Ticket{}, b.nextLapse(now), true, false
		}
		b.nextProbe++
		b.probes = append(b.probes, probeLease{b.nextProbe, now.Add(p.Verdict)})
		return Ticket{epoch: b.epoch, probe: b.nextProbe, caller: caller}, 0, false, true
	case Closed:
	}
	b.start()
	b.active.see(caller, now)
	return Ticket{epoch: b.epoch, caller: caller}, 0, false, true
}

// start gives the first period a number: zero is none.
func (b *Breaker) start() { b.epoch = max(b.epoch, 1) }

// nextLapse is when the first probe is given up.
func (b *Breaker) nextLapse(now time.Time) time.Duration {
	first := b.probes[0].until
	for _, l := range b.probes[1:] {
		if l.until.Before(first) {
			first = l.until
		}
	}
	return first.Sub(now)
}

// Tick makes the steps that time alone brings.
func (b *Breaker) Tick(p Policy, now time.Time) {
	if b.forced != nil && !now.Before(b.forcedUntil) {
		b.Release()
	}
	if b.state == HalfOpen {
		for _, l := range b.probes {
			if !now.Before(l.until) {
				ended := b.epoch
				b.open(p, byLapse, l.until)
				b.late = ended
				break
			}
		}
	}
	if b.state == Open && !now.Before(b.until) {
		b.move(HalfOpen, byTime)
		b.probes, b.successes = nil, 0
	}
}

// Event is the first valid event of an attempt's answer.
func (b *Breaker) Event(p Policy, t *Ticket, now time.Time) {
	b.Tick(p, now)
	switch {
	case t.started:
	case t.probe != 0:
		t.started = true
		b.verdict(p, t, outcome.ProbeSuccess, now)
	case b.counts(t):
		t.started = true
		b.good(p, &b.starts, now)
	}
}

// counts says whether an attempt belongs to the closed circuit of now: it was
// admitted by it, or is one of the probes that closed it.
func (b *Breaker) counts(t *Ticket) bool {
	return b.state == Closed && t.epoch != 0 && (t.epoch == b.epoch || t.decided && t.epoch == b.from)
}

// Done is the end of an attempt at an account; account zero = none.
func (b *Breaker) Done(p Policy, t *Ticket, k outcome.Kind, account uint64, now time.Time) {
	b.Tick(p, now)
	switch {
	case t.probe != 0 && !t.started:
		b.verdict(p, t, p.probe(k), now)
	case b.counts(t):
		b.sample(p, k, t.started, who{account, t.caller}, now)
	}
}

// verdict settles a probe: the slot is free again.
func (b *Breaker) verdict(p Policy, t *Ticket, v outcome.Probe, now time.Time) {
	t.decided = v == outcome.ProbeSuccess
	if t.epoch != b.epoch || b.state != HalfOpen {
		if t.epoch == b.late && t.epoch != 0 && v == outcome.ProbeSuccess {
			b.close(byLate, now)
			b.from = t.epoch
		}
		return // of a period that is over
	}
	for i := range b.probes {
		if b.probes[i].id == t.probe {
			b.probes = append(b.probes[:i], b.probes[i+1:]...)
			break
		}
	}
	switch v {
	case outcome.ProbeNeutral:
		if b.neutral++; b.neutral >= inconclusiveAfter {
			b.neutral = 0
			b.note(Change{From: b.state, To: b.state, Inconclusive: true})
		}
	case outcome.ProbeFailure:
		b.open(p, byProbe, now)
	case outcome.ProbeSuccess:
		b.neutral, b.late = 0, 0
		if b.successes++; b.successes >= p.Successes {
			ended := b.epoch
			b.close(bySuccess, now)
			b.from = ended
		}
	}
}

// sample is what a closed circuit learns at the end of an attempt.
func (b *Breaker) sample(p Policy, k outcome.Kind, started bool, w who, now time.Time) {
	switch p.route(k) {
	case outcome.RouteNeutral:
	case outcome.RouteSuccess:
		if !started {
			b.good(p, &b.starts, now)
		}
		b.good(p, &b.ends, now)
		if now.Sub(b.closedAt) >= p.Window {
			b.opened = 0
		}
	case outcome.RouteCounted:
		b.failed(p, direct(k), started, w, now)
		b.judge(p, now)
	case outcome.RouteIfMany:
		// Two at least: the only account of a pool cannot tell its limit from others'.
		many := b.limits.hit(w, max(2, p.MinAccounts), now)
		for _, l := range many {
			b.failed(p, false, started, l, now)
		}
		if len(many) > 0 {
			b.judge(p, now)
		}
	}
}

func (b *Breaker) good(p Policy, t *track, now time.Time) {
	b.limits = limits{}
	t.good(p.Window, now)
}

func (b *Breaker) failed(p Policy, direct, started bool, w who, now time.Time) {
	b.ends.failed(p.Window, direct, w, now)
	if !started {
		b.starts.failed(p.Window, direct, w, now)
	}
}

// judge opens a closed circuit that has failed enough.
func (b *Breaker) judge(p Policy, now time.Time) {
	if now.Before(b.hinted) {
		b.open(p, byRun, now) // a sibling has the rest of the evidence
		return
	}
	active := b.active.since(now.Add(-p.Window))
	for _, t := range []*track{&b.starts, &b.ends} {
		if reason, bad := t.judge(p, active, now); bad {
			b.open(p, reason, now)
			return
		}
	}
}

// open opens the circuit as of a time.
func (b *Breaker) open(p Policy, reason string, at time.Time) {
	if b.state == Closed && at.Sub(b.closedAt) > p.Window+p.MaxOpen {
		b.opened = 0 // long ago
	}
	b.opened = min(b.opened+1, maxOpened)
	b.until = at.Add(p.openFor(b.opened, b.Salt))
	b.late, b.neutral = 0, 0
	b.probes, b.successes = nil, 0
	b.openedBy = reason
	b.move(Open, reason)
}

// maxOpened bounds a number that is only doubled with.
const maxOpened = 32

func (b *Breaker) close(reason string, now time.Time) {
	b.closedAt = now
	b.late, b.neutral, b.hinted = 0, 0, time.Time{}
	b.probes, b.successes = nil, 0
	b.move(Closed, reason)
}

// move begins a new period.
func (b *Breaker) move(to State, reason string) {
	b.start()
	b.epoch++
	b.from = 0
	from := b.state
	b.state = to
	b.starts, b.ends = track{}, track{}
	b.limits, b.active = limits{}, distinct{}
	change := Change{From: from, To: to, Reason: reason, Opened: b.opened}
	if to == Open {
		change.Until = b.until
	}
	b.note(change)
}

func (b *Breaker) note(c Change) { b.changes = append(b.changes, c) }

// Changes returns what has happened since it was asked last.
func (b *Breaker) Changes() []Change {
	all := b.changes
	b.changes = nil
	return all
}
