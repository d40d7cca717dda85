package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// The cadence of looks. What is asked of a proxy, however often, adds none.
const (
	// lookEvery is the pause between two looks at everything; lookAgain is the pause
	// while something is down, so that the end of a trouble is seen soon.
	lookEvery = 15 * time.Second
	lookAgain = 5 * time.Second
	// lookTime bounds one look.
	lookTime = 4 * time.Second
	// stale is the age from which a result says nothing any more.
	stale = 3 * lookEvery
	// downAfter is how many looks in a row have to fail before one that succeeded
	// counts no more. One success is enough to come back.
	downAfter = 2
	// pulseEvery is how often the process feels its own pulse, and stuckAfter how long
	// that may take before a restart is the better choice.
	pulseEvery = 5 * time.Second
	stuckAfter = time.Minute
)

// Condition is how something is.
type Condition string

// Conditions. Degraded works, for now or in part.
const (
	OK       Condition = "ok"
	Degraded Condition = "degraded"
	Down     Condition = "down"
)

// Finding is what a look has found. Reason says what is missing, to a person; empty
// for what is OK.
type Finding struct {
	Condition Condition
	Reason    string
}

// Probe is one thing that serving depends on.
type Probe struct {
	Name string
	// Advisory: the proxy serves without it, and being down is shown only.
	Advisory bool
	// Look finds out. It is bounded by ctx.
	Look func(ctx context.Context) Finding
	// Instant: the look reads a value of this process and is made whenever somebody
	// asks; what it finds counts at once.
	Instant bool
}

// Severities, as they are shown.
const (
	blocking = "blocking"
	advisory = "advisory"
)

// Check is a probe as it is shown.
type Check struct {
	Name string `json:"name"`
	// OK is that nothing is wrong; what is degraded does not keep from serving.
	OK       bool      `json:"ok"`
	State    Condition `json:"state"`
	Severity string    `json:"severity"`
	// AgeMS is how old the finding is, in milliseconds.
	AgeMS  int64  `json:"age_ms"`
	Reason string `json:"reason,omitempty"`
}

// Health knows whether the proxy can do useful work. Its methods answer from
// memory and are safe for concurrent use.
type Health struct {
	log    *slog.Logger
	probes []*watched
	// pulse takes the locks that every turn needs.
	pulse  func()
	felt   atomic.Pointer[time.Time] // the end of the last pulse; nil = none is felt yet
	unwell atomic.Bool               // what was logged last
}

// watched is a probe with what was found last.
type watched struct {
	Probe
	last atomic.Pointer[looked]
}

type looked struct {
	Finding
	at time.Time
	// failures in a row; good: a look has succeeded before.
	failures int
	good     bool
}

// NewHealth returns a Health that has not looked yet, so that nothing but instant
// probes is known. pulse is called now and then; if it never returns, Alive says so.
func NewHealth(log *slog.Logger, pulse func(), probes ...Probe) *Health {
	h := &Health{log: log, pulse: pulse}
	for _, p := range probes {
		h.probes = append(h.probes, &watched{Probe: p})
	}
	return h
}

// Begin looks at what serving needs, so that the first question has an answer.
func (h *Health) Begin(ctx context.Context) {
	for _, p := range h.probes {
		if !p.Advisory && !p.Instant {
			p.look(ctx)
		}
	}
}

// Run looks at once and then again and again, until ctx ends.
func (h *Health) Run(ctx context.Context) {
	var beat sync.WaitGroup
	beat.Go(func() { h.beat(ctx) })
	defer beat.Wait()
	h.unwell.Store(true) // until something else is known
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			timer.Reset(h.look(ctx))
			h.tell()
		case <-ctx.Done():
			return
		}
	}
}

// look looks at all probes and returns when to do so again.
func (h *Health) look(ctx context.Context) time.Duration {
	next := lookEvery
	for _, p := range h.probes {
		if p.Instant {
			continue
		}
		if p.look(ctx).failures > 0 {
			next = lookAgain
		}
	}
	return next
}

func (p *watched) look(ctx context.Context) *looked {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	found := &looked{Finding: p.find(ctx), at: time.Now()}
	if before := p.last.Load(); before != nil {
		found.failures, found.good = before.failures, before.good
	}
	if found.Condition == Down {
		found.failures++
	} else {
		found.failures, found.good = 0, true
	}
	p.last.Store(found)
	return found
}

// find is Look. A probe at fault must not take the process with it.
func (p *watched) find(ctx context.Context) (f Finding) {
	defer func() {
		if v := recover(); v != nil {
			f = Finding{Down, fmt.Sprintf("the check itself failed (%T)", v)}
		}
	}()
	return p.Look(ctx)
}

// beat feels the pulse.
func (h *Health) beat(ctx context.Context) {
	ticker := time.NewTicker(pulseEvery)
	defer ticker.Stop()
	for {
		now := time.Now()
		h.felt.Store(&now)
		select {
		case <-ticker.C:
			h.pulse()
		case <-ctx.Done():
			return
		}
	}
}

// Alive says whether turns can get on at all: false means that the locks they need
// are never let go again. It depends on nothing outside the process.
func (h *Health) Alive() bool {
	felt := h.felt.Load()
	return felt == nil || time.Since(*felt) < stuckAfter
}

// Report is whether the proxy can do useful work, and why.
func (h *Health) Report() (ready bool, checks []Check) {
	ready = true
	for _, p := range h.probes {
		c := p.check()
		if c.State == Down && !p.Advisory {
			ready = false
		}
		checks = append(checks, c)
	}
	return ready, checks
}

func (p *watched) check() Check {
	c := Check{Name: p.Name, Severity: blocking}
	if p.Advisory {
		c.Severity = advisory
	}
	f := Finding{Down, "not known yet"}
	switch last := p.last.Load(); {
	case p.Instant:
		f = p.find(context.Background())
	case last != nil:
		age := time.Since(last.at)
		c.AgeMS = age.Milliseconds()
		f = last.settled()
		if age > stale {
			f = Finding{Down, "nobody has looked for " + age.Round(time.Second).String()}
		}
	}
	c.State, c.Reason, c.OK = f.Condition, f.Reason, f.Condition == OK
	return c
}

// settled is the finding, unless it is a first failure after a success.
func (l *looked) settled() Finding {
	if l.Condition == Down && l.good && l.failures < downAfter {
		return Finding{Degraded, l.Reason}
	}
	return l.Finding
}

// tell logs what has become of readiness.
func (h *Health) tell() {
	ready, checks := h.Report()
	if ready != h.unwell.Load() {
		return
	}
	h.unwell.Store(!ready)
	if ready {
		h.log.Info("Became ready")
		return
	}
	for _, c := range checks {
		if c.State == Down && c.Severity == blocking {
			h.log.Warn("Became unready", "check", c.Name, "reason", c.Reason)
		}
	}
}
