package circuit

import (
	"slices"
	"time"

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
