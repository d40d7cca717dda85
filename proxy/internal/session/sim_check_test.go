package session

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// simActorCheck is what is remembered of an actor to judge its next step.
type simActorCheck struct {
	simKnown
	// dead and suspect are anchors that this actor has heard of, judged apart from
	// its own record.
	dead, suspect map[string]bool
	// missed are those that it heard of while nobody owned the key.
	missedDead, missedSuspect map[string]bool
	sends                     map[*flight]int
	plans                     map[string]Plan // of the newest attempt of a turn
	onTheWay                  int             // turns handed over and overtaken
	lastDenied                string
	reset                     time.Time // when a user closed the circuit: what was sent before does not count
}

func newSimActorCheck() simActorCheck {
	return simActorCheck{dead: map[string]bool{}, suspect: map[string]bool{}, missedDead: map[string]bool{}, missedSuspect: map[string]bool{},
		sends: map[*flight]int{}, plans: map[string]Plan{}, simKnown: newSimKnown()}
}

// simBefore is the state before a step.
type simBefore struct {
	record Record
	epoch  int64
}

func (sa *simActor) before() simBefore {
	sa.proc.watch.rows, sa.proc.watch.strikes = nil, 0
	return simBefore{sa.record, sa.own.held.Epoch}
}

// owns asks the lease itself.
func (sa *simActor) owns() bool {
	l, ok := sa.own.lease.(*simLease)
	return ok && l.Valid()
}

// after judges a step.
func (sa *simActor) after(what string, b simBefore) {
	if sa.record.Health.Reset != b.record.Health.Reset {
		sa.check.reset = sa.sim.now
	}
	if sa.own.held.Epoch != b.epoch {
		sa.check.simKnown = newSimKnown()
	}
	if sa.own.held.Epoch != b.epoch && sa.own.held.Epoch != 0 {
		sa.tookOver()
	} else if sa.own.held.Epoch == 0 && b.epoch != 0 && sa.record.Anchor == nil {
		sa.check.dead, sa.check.suspect = map[string]bool{}, map[string]bool{}
	} else {
		sa.checkRecord(b)
	}
	sa.checkVerdicts(b)
	if sa.own.held.Epoch == b.epoch {
		sa.checkMark(b)
	}
	sa.checkSends(b)
	sa.checkToken(what)
	sa.checkRefused(b)
	sa.checkGate()
	sa.checkTurns()
	for _, talk := range sa.sim.talks {
		for _, ask := range talk.asks {
			if ask.proc == sa.proc {
				ask.offer()
			}
		}
	}
}

// checkRecord: what is known of an anchor only gets worse, and only an owner has
// a new one.
func (sa *simActor) checkRecord(b simBefore) {
	s, was, is := sa.sim, b.record.Anchor, sa.record.Anchor
	if was != nil && is != nil && was.ResponseID == is.ResponseID {
		s.must(is.Status >= was.Status, "no anchor gets better", "%s: %s", sa.name, is.ResponseID)
		return
	}
	if is == nil {
		return
	}
	s.must(is.Status == AnchorGood || is.Cause == CauseConnection, "a new anchor is good", "%s: %s is %s", sa.name, is.ResponseID, is.Status)
	s.must(!sa.own.kept || sa.owns(), "only an owner publishes an anchor", "%s: %s", sa.name, is.ResponseID)
	p := s.up.responses[is.ResponseID]
	s.must(p != nil && p.account == is.Account, "an anchor is a response of its account", "%s: %s", sa.name, is.ResponseID)
	s.must(sa.record.Version > b.record.Version, "versions rise", "%s: %d after %d", sa.name, sa.record.Version, b.record.Version)
}

// checkVerdicts: one verdict for each attempt, and a strike only for one without
// any sign of life.
func (sa *simActor) checkVerdicts(b simBefore) {
	s, rows := sa.sim, len(sa.proc.watch.rows)
	strikes := 0
	for _, p := range sa.history.attempts[max(0, len(sa.history.attempts)-rows):] {
		name := p.turn + "/" + string(rune('0'+p.attempt)) + " " + sa.name
		s.must(!s.judged[name], "one verdict for each attempt", "%s", name)
		s.judged[name] = true
		s.log("    verdict on %s: %s, strike %q, recovery %q, %v", name, p.row, p.strike, p.recovery, p.words())
		if p.strike != StrikeNone {
			strikes++
			s.must(simLifeless(p), "no strike after a sign of life", "%s: %v", name, p.words())
		}
		sa.learn(p, b)
		if sa.own.held.Epoch == b.epoch {
			sa.checkEnd(p, p.turn+"/"+strconv.Itoa(p.attempt), b)
		}
	}
	s.counts["strikes"] += sa.proc.watch.strikes
	s.must(sa.proc.watch.strikes <= strikes, "one strike for each attempt", "%s: %d strikes", sa.name, sa.proc.watch.strikes)
	more := sa.record.Health.Strikes - b.record.Health.Strikes
	if sa.own.held.Epoch == b.epoch {
		s.must(more <= strikes, "one strike for each attempt", "%s: %d more strikes after %d verdicts", sa.name, more, rows)
	}
	s.must(sa.own.kept || sa.record.Health.Strikes == 0, "no strikes on a soft key", "%s", sa.name)
}

