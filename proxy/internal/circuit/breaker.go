// Package circuit is the circuit breaker of upstream routes: a pure automaton,
// Breaker, and a registry of them, Routes.
//
// A closed circuit collects samples; by a run of failures or by their share it
// opens. After a while it lets a few probes through. The verdict about a probe is
// given at its first valid event, so that a long answer does not delay recovery;
// what a stream comes to at its end is a sample like any other, so that an
// upstream which always dies in mid-stream opens the circuit again.
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
	decided bool // the probe has had its verdict
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
	closedAt time.Time

	// Closed.
	window            window
	run               run
	accounts, callers distinct // among the failures of the window
	active            distinct // callers
	limits            limits

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
		from := *b.forced
		b.forced = nil
		b.note(Change{From: from, To: b.state, Reason: byForceOver})
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
	if t.probe != 0 && !t.decided {
		b.verdict(p, t, outcome.ProbeSuccess, now)
	}
}

// Done is the end of an attempt at an account; account zero = none.
func (b *Breaker) Done(p Policy, t *Ticket, k outcome.Kind, account uint64, now time.Time) {
	b.Tick(p, now)
	switch {
	case t.probe != 0 && !t.decided:
		b.verdict(p, t, p.probe(k), now)
	case b.state == Closed && t.epoch != 0 && (t.epoch == b.epoch || t.decided && t.epoch == b.from):
		b.sample(p, k, who{account, t.caller}, now)
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

// sample is what a closed circuit learns.
func (b *Breaker) sample(p Policy, k outcome.Kind, w who, now time.Time) {
	switch p.route(k) {
	case outcome.RouteNeutral:
	case outcome.RouteSuccess:
		b.run, b.limits = run{}, limits{}
		b.window.current(p.Window, now).ok++
		if now.Sub(b.closedAt) >= p.Window {
			b.opened = 0
		}
	case outcome.RouteCounted:
		b.failed(p, direct(k), w, now)
		b.judge(p, now)
	case outcome.RouteIfMany:
		// Two at least: the only account of a pool cannot tell its limit from others'.
		many := b.limits.hit(w, max(2, p.MinAccounts), now)
		for _, l := range many {
			b.failed(p, false, l.who, now)
		}
		if len(many) > 0 {
			b.judge(p, now)
		}
	}
}

func (b *Breaker) failed(p Policy, direct bool, w who, now time.Time) {
	current := b.window.current(p.Window, now)
	current.failed++
	b.run.failed++
	if direct {
		current.direct++
		b.run.direct++
	}
	b.run.accounts.see(w.account, now)
	b.run.callers.see(w.caller, now)
	b.accounts.see(w.account, now)
	b.callers.see(w.caller, now)
}

// judge opens a closed circuit that has failed enough.
func (b *Breaker) judge(p Policy, now time.Time) {
	since := now.Add(-p.Window)
	active := b.active.since(since)
	if now.Before(b.hinted) {
		b.open(p, byRun, now) // a sibling has the rest of the evidence
		return
	}
	spread := p.enoughAccounts(len(b.run.accounts.seen)) && p.enoughCallers(len(b.run.callers.seen), active)
	if b.run.direct >= p.Consecutive || b.run.failed >= p.Consecutive && spread {
		b.open(p, byRun, now)
		return
	}
	spread = p.enoughAccounts(b.accounts.since(since)) && p.enoughCallers(b.callers.since(since), active)
	all, fresh := b.window.sums(p.Window, now)
	share := func(failed func(bucket) int) bool {
		// A busy route need not wait until failures outweigh a whole window of
		// successes: its newest part is enough, with twice the samples.
		return all.bad(failed(all), p.MinSamples, p.Percent) || fresh.bad(failed(fresh), 2*p.MinSamples, p.Percent)
	}
	if share(func(x bucket) int { return x.direct }) || spread && share(func(x bucket) int { return x.failed }) {
		b.open(p, byShare, now)
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
	b.window, b.run, b.limits = window{}, run{}, limits{}
	b.accounts, b.callers, b.active = distinct{}, distinct{}, distinct{}
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
