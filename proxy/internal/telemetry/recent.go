package telemetry

import (
	"sync"
	"time"
)

// Turns are how turns of clients fared.
type Turns struct{ Ended, Failed, Internal int }

const (
	// recentWindow is the time that Recent speaks of, in recentParts that go one by one.
	recentWindow = time.Minute
	recentParts  = 12
)

// recent counts the turns of the last minute. The zero value is ready for use.
type recent struct {
	mu    sync.Mutex // guards parts
	parts [recentParts]part
}

// part is one of the window's, that of number at since the epoch.
type part struct {
	at int64
	Turns
}

func numberOf(now time.Time) int64 { return now.UnixNano() / int64(recentWindow/recentParts) }

// blame says whether an outcome counts, and as what: a client's own faults, its
// leaving, quotas and want of room say nothing of the proxy or of its upstream.
func blame(o Outcome) (t Turns, counts bool) {
	switch o {
	case OutcomeOK:
		return Turns{Ended: 1}, true
	case OutcomeConnect, OutcomeUpstreamError, OutcomeTruncated, OutcomeTimeout:
		return Turns{Ended: 1, Failed: 1}, true
	case OutcomeInternal:
		return Turns{Ended: 1, Failed: 1, Internal: 1}, true
	case OutcomeCallerError, OutcomeUnauthorized, OutcomeRefused, OutcomeLimited, OutcomeCallerGone:
	}
	return Turns{}, false
}

func (r *recent) add(now time.Time, o Outcome) {
	t, counts := blame(o)
	if !counts {
		return
	}
	at := numberOf(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &r.parts[at%recentParts]
	if p.at != at {
		*p = part{at: at}
	}
	p.Turns = p.plus(t)
}

func (r *recent) sum(now time.Time) (t Turns) {
	at := numberOf(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.parts {
		if p.at > at-recentParts && p.at <= at {
			t = t.plus(p.Turns)
		}
	}
	return t
}

func (t Turns) plus(o Turns) Turns {
	return Turns{Ended: t.Ended + o.Ended, Failed: t.Failed + o.Failed, Internal: t.Internal + o.Internal}
}

// Recent is how the turns fared that ended in the last minute. Turns that another
// replica served are counted there.
func (m *Metrics) Recent() Turns { return m.recent.sum(time.Now()) }