// simLifeless reads facts apart from the verdict table: sent, and nothing heard.
func simLifeless(p past) bool {
	if !p.has(FactDispatched) {
		return false
	}
	for _, life := range []FactKind{FactCreated, FactProgress, FactDelivered, FactCompleted, FactIncomplete, FactClientGone, FactLocal, FactNotSent} {
		if p.has(life) {
			return false
		}
	}
	return true
}

func (p past) has(kind FactKind) bool { return strings.IndexByte(p.facts, byte(kind)) >= 0 }

// learn notes what an attempt proves of its anchor, apart from the verdict table.
func (sa *simActor) learn(p past, b simBefore) {
	c, ask := &sa.check, sa.sim.asks[p.turn]
	plan, ok := c.plans[p.turn]
	if !ok || plan.Anchor == "" || len(ask.runs) == 0 || !p.has(FactDispatched) {
		return
	}
	anchor, run := plan.Anchor, ask.runs[len(ask.runs)-1]
	injected := plan.Provenance == Injected
	wedged := injected && p.has(FactProgress) && !p.has(FactCreated)
	switch FactKind(p.facts[len(p.facts)-1]) {
	case FactFault:
		if run.outcome == "denied" && run.refusalRead {
			c.lastDenied = anchor
			c.condemn(c.dead, c.missedDead, anchor, sa.owns())
			settled := b.record.Health.Blamed != anchor || sa.record.Health.Strikes == 0 || sa.own.held.Epoch != b.epoch
			sa.sim.must(settled, "a denial settles the strikes of its anchor", "%s: %s", sa.name, anchor)
		}
	case FactFirstEventTimeout:
		silent := injected && plan.Whole && !p.has(FactProgress) && !p.has(FactCreated)
		if silent && ask.lastSent().After(c.reset) {
			c.condemn(c.suspect, c.missedSuspect, anchor, sa.owns())
		}
	case FactIdleTimeout:
		if wedged {
			c.condemn(c.suspect, c.missedSuspect, anchor, sa.owns())
		}
	case FactEnded:
		if wedged && (run.outcome == "prelude" || run.outcome == "cut" || run.outcome == "clean") {
			c.condemn(c.suspect, c.missedSuspect, anchor, sa.owns())
		}
	default:
	}
}

func (*simActorCheck) condemn(known, missed map[string]bool, anchor string, owned bool) {
	known[anchor] = true
	if !owned {
		missed[anchor] = true
	}
}

// checkSends looks at what an actor has sent in this step.
func (sa *simActor) checkSends(b simBefore) {
	s := sa.sim
	for _, f := range sa.flights {
		if f.dispatches == sa.check.sends[f] {
			continue
		}
		sa.check.sends[f] = f.dispatches
		ask := s.asks[f.turn.ID]
		ask.sent = append(ask.sent, s.now)
		ask.mended = (!sa.own.kept || sa.owns()) && sa.record.Anchor.is(f.plan.Anchor)
		sa.check.plans[f.turn.ID] = f.plan
		p, where := f.plan, sa.name+" sends "+f.name()
		s.log("    %s: %s, anchor %q %s, from %d, whole %t, probe %t", where, p.Class, p.Anchor, p.Provenance, p.From, p.Whole, f.probe)
		s.must(f.lease != nil && f.lease.Account().Name == f.link.account, "a turn runs on the account that it holds", "%s", where)
		s.must(!f.gone, "nothing is sent for a client that is gone", "%s", where)
		if p.Provenance == Injected {
			sa.checkInjected(p, f, where)
		}
		if p.Provenance == ClientSupplied {
			s.must(p.Anchor != sa.check.lastDenied, "no denied anchor is sent", "%s", where)
		}
		if p.Anchor == "" && !p.Whole && f.turn.Facts.PreviousResponseID == "" && sa.key.Kind.Hard() {
			s.must(sa.record.Anchor == nil && (!sa.own.kept || sa.owns()), "no delta without its anchor", "%s", where)
		}
		sa.check.sent++
		sa.check.order[f.name()] = sa.check.sent
		sa.checkAgain(f, where)
		if f.probe {
			sa.checkProbe(b, f, where)
		}
		if f.dispatches == 1 && sa.own.kept && !f.probe {
			s.must(!simRefuses(sa.record.Health, s.now), "a circuit that is not closed lets only a probe through", "%s: %+v", where, sa.record.Health)
		}
	}
	probes := 0
	for _, f := range sa.flights {
		if f.probe {
			probes++
		}
	}
	s.must(probes <= 1, "one probe at a time", "%s: %d", sa.name, probes)
}

