package session

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// simKnown is what an actor's circuit and its recorded turns are judged by, apart
// from its own record. It begins anew with each claim of the key.
type simKnown struct {
	// order numbers the attempts as they were sent; proved is that of the newest
	// that completed, struck that of the newest that struck.
	order          map[string]int
	sent           int
	proved, struck int
	probes         map[string]bool // turns that held the probe
	// runs are the turns that went without their whole conversation, by what they
	// ask; ends is the last fact of each turn's last attempt.
	runs map[string]string
	ends map[string]FactKind
}

func newSimKnown() simKnown {
	return simKnown{order: map[string]int{}, probes: map[string]bool{}, runs: map[string]string{}, ends: map[string]FactKind{}}
}

// simBackoff is how long a circuit refuses: 60 s after the second strike, doubled
// with each up to 600 s, 30 s at most after a clean close.
func simBackoff(h Health) time.Duration {
	seconds := 60
	for range h.Strikes - 2 {
		seconds = min(2*seconds, 600)
	}
	if h.Class == StrikeCleanClose {
		seconds = min(seconds, 30)
	}
	return time.Duration(seconds) * time.Second
}

// checkProbe judges a turn that is sent as the probe: in its time, or as another
// experiment than the one that has failed.
func (sa *simActor) checkProbe(b simBefore, f *flight, where string) {
	s, h := sa.sim, b.record.Health
	sa.check.probes[f.turn.ID] = true
	if f.dispatches != 1 || !simRefuses(h, s.now) {
		return
	}
	cool := !s.now.Before(h.StruckAt.Add(simBackoff(h)))
	other := h.Blamed != "" && f.plan.Anchor != h.Blamed
	s.must(cool || other, "a circuit is left alone for its time", "%s %s after strike %d (%s)", where, s.now.Sub(h.StruckAt), h.Strikes, h.Class)
}

// checkToken: the probe has an owner, who keeps it for as long as it runs and no
// longer.
func (sa *simActor) checkToken(what string) {
	s, p := sa.sim, sa.record.Health.Probe
	runs := false
	for _, f := range sa.flights {
		runs = runs || p != nil && f.turn.ID == p.Token
		if !f.probe {
			continue
		}
		if p == nil { // the circuit was closed under it
			s.must(sa.record.Health.Strikes < 2, "a probe keeps its token", "%s: %s", sa.name, f.name())
			continue
		}
		s.must(p.Token == f.turn.ID, "a probe keeps its token", "%s: %s", sa.name, f.name())
		s.must(what != "wakes" || p.Until.After(s.now), "a probe is renewed while it runs", "%s: %s, until %s", sa.name, f.name(), p.Until)
	}
	s.must(p == nil || runs || !sa.check.probes[p.Token], "a probe is returned at its end", "%s: %s is over", sa.name, p.tokenOf())
}

func (p *Probe) tokenOf() string {
	if p == nil {
		return ""
	}
	return p.Token
}

// checkRefused: a circuit refuses only while a timer of its own runs, and names it.
func (sa *simActor) checkRefused(b simBefore) {
	s := sa.sim
	for _, talk := range s.talks {
		for _, ask := range talk.asks {
			if ask.proc != sa.proc || ask.turn == nil || ask.turn.Key != sa.key || ask.judged {
				continue
			}
			f := ask.turn.Out.failure
			if ask.judged = f != nil; f == nil || f.Code != failure.CircuitOpen {
				continue
			}
			h := b.record.Health
			if !simRefuses(h, s.now) {
				h = sa.record.Health
			}
			s.must(simRefuses(h, s.now), "a closed circuit refuses nothing", "%s: %+v", ask.id, h)
			left := h.StruckAt.Add(simBackoff(h)).Sub(s.now)
			if h.Probe != nil {
				left = max(left, h.Probe.Until.Sub(s.now))
			}
			s.must(f.RetryAfter <= left, "the wait is that of the timer that refuses", "%s: told %s, it is %s", ask.id, f.RetryAfter, left)
			s.counts["suppressed"]++
		}
	}
}

// checkStrike: what was sent before an attempt that proved that the key works does
// not strike after it, and does not prove it against a newer strike.
func (sa *simActor) checkStrike(p past, name string, b simBefore) {
	s, c := sa.sim, &sa.check
	order, ok := c.order[name]
	if !ok || !sa.own.kept {
		return
	}
	was, is := b.record.Health, sa.record.Health
	switch last := FactKind(p.facts[len(p.facts)-1]); {
	case last == FactCompleted && p.row == "completed":
		s.must(order > c.struck || is.Strikes >= was.Strikes, "no proof from before a strike", "%s closes the circuit", name)
		c.proved = max(c.proved, order)
	case p.strike != StrikeNone && is.Strikes > was.Strikes:
		s.must(order > c.proved, "no strike from before a proof", "%s strikes", name)
		c.struck = max(c.struck, order)
	}
}

// checkAgain: a turn whose outcome is not known is not sent again, nor one whose
// answer is there.
func (sa *simActor) checkAgain(f *flight, where string) {
	s, c, name := sa.sim, &sa.check, f.turn.Fingerprint
	if f.plan.Whole || name == "" || !sa.own.kept || !sa.owns() || f.dispatches != 1 {
		return
	}
	before, ok := c.runs[name]
	c.runs[name] = f.turn.ID
	if !ok || before == f.turn.ID {
		return
	}
	s.counts["repeated"]++
	ask, stored := s.asks[before], f.turn.Owner.Stored
	for _, other := range sa.flights {
		s.must(other.turn.ID != before || other.dispatches == 0, "a turn that runs is not sent again", "%s, as %s is", where, before)
	}
	switch c.ends[before] {
	case FactEnded, FactFirstEventTimeout, FactIdleTimeout, FactRequestTimeout, FactLocal:
		s.must(stored, "nothing is sent again while its outcome is unknown", "%s, as %s was", where, before)
	case FactCompleted, FactIncomplete:
		s.must(stored || ask.done != "", "no answer is made twice", "%s, as %s was", where, before)
	default:
	}
}

// checkEnds notes how attempts ended, and judges what that meant for the circuit.
func (sa *simActor) checkEnd(p past, name string, b simBefore) {
	c := &sa.check
	c.ends[p.turn] = FactKind(p.facts[len(p.facts)-1])
	sa.checkStrike(p, name, b)
}

// checkMark: an anchor gets worse for a reason.
func (sa *simActor) checkMark(b simBefore) {
	s, was, is := sa.sim, b.record.Anchor, sa.record.Anchor
	if was == nil || is == nil || was.ResponseID != is.ResponseID || was.Status == is.Status {
		return
	}
	switch {
	case is.Status == AnchorDead && is.Cause == CauseConfirmed:
		s.must(was.Status == AnchorSuspect, "an anchor is dead after a second proof", "%s: %s", sa.name, is.ResponseID)
	case is.Status == AnchorSuspect && is.Cause == CauseWedged && sa.own.kept:
		s.must(sa.check.suspect[is.ResponseID], "an anchor is suspect for a reason", "%s: %s", sa.name, is.ResponseID)
	}
}
