package account

import "time"

// Numbers of cool-downs.
const (
	// MaxCoolDown bounds every cool-down, so that none is a latch without exit. The
	// longest quota window of the providers is a week.
	MaxCoolDown = 7 * 24 * time.Hour
	// burstPause is the first cool-down after a 429 that gives no time. In the
	// field 92 % of accounts that were throttled so took a turn within 3 s (clients.md
	// 3.4). It doubles with each such answer up to maxBurstPause, which still finds
	// out soon enough that the limit is gone.
	burstPause    = 2 * time.Second
	maxBurstPause = 60 * time.Second
	// quotaPause is the cool-down of a used up quota of which nobody tells the end.
	// It is probed meanwhile.
	quotaPause = time.Hour
	// deactivatedPause is when an account that the provider has closed is tried
	// again by itself; a new credential or a reset comes before.
	deactivatedPause = 24 * time.Hour
	// probeInterval is the least time between two probes of a limit, and of the
	// cool-downs that are probed at all. Up to a fifth is added, so that accounts
	// and replicas do not probe in step.
	probeInterval = 10 * time.Minute
	probeJitter   = 0.2
)

// coolDown is one reason to leave an account alone.
type coolDown struct {
	// since is when it was learned; a turn that began before proves nothing.
	since, until time.Time
	// probeAt is when one turn may see whether the limit still holds; zero = never.
	probeAt time.Time
	// incidents without a hint since the last success, for the growth of the pause.
	incidents int
}

func (c coolDown) runs(now time.Time) bool { return c.until.After(now) }

// coolDowns of an account by reason. One that has ended is kept for its incidents.
type coolDowns map[string]coolDown

// deciding is the cool-down that ends last; reason is empty if none runs.
func (cs coolDowns) deciding(now time.Time) (reason string, until time.Time) {
	for r, c := range cs {
		if c.runs(now) && (c.until.After(until) || c.until.Equal(until) && r < reason) {
			reason, until = r, c.until
		}
	}
	return reason, until
}

// probeDue says that nothing but limits holds the account back, and each of them
// may be probed.
func (cs coolDowns) probeDue(now time.Time) bool {
	due := false
	for _, c := range cs {
		if !c.runs(now) {
			continue
		}
		if c.probeAt.IsZero() || c.probeAt.After(now) { // zero for what is no limit
			return false
		}
		due = true
	}
	return due
}

// nextProbe is when all limits may be probed; zero = never.
func (cs coolDowns) nextProbe(now time.Time) (at time.Time) {
	ends := time.Time{}
	for reason, c := range cs {
		switch {
		case !c.runs(now):
			continue
		case !byLimit(reason):
			return time.Time{}
		case c.probeAt.IsZero():
			ends = later(ends, c.until) // before a probe would be due
		default:
			at = later(at, c.probeAt)
		}
	}
	if at.IsZero() {
		return at
	}
	return later(at, ends)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// hint is what an answer says about the end of a cool-down.
type hint struct {
	reason string
	// until zero = it gives no time.
	until time.Time
	// renews: the turn began after the cool-down did, so that it knows better.
	renews bool
	// jitter in [0, 1) spreads probes.
	jitter float64
}

// pauses of an account whose upstream gives no time.
type pauses struct {
	// base and limit are those of CircuitPolicy.ejection.
	base, limit time.Duration
	// quota is the end of the window that is used up; zero = not known.
	quota time.Time
}

func (p pauses) until(reason string, incidents int, now time.Time) time.Time {
	switch reason {
	case ReasonRateLimited:
		return now.Add(backoff(burstPause, maxBurstPause, incidents))
	case ReasonQuotaExhausted:
		if p.quota.After(now) {
			return p.quota
		}
		return now.Add(quotaPause)
	case ReasonDeactivated:
		return now.Add(deactivatedPause)
	default:
		return now.Add(backoff(p.base, p.limit, incidents))
	}
}

// set takes in an answer and says whether it changed anything. A running cool-down
// of the same reason is never shortened, except by a turn that knows better.
func (cs coolDowns) set(h hint, p pauses, now time.Time) bool {
	c := cs[h.reason]
	runs := c.runs(now)
	if h.until.IsZero() {
		if runs && !h.renews {
			return false // one incident, seen by several turns
		}
		c.incidents++
		h.until = p.until(h.reason, c.incidents, now)
	}
	if limit := now.Add(MaxCoolDown); h.until.After(limit) {
		h.until = limit
	}
	if !h.until.After(now) || runs && !h.renews && !h.until.After(c.until) {
		return false
	}
	c.until = h.until
	if !runs || h.renews {
		c.since = now
		c.probeAt = probeTime(h.reason, now, h.until, h.jitter)
	} else if c.probeAt.IsZero() {
		c.probeAt = probeTime(h.reason, c.since, h.until, h.jitter)
	}
	cs[h.reason] = c
	return true
}

// probeTime is when a limit that was hit now is probed; zero = it ends before.
func probeTime(reason string, now, until time.Time, jitter float64) time.Time {
	at := now.Add(time.Duration((1 + probeJitter*jitter) * float64(probeInterval)))
	if !byLimit(reason) || !at.Before(until) {
		return time.Time{}
	}
	return at
}

// probed puts off the next probe of all limits: one has just found out that the
// account cannot be used.
func (cs coolDowns) probed(jitter float64, now time.Time) {
	for reason, c := range cs {
		if c.runs(now) && !c.probeAt.IsZero() && !c.probeAt.After(now) {
			c.probeAt = probeTime(reason, now, c.until, jitter)
			cs[reason] = c
		}
	}
}

// succeeded takes in a good turn and says whether it ended a cool-down. Any good
// turn shows that the account can be reached; one that began after a limit was
// hit, that the limit is gone. No turn gives a login back.
func (cs coolDowns) succeeded(began, now time.Time) bool {
	ended := false
	for reason, c := range cs {
		switch {
		case reason == ReasonConnectFailed, byLimit(reason) && began.After(c.since):
			ended = ended || c.runs(now)
			delete(cs, reason)
		default:
			c.incidents = 0
			cs[reason] = c
		}
	}
	return ended
}

// backoff is base doubled with each incident, at most limit.
func backoff(base, limit time.Duration, incidents int) time.Duration {
	d := base
	for range incidents - 1 {
		if d >= limit/2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}
