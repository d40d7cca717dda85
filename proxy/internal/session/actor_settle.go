package session

import (
	"slices"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// judge ends an attempt: one verdict, its effects, then recovery or the
// client's end. event is the attempt's own last event, if it had one.
func (a *actor) judge(f *flight, event *upstream.Event) {
	e := Digest(f.facts)
	v := Decide(e, a.turnState(f, e))
	a.services.Observer.AttemptDone(f.transport, v.Row)
	f.spend(event)
	a.affectAccount(f, v, e)
	f.endPermit(v.Kind)
	a.affectRecord(f, v)
	if l := f.link; l != nil {
		l.remove(f)
		if f.responseID != "" {
			l.done = lastFew(l.done, f.responseID)
		}
		if v.Retire {
			a.leave(l, a.now())
		} else {
			a.tidy(l)
		}
	}
	if f.gone || a.forced {
		v.Recovery = RecoverNone
	}
	a.remember(f, v, v.Recovery)
	if v.Recovery != RecoverNone {
		if event != nil {
			event.Release()
		}
		f.dropHeld()
		a.persist()
		a.recover(f, v, e)
		return
	}
	if event != nil && v.Client == DeliverEvent {
		a.spoolEvent(f, event)
	}
	a.recordOutcome(f, e)
	a.noteCalls(f, v)
	a.finish(f, v, e, event)
	a.persist()
}

func (a *actor) turnState(f *flight, e Evidence) TurnState {
	policy := RetryPolicyOf(f.turn.Runtime.Bundle.Circuit.RetryCircuit)
	t := TurnState{Plan: f.plan, Recovered: f.spent, Redialed: f.redialed, Moved: len(f.excluded) > 0, CleanCloses: f.cleanCloses,
		Attempts: f.attempts, Retry: policy, Budget: a.registry.budget.leaves(policy.Percent, a.now()),
		Prewarm: !f.turn.Facts.Generate, Duplicate: f.duplicate}
	if k := e.Last.Kind; (k == FactEnded || k == FactFirstEventTimeout) && !e.Life && f.turn.Body != nil {
		t.Neutral = affinity.Neutral(f.turn.Body)
	}
	return t
}

// noteCalls remembers the acting tool calls of a turn that broke.
func (a *actor) noteCalls(f *flight, v Verdict) {
	if !a.own.kept {
		return
	}
	if v.Settles {
		a.replayed.broke(f.turn.Fingerprint, nil)
		return
	}
	if calls := append(a.replayed.of(f.turn.Fingerprint), f.calls...); len(calls) > 0 {
		a.replayed.broke(f.turn.Fingerprint, calls)
	}
}

// affectRecord carries a verdict into the record, before anybody hears of it: a
// client that resends at once is planned against what is known now.
func (a *actor) affectRecord(f *flight, v Verdict) {
	before := a.record.Anchor
	if v.Strike != StrikeNone {
		a.strike(f, v.Strike)
	}
	switch v.Anchor {
	case AnchorDies:
		if f.plan.Anchor != "" {
			a.apply(Event{Denied: clone(f.plan.Anchor)})
		}
	case AnchorWedges:
		a.apply(Event{Wedged: &Wedged{Anchor: f.plan.Anchor, Generation: f.link.generation}})
	case AnchorReplaced:
		a.replaceAnchor(f)
	case AnchorKeeps:
	}
	if v.Settles && f.probe {
		a.probeEnded(f, "closed")
	}
	if after := a.record.Anchor; after != nil && after.is(before.id()) && after.Status > before.Status {
		a.services.Observer.AnchorRetired(after.Cause)
	}
}

func (a *actor) strike(f *flight, class StrikeClass) {
	spared := f.plan.Provenance == Injected && f.plan.Whole
	if !a.own.kept {
		// Nothing counts against a soft key; but an anchor that was answered with
		// silence is not tried again.
		if spared && class == StrikeSilence {
			a.apply(Event{Wedged: &Wedged{Anchor: f.plan.Anchor, Generation: f.link.generation}})
		}
		return
	}
	a.apply(Event{Struck: &Struck{Attempt: f.name(), Turn: f.turn.ID, Sequence: f.sequence, Class: class, Anchor: f.plan.Anchor,
		Spared: spared, Policy: a.policy}})
	a.services.Observer.Struck(class)
	if f.probe {
		a.probeEnded(f, "reopened")
	}
}

// replaceAnchor makes the response the next turn's anchor, if one can be built
// on it, and settles the circuit.
func (a *actor) replaceAnchor(f *flight) {
	done := Completed{Sequence: f.sequence}
	l := f.link
	scoped := upstream.AnchorScope(f.turn.Runtime.Bundle.Pool.Provider.Type) == upstream.ScopeConnection
	if f.responseID != "" {
		anchor := Anchor{ResponseID: f.responseID, Account: l.account, Known: f.known}
		if scoped {
			anchor.Connection = l.generation
		}
		anchor.Known.Outputs = f.outputs
		usable := l.transport == WebSocket && !f.gone || anchor.Connection == 0
		// A proxy that has lost the key publishes nothing.
		if usable && !f.turn.Facts.HasConversation && (!a.own.kept || a.own.valid()) {
			done.Anchor = &anchor
		}
		owner := Owner{Known: true, Key: a.key, Account: l.account, Stored: f.turn.Facts.Store}
		if l.transport == WebSocket {
			owner.Connection = anchor.Connection
		}
		a.registry.remember(f.responseID, f.turn.Client, owner)
	}
	a.apply(Event{Completed: &done})
}

// recover starts the next attempt of the same turn.
func (a *actor) recover(f *flight, v Verdict, e Evidence) {
	f.attempt++
	f.facts, f.link, f.responseID, f.outputs = nil, nil, "", nil
	f.duplicate = false
	if f.cancel != nil {
		f.cancel()
	}
	a.services.Observer.Replayed(proofOf(v, e))
	if spends(v.Recovery, v.Kind) {
		f.attempts++
		a.registry.budget.spend(a.now())
	}
	switch v.Recovery {
	case RecoverRedial:
		f.redialed = true
	case RecoverHTTP:
		a.registry.noteNoWebSocket(f.turn.Runtime.Bundle.Pool.Provider.Endpoint)
		f.transport = HTTP
	case RecoverOtherAccount, RecoverAnyAccount:
		a.otherAccount(f, v, e)
		return
	case RecoverWhole:
		f.spent, f.whole = true, true
	case RecoverAfterPause:
		f.cleanCloses++
		f.stage, f.resumeAt = stagePausing, a.now().Add(a.world.jitter(maxPause))
		a.arm()
		return
	case RecoverNone:
	}
	a.connect(f)
}

// resume goes on after a pause.
func (a *actor) resume(f *flight) {
	if f.lease == nil {
		a.takeAccount(f)
		return
	}
	a.connect(f)
}

// proofOf names what makes it legal to send a turn again.
func proofOf(v Verdict, e Evidence) string {
	switch {
	case !e.Dispatched || e.Last.Kind == FactRefused:
		return "unsubmitted"
	case e.Last.Kind == FactFault:
		return "denied"
	case v.Recovery == RecoverWhole:
		return "silent_anchor"
	}
	return "neutral"
}

// maxPause is the longest pause before a turn is sent again after a clean close,
// so that the clients of a server that goes away do not come back as one.
const maxPause = 2 * time.Second

// otherAccount asks the next account.
func (a *actor) otherAccount(f *flight, v Verdict, e Evidence) {
	if f.first == nil {
		f.first = clientFailure(f, v, e, a.now())
	}
	if e.Last.Kind == FactFirstEventTimeout {
		f.spent = true // it may have run: this is the one time that it is sent again
	}
	f.excluded = append(f.excluded, f.lease.Account().Name)
	f.again = v.Recovery == RecoverAnyAccount
	f.lease.Release()
	f.lease, f.redialed, f.needs.Prefer = nil, false, ""
	a.takeAccount(f)
}

// sameAccount asks the accounts once more that were no good a moment ago, after a
// pause: there is no other, and the fault was none of theirs.
func (a *actor) sameAccount(f *flight) {
	f.again, f.excluded = false, nil
	f.stage, f.resumeAt = stagePausing, a.now().Add(a.world.jitter(maxPause))
	a.arm()
}

// finish gives the client its end.
func (a *actor) finish(f *flight, v Verdict, e Evidence, event *upstream.Event) {
	if event != nil && !f.gone && (v.Client == DeliverEvent || v.Client == DeliverFault && event.Kind == upstream.KindFailed) {
		if !a.reveal(f) {
			event.Release()
		} else if f.turn.Out.push(forClient(*event, v.Kind)) {
			a.settle(f, nil)
			return
		}
		a.settle(f, failure.New(failure.DownstreamOverflow, "The client reads more slowly than the response arrives."))
		return
	}
	if event != nil {
		event.Release()
	}
	if f.first != nil && e.Last.Fault != nil && e.Last.Fault.SealedForeign() {
		// Another account was asked and cannot open what the first one sealed: the
		// first answer is the truth.
		a.settle(f, f.first)
		return
	}
	a.settle(f, clientFailure(f, v, e, a.now()))
}

// settle ends a turn. It happens exactly once a turn.
func (a *actor) settle(f *flight, end *failure.Failure) {
	if f.stage == stageSettled {
		return
	}
	f.stage = stageSettled
	f.dropHeld()
	if f.probe {
		a.probe(f, ProbeReturned)
	}
	if f.cancel != nil {
		f.cancel()
	}
	f.endPermit(outcome.Shed) // nothing was sent, and nothing was learned
	if f.lease != nil {
		f.lease.Release()
	}
	a.unlist(f)
	f.turn.Out.end(end)
	a.idleSince = a.now()
	a.registry.release(a)
}

// unlist takes a flight off the list; no pointer to its turn is left.
func (a *actor) unlist(f *flight) {
	if i := slices.Index(a.flights, f); i >= 0 {
		a.flights = slices.Delete(a.flights, i, i+1)
	}
}

// detach: the client is gone. What was not sent is dropped; what was sent gets a
// moment to end, on a link that takes no other turn.
func (a *actor) detach(t *Turn) {
	for i, f := range a.arriving {
		if f.turn == t {
			a.arriving = slices.Delete(a.arriving, i, i+1)
			a.dismiss(f, nil)
			return
		}
	}
	for _, f := range a.flights {
		if f.turn == t {
			a.abandon(f, nil)
			return
		}
	}
}

func (a *actor) abandon(f *flight, end *failure.Failure) {
	if f.gone {
		return
	}
	f.gone = true
	f.dropHeld()
	f.turn.Out.end(end)
	f.turn.Out.detach()
	if f.link == nil && (f.stage == stageRecalling || f.stage == stageRereading) {
		a.settle(f, nil)
		return
	}
	if f.link == nil {
		f.note(FactClientGone)
		a.judge(f, nil)
		return
	}
	a.leave(f.link, a.now().Add(f.turn.Limits.CancelGrace))
	a.arm()
}

// leave takes a link out of use. It closes when its last flight has ended, at
// the latest at until.
func (a *actor) leave(l *link, until time.Time) {
	if a.link == l {
		a.link = nil
	}
	if !l.leaving && !l.ended {
		l.leaving = true
		a.leaving = append(a.leaving, l)
	}
	if l.until.IsZero() || until.Before(l.until) {
		l.until = until
	}
	a.tidy(l)
}

// tidy closes a leaving link that nothing runs on. An HTTP answer is read to its
// end first.
func (a *actor) tidy(l *link) {
	if !l.leaving || len(l.live) > 0 {
		return
	}
	if l.transport == HTTP && l.until.IsZero() {
		l.until = a.now().Add(tailGrace)
		a.arm()
		return
	}
	if l.transport == HTTP && a.now().Before(l.until) {
		return
	}
	a.close(l)
}

func (a *actor) close(l *link) {
	a.end(l)
	a.sendNext(l)
}

// end closes a link for good, once.
func (a *actor) end(l *link) {
	a.forget(l)
	if !l.ended {
		l.ended = true
		l.conn.Close()
		a.registry.sockets.Add(-1)
		a.apply(Event{ConnectionGone: l.generation})
	}
}

// forget drops a link from the actor's lists.
func (a *actor) forget(l *link) {
	if a.link == l {
		a.link = nil
	}
	for i, other := range a.leaving {
		if other == l {
			a.leaving = slices.Delete(a.leaving, i, i+1)
			return
		}
	}
}