// checkInjected judges an anchor that the proxy put in.
func (sa *simActor) checkInjected(p Plan, f *flight, where string) {
	s, a := sa.sim, sa.record.Anchor
	s.must(a.is(p.Anchor), "only the newest anchor is injected", "%s", where)
	s.must(!sa.own.kept || sa.owns(), "only an owner injects an anchor", "%s", where)
	s.must(a.Status != AnchorDead && !sa.check.dead[p.Anchor], "no dead anchor is sent", "%s", where)
	if p.Whole {
		s.must(a.Status == AnchorGood && !sa.check.suspect[p.Anchor], "no suspect anchor on a whole payload", "%s", where)
		s.must(p.Class == affinity.ClassFullProved && p.From > 0, "a whole payload is trimmed to what is new", "%s", where)
	}
}

// simRefuses derives the circuit apart from Health: 60 s after the second strike,
// doubled with each up to 600 s, 30 s at most after a clean close.
func simRefuses(h Health, now time.Time) bool {
	if h.Strikes < 2 || now.Sub(h.StruckAt) > time.Hour {
		return false
	}
	if p := h.Probe; p != nil && p.Created && now.Before(p.Until) {
		return false
	}
	return true
}

// checkGate: the gate belongs to a turn that waits for its response, and a turn
// that waits for a write is remembered by its connection.
func (sa *simActor) checkGate() {
	s := sa.sim
	links := append([]*link(nil), sa.leaving...)
	if sa.link != nil {
		links = append(links, sa.link)
	}
	for _, l := range links {
		s.must(!l.ended, "a closed connection is forgotten", "%s", sa.name)
		s.must(l.uncreated == nil || slices.Contains(l.live, l.uncreated) && l.uncreated.responseID == "", "the gate is not leaked", "%s", sa.name)
		waiting := 0
		for _, f := range l.live {
			if f.responseID == "" {
				waiting++
			}
			s.must(f.stage != stageSettled && f.link == l && slices.Contains(sa.flights, f), "a connection carries live turns only", "%s: %s", sa.name, f.name())
		}
		s.must(waiting <= 1, "one turn at a time waits for its response", "%s: %d", sa.name, waiting)
		s.must(len(l.live) < 2 || l.tagged, "responses share a connection only if events name them", "%s", sa.name)
	}
	for _, f := range sa.flights {
		if f.stage == stageSending || f.stage == stageSent {
			s.must(slices.Contains(f.link.live, f), "a sent turn is on its connection", "%s: %s", sa.name, f.name())
		}
	}
}

// checkTurns: the registry counts the turns of an actor that are not settled.
func (sa *simActor) checkTurns() {
	s := sa.sim
	e := sa.registry.sessions[sa.key]
	if e == nil || e.actor != sa.actor {
		s.must(len(sa.flights) == 0 && len(sa.arriving) == 0, "an evicted session has no turn", "%s", sa.name)
		return
	}
	waiting := sa.check.onTheWay
	for _, m := range sa.mails {
		if _, ok := m.(submitted); ok {
			waiting++
		}
	}
	s.must(e.turns == len(sa.flights)+len(sa.arriving)+waiting, "each turn settles once", "%s: %d counted, %d + %d + %d there",
		sa.name, e.turns, len(sa.flights), len(sa.arriving), waiting)
}

// tookOver: what the store knew is known now, and no better than it was.
func (sa *simActor) tookOver() {
	c := &sa.check
	c.dead, c.suspect, c.missedDead, c.missedSuspect = c.missedDead, c.missedSuspect, map[string]bool{}, map[string]bool{}
	s, stored := sa.sim, sa.proc.claims[sa.own.held.Epoch]
	if len(stored.Value) == 0 {
		return
	}
	record, err := DecodeRecord(stored.Value, s.now)
	s.must(err == nil, "records can be read", "%s: %v", sa.name, err)
	is, was := sa.record.Anchor, record.Anchor
	if was == nil {
		return
	}
	s.must(is != nil, "a successor knows the anchor", "%s lost %s", sa.name, was.ResponseID)
	s.must(is.ResponseID != was.ResponseID || is.Status >= was.Status, "no anchor gets better", "%s: %s", sa.name, was.ResponseID)
	moved := was.Connection != 0 && was.Connection>>32 != uint64(sa.proc.base) && is.ResponseID == was.ResponseID
	s.must(sa.record.Health.MinGeneration == 0 || sa.record.Health.MinGeneration>>32 == uint64(sa.proc.base),
		"sockets are not compared with those of another process", "%s", sa.name)
	s.must(!moved || is.Status == AnchorDead, "an anchor of another process' socket is dead", "%s: %s is %s", sa.name, is.ResponseID, is.Status)
}

// gone: an actor that ends leaves nothing behind.
func (sa *simActor) gone() {
	for _, c := range sa.conns {
		sa.sim.must(!c.open(), "connections end with their session", "%s", sa.name)
	}
}

// saving: what is written is written by who holds the key.
func (p *simProc) saving(h store.Held, value []byte) {
	p.sim.must(h.Holder.Same(p.holder) && len(value) > 0, "only the owner writes", "%s saves for %s", p.name, h.Holder.Process)
}
