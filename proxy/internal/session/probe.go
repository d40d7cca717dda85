package session

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// suppressed refuses a turn that the circuit of its key does not let through. It
// leaves no trace: no lease, no record, no longer cool-down.
func (a *actor) suppressed(f *flight) *failure.Failure {
	if !a.own.kept {
		return nil
	}
	return a.suppression(f, a.record.Health.Admit(a.policy, a.evades(f), a.now()))
}

func (a *actor) suppression(f *flight, ad Admission) *failure.Failure {
	if ad.Refusal == "" {
		return nil
	}
	a.log().Info("A turn was not let through: the turns before it on this session failed without any answer",
		"turn", f.turn.ID, "reason", ad.Refusal, "retry_after", ad.After)
	return failure.New(failure.CircuitOpen,
		"The last turns of this conversation failed without any answer; it is being left alone for a while.",
		failure.Reason(ad.Refusal), failure.After(ad.After))
}

// evades says whether a turn goes without the anchor that all strikes of its key
// were made with.
func (a *actor) evades(f *flight) bool {
	h, anchor := a.record.Health, a.record.Anchor
	if h.Blamed == "" || !a.needsNoRecord(f) || f.turn.Facts.PreviousResponseID != "" {
		return false
	}
	return !anchor.is(h.Blamed) || anchor.Status != AnchorGood
}

// takeProbe asks the circuit once more, right before a turn is sent for the first
// time, and takes the probe's token if it is to be the probe. What is sent again
// is the same turn's business.
func (a *actor) takeProbe(f *flight) *failure.Failure {
	if !a.own.kept || f.dispatches > 0 || f.probe {
		return nil
	}
	now := a.now()
	ad := a.record.Health.Admit(a.policy, a.evades(f), now)
	if refusal := a.suppression(f, ad); refusal != nil {
		return refusal
	}
	if !ad.Probe {
		return nil
	}
	until := now.Add(a.policy.ProbeLease)
	a.apply(Event{Probe: &ProbeEvent{Token: f.turn.ID, Do: ProbeTaken, Until: until, Policy: a.policy, Early: ad.Early}})
	f.probe, f.renewAt = true, now.Add(a.policy.ProbeLease/3)
	a.services.Observer.Probed("taken")
	a.persist()
	return nil
}

// probe changes the token that a flight holds.
func (a *actor) probe(f *flight, do ProbeAction) {
	e := ProbeEvent{Token: f.turn.ID, Do: do}
	switch do {
	case ProbeRenewed:
		e.Until = a.now().Add(a.policy.ProbeLease)
		f.renewAt = a.now().Add(a.policy.ProbeLease / 3)
	case ProbeReturned:
		a.probeEnded(f, "returned")
	case ProbeProved, ProbeTaken:
	}
	a.apply(Event{Probe: &e})
	a.persist()
}

// probeEnded notes that the record has let go of a flight's probe.
func (a *actor) probeEnded(f *flight, outcome string) {
	f.probe, f.renewAt = false, time.Time{}
	a.services.Observer.Probed(outcome)
}

// keepProbe takes the probe of a turn that runs already in a record that does not
// know of it. Where that record's circuit is closed, or another's probe is out, the
// turn is an ordinary one from here on.
func (a *actor) keepProbe(record Record, f *flight) Record {
	now, token := a.now(), f.turn.ID
	taken := ProbeEvent{Token: token, Do: ProbeTaken, Until: now.Add(a.policy.ProbeLease), Policy: a.policy, Early: true}
	record = Apply(record, Event{Probe: &taken}, now)
	if Digest(f.facts).Created {
		record = Apply(record, Event{Probe: &ProbeEvent{Token: token, Do: ProbeProved}}, now)
	}
	if p := record.Health.Probe; p == nil || p.Token != token {
		a.probeEnded(f, "returned")
	}
	return record
}
