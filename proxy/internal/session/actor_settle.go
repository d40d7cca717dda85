package session

import (
	"slices"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// judge ends an attempt: one verdict, its effects, then recovery or the
// client's end. event is the attempt's own last event, if it had one.
func (a *actor) judge(f *flight, event *upstream.Event) {
	e := Digest(f.facts)
	v := Decide(e, TurnState{Plan: f.plan, Recovered: f.recovered, Redialed: f.redialed})
	a.services.Observer.AttemptDone(f.transport, v.Row)
	a.log.Debug("Attempt ended", "turn", f.turn.ID, "attempt", f.attempt, "verdict", v.Row, "class", f.plan.Class.String(),
		"anchor", f.plan.Provenance.String(), "dispatched", e.Dispatched, "life", e.Life, "delivered", e.Delivered)
	a.affectAccount(f, v, e)
	a.affectAnchor(f, v)
	if l := f.link; l != nil {
		l.remove(f)
		l.lastDone = f.responseID
		if v.Retire {
			a.leave(l, time.Now())
		} else {
			a.tidy(l)
		}
	}
	if !f.gone && v.Recovery != RecoverNone && !a.forced {
		if event != nil {
			event.Release()
		}
		a.recover(f, v, e)
		return
	}
	a.finish(f, v, e, event)
}

func (a *actor) affectAccount(f *flight, v Verdict, e Evidence) {
	if f.lease == nil {
		return
	}
	now := time.Now()
	until := now.Add(limitPause)
	if fault := e.Last.Fault; fault != nil {
		if t, ok := account.ResetHint(fault.Header, fault.Raw, now); ok {
			until = t
		}
	}
	switch v.Account {
	case AccountSucceeded:
		a.services.Accounts.Succeeded(f.lease.Account().Name)
	case AccountRejected:
		f.lease.CoolDown(now.Add(rejectedPause), account.ReasonAuthRejected)
	case AccountLimited:
		f.lease.CoolDown(until, account.ReasonRateLimited)
	case AccountExhausted:
		f.lease.CoolDown(until, account.ReasonQuotaExhausted)
	case AccountUnreachable:
		f.lease.CoolDown(now.Add(connectPause), account.ReasonConnectFailed)
	case AccountKeeps:
	}
}

// Pauses of an account when the upstream gives no time of its own.
const (
	limitPause    = 30 * time.Second
	rejectedPause = 5 * time.Minute
	connectPause  = 2 * time.Second
)

func (a *actor) affectAnchor(f *flight, v Verdict) {
	now := time.Now()
	switch v.Anchor {
	case AnchorDies:
		a.record = Apply(a.record, Event{Denied: f.plan.Anchor}, now)
	case AnchorSuspected:
		a.record = Apply(a.record, Event{Suspected: f.plan.Anchor}, now)
	case AnchorReplaced:
		a.replaceAnchor(f, now)
	case AnchorKeeps:
	}
}

func (a *actor) replaceAnchor(f *flight, now time.Time) {
	if f.responseID == "" || !f.turn.Facts.Generate {
		return // a prewarm is no turn to build on
	}
	l := f.link
	anchor := Anchor{ResponseID: f.responseID, Account: l.account}
	if upstream.AnchorScope(f.turn.Runtime.Bundle.Pool.Provider.Type) == upstream.ScopeConnection {
		anchor.Connection = l.generation
	}
	anchor.Known = f.known
	anchor.Known.Outputs = f.outputs
	usable := l.transport == WebSocket && !f.gone || anchor.Connection == 0
	if usable && !f.turn.Facts.HasConversation {
		a.record = Apply(a.record, Event{Completed: &anchor}, now)
	}
	owner := Owner{Known: true, Key: a.key, Account: l.account, Stored: f.turn.Facts.Store}
	if l.transport == WebSocket {
		owner.Connection = anchor.Connection
	}
	a.registry.owners.put(f.responseID, f.turn.Client, owner)
}

// recover starts the next attempt of the same turn.
func (a *actor) recover(f *flight, v Verdict, e Evidence) {
	f.attempt++
	f.facts, f.link, f.responseID, f.outputs = nil, nil, "", nil
	if f.cancel != nil {
		f.cancel()
	}
	switch v.Recovery {
	case RecoverRedial:
		f.redialed = true
	case RecoverHTTP:
		a.registry.noteNoWebSocket(f.turn.Runtime.Bundle.Pool.Provider.Endpoint)
		f.transport = HTTP
	case RecoverOtherAccount:
		if f.first == nil {
			f.first = clientFailure(v, e, time.Now())
		}
		f.excluded = append(f.excluded, f.lease.Account().Name)
		f.lease.Release()
		f.lease, f.redialed, f.needs.Prefer = nil, false, ""
		a.takeAccount(f)
		return
	case RecoverWhole:
		f.recovered = true
	case RecoverNone:
	}
	a.connect(f)
}

// finish gives the client its end.
func (a *actor) finish(f *flight, v Verdict, e Evidence, event *upstream.Event) {
	if event != nil && !f.gone && (v.Client == DeliverEvent || v.Client == DeliverFault && event.Kind == upstream.KindFailed) {
		if f.turn.Out.push(*event) {
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
	a.settle(f, clientFailure(v, e, time.Now()))
}

// settle ends a turn. It happens exactly once a turn.
func (a *actor) settle(f *flight, end *failure.Failure) {
	if f.stage == stageSettled {
		return
	}
	f.stage = stageSettled
	if f.cancel != nil {
		f.cancel()
	}
	if f.lease != nil {
		f.lease.Release()
	}
	for i, other := range a.flights {
		if other == f {
			a.flights = slices.Delete(a.flights, i, i+1) // leaves no pointer to the turn
			break
		}
	}
	f.turn.Out.end(end)
	a.idleSince = time.Now()
	a.registry.release(a)
}

// detach: the client is gone. What was not sent is dropped; what was sent gets a
// moment to end, on a link that takes no other turn.
func (a *actor) detach(t *Turn) {
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
	f.turn.Out.end(end)
	f.turn.Out.detach()
	if f.link == nil {
		f.note(FactClientGone)
		a.judge(f, nil)
		return
	}
	a.leave(f.link, time.Now().Add(f.turn.Runtime.Deadlines.CancelGrace))
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
		l.until = time.Now().Add(tailGrace)
		a.arm()
		return
	}
	if l.transport == HTTP && time.Now().Before(l.until) {
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
		a.record = Apply(a.record, Event{ConnectionGone: l.generation}, time.Now())
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

func queueTimeout(rt *config.Runtime) time.Duration {
	for _, b := range rt.Bundle.Circuit.Bulkheads {
		if b.Lane == "HTTP" && b.QueueTimeoutSeconds > 0 {
			return time.Duration(b.QueueTimeoutSeconds) * time.Second
		}
	}
	return defaultQueueTimeout
}

// defaultQueueTimeout is the built-in profile's.
const defaultQueueTimeout = 30 * time.Second
