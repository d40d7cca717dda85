package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// takeAccount waits for an account, beside the actor.
func (a *actor) takeAccount(f *flight) {
	f.stage = stageLeasing
	due := f.turn.Budget.Due()
	if due.IsZero() {
		due = a.now().Add(farAway)
	}
	ctx, cancel := context.WithDeadline(a.ctx, due)
	f.cancel = cancel
	want := account.Want{Model: clone(f.turn.Facts.Model), Only: f.needs.Only, Prefer: f.needs.Prefer, Exclude: f.excluded,
		Client: f.turn.Client, Lane: f.turn.Lane, Permit: f.turn.place.held(), Continues: a.record.Account != ""}
	attempt, accounts := f.attempt, a.services.Accounts
	a.world.beside(a, func() any {
		defer cancel()
		lease, err := accounts.Acquire(ctx, want)
		return leased{f, attempt, lease, err}
	})
}

// farAway is longer than any lane lets a turn wait.
const farAway = 24 * time.Hour

func (a *actor) leased(m leased) {
	f := m.flight
	if f.stage != stageLeasing || f.attempt != m.attempt {
		if m.lease != nil {
			m.lease.Release()
		}
		return
	}
	if m.err != nil {
		switch {
		case f.again:
			a.sameAccount(f)
			return
		case f.first != nil:
			a.settle(f, f.first) // no account is left to ask
			return
		}
		a.settle(f, failure.From(m.err))
		return
	}
	f.lease = m.lease
	f.turn.place.take(f.lease.Permit())
	a.catchUp() // a socket that has just ended is not used
	if f.stage == stageLeasing {
		a.connect(f)
	}
}

// connect finds or opens the connection for a flight that has its account.
func (a *actor) connect(f *flight) {
	name := f.lease.Account().Name
	endpoint := f.turn.Runtime.Bundle.Pool.Provider.Endpoint
	if f.transport == WebSocket && a.registry.withoutWebSocket(endpoint) {
		f.transport = HTTP
	}
	if refusal := a.takePermit(f); refusal != nil {
		a.services.Observer.Suppressed(refusal.Reason)
		a.settle(f, refusal)
		return
	}
	if a.link != nil && a.link.generation < a.record.Health.MinGeneration {
		a.leave(a.link, time.Time{}) // a socket that wedged; what runs on it may end
	}
	if a.link != nil && f.transport == WebSocket && a.link.transport == WebSocket && a.link.account == name {
		if a.link.writing {
			f.stage, a.link.next = stageQueued, f
			return
		}
		a.send(f, a.link)
		return
	}
	if a.link != nil && f.transport == WebSocket {
		a.leave(a.link, a.now()) // it belongs to another account
	}
	target := upstream.Target{Endpoint: endpoint, Account: name, Credential: f.lease.Account().Credential}
	dialer := a.services.Dialer(f.turn.Runtime)
	if f.transport == HTTP {
		target.Header = upstream.RequestHeader(f.turn.Header)
		// One request of a client may be several upstream: the key is kept here.
		target.Header.Del("Idempotency-Key")
		a.open(f, dialer.HTTP(target))
		return
	}
	target.Header = upstream.UpgradeHeader(f.turn.Header, !a.key.Kind.Hard())
	f.stage = stageDialing
	ctx, cancel := context.WithCancel(a.ctx)
	f.cancel = cancel
	attempt := f.attempt
	a.world.beside(a, func() any {
		defer cancel()
		conn, err := dialer.WebSocket(ctx, target)
		return dialed{f, attempt, conn, err}
	})
}

func (a *actor) dialed(m dialed) {
	f := m.flight
	if f.stage != stageDialing || f.attempt != m.attempt {
		if m.err == nil {
			m.conn.Close()
		}
		return
	}
	if m.err != nil {
		f.facts = append(f.facts, dialFact(m.err))
		a.judge(f, nil)
		return
	}
	a.open(f, m.conn)
}

// open takes a new connection into use.
func (a *actor) open(f *flight, conn upstream.Conn) {
	l := &link{conn: conn, account: f.lease.Account().Name, transport: f.transport, generation: a.registry.nextGeneration()}
	if f.transport == WebSocket {
		l.turnState = strings.Clone(conn.Header().Get(affinity.TurnStateHeader))
		a.link = l
	} else {
		// One request, one answer: no other turn is sent on it.
		l.leaving = true
		a.leaving = append(a.leaving, l)
	}
	a.registry.sockets.Add(1)
	a.world.listen(a, l)
	a.send(f, l)
}

// send plans the attempt and writes it. Nothing can change between the plan and
// the write: both happen in one step of the actor.
func (a *actor) send(f *flight, l *link) {
	target := Target{Account: l.account, Scope: upstream.AnchorScope(f.turn.Runtime.Bundle.Pool.Provider.Type)}
	if l.transport == WebSocket {
		target.Connection = l.generation
	}
	plan, refusal := Make(a.question(f, target))
	if refusal == nil {
		refusal = a.sentMeanwhile(f)
	}
	if refusal == nil {
		refusal = a.takeProbe(f)
	}
	if refusal != nil {
		if l.transport == HTTP {
			a.close(l)
		}
		a.services.Observer.Suppressed(refusal.Reason)
		a.settle(f, refusal)
		return
	}
	state := ""
	if f.turn.Echoed {
		state = l.turnState
	}
	request := frame(f.turn.Body, f.turn.Facts.Input, plan, l.transport, state)
	if l.transport == WebSocket && request.Size() > maxFrameBytes {
		f.transport = HTTP
		a.connect(f)
		return
	}
	a.dispatch(f, l, plan)
	attempt, observer := f.attempt, a.services.Observer
	recorded := a.journal(f)
	a.world.beside(a, func() any {
		if err := recorded(); err != nil {
			return sent{l, f, attempt, err}
		}
		err := l.conn.Send(request)
		if err == nil {
			observer.RequestSent(l.transport, request.Size())
		}
		return sent{l, f, attempt, err}
	})
}

// dispatch notes that the attempt goes out now.
func (a *actor) dispatch(f *flight, l *link, plan Plan) {
	f.plan, f.link, f.stage = plan, l, stageSending
	f.known = affinity.Known{}
	if plan.Whole { // the body holds the whole conversation, so its digest is known
		in := f.turn.Facts.Input
		f.known = affinity.Known{Items: len(in.Items), Prefix: in.Prefix()}
	}
	f.sent, f.expiring = a.now(), time.Time{}
	f.lastEvent = f.sent
	if f.dispatches++; f.dispatches == 1 {
		f.attempts = 1
		a.registry.budget.turn(f.sent)
	}
	f.before, f.calls = a.replayed.of(f.turn.Fingerprint), nil
	f.note(FactDispatched)
	l.uncreated, l.live = f, append(l.live, f)
	l.turns++
	l.writing = true
	if l.transport == WebSocket {
		f.turn.Out.setHead(l.conn.Header(), l.turns == 1)
	}
	a.apply(Event{Sent: &Sent{l.account, clone(f.turn.Facts.Model)}})
	f.sequence = a.record.Health.Sequence
	a.recordTurn(f)
}

func (a *actor) sent(m sent) {
	m.link.writing = false
	if f := m.flight; f.stage == stageSending && f.attempt == m.attempt {
		if m.err == nil {
			f.stage = stageSent
		} else if errors.Is(m.err, errUnrecorded) {
			a.unrecorded(f)
		} else {
			fact := sendFact(m.err)
			fact.Partial = true
			f.facts = append(f.facts, fact)
			a.judge(f, nil)
		}
	}
	a.sendNext(m.link)
}

// sendNext goes on with the flight that waited for a write to end; if the link
// left meanwhile, it gets another one.
func (a *actor) sendNext(l *link) {
	f := l.next
	l.next = nil
	if f != nil && f.stage == stageQueued {
		a.connect(f)
	}
}
