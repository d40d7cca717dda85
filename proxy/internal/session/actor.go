package session

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Sizes and times of an actor.
const (
	mailSize   = 8
	framesSize = 16
	// expiryGrace lets an event that had already reached the machine win against
	// the deadline it was about to miss.
	expiryGrace = 50 * time.Millisecond
	// tailGrace is how long an HTTP answer may take to end after its last event;
	// read to its end, its connection serves the next request.
	tailGrace = time.Second
	// maxFrameBytes is the largest request that goes over a WebSocket: upstreams
	// close sockets at 16 MiB, with code 1009. A larger one goes by HTTP.
	maxFrameBytes = 15 << 20
	// silentIdles is how many idle limits a stream may stay silent while the
	// upstream still answers pings: long reasoning lives, a hung backend behind a
	// healthy load balancer does not live for ever.
	silentIdles = 6
)

// actor owns one session. Everything reaches it as a message on one of its
// channels; nothing else touches its fields.
type actor struct {
	key      affinity.Key
	registry *Registry
	services *Services
	log      *slog.Logger

	mail   chan any
	frames chan inbound
	done   chan struct{}
	timer  *time.Timer
	armed  time.Time
	ctx    context.Context //nolint:containedctx // the actor's own life, not a request's
	cancel context.CancelFunc

	record    Record
	link      *link   // where the next turn goes; nil = none open
	leaving   []*link // links that take no further turn
	flights   []*flight
	idleSince time.Time
	closing   bool // no turn comes any more
	forced    bool // and those that run end now
}

// Messages to an actor. attempt tells a late answer from a timely one.
type (
	submitted struct{ turn *Turn }
	detached  struct{ turn *Turn }
	leased    struct {
		flight  *flight
		attempt int
		lease   *account.Lease
		err     error
	}
	dialed struct {
		flight  *flight
		attempt int
		conn    upstream.Conn
		err     error
	}
	sent struct {
		link    *link
		flight  *flight
		attempt int
		err     error
	}
	evicted  struct{}
	draining struct{ force bool }
	inbound  struct {
		link  *link
		event upstream.Event
		err   error
	}
)

func newActor(key affinity.Key, r *Registry, record Record) *actor {
	a := &actor{
		key: key, registry: r, services: &r.services, record: record,
		log:  r.services.Log.With("session", key.Short(), "kind", key.Kind.String()),
		mail: make(chan any, mailSize), frames: make(chan inbound, framesSize), done: make(chan struct{}),
		timer: time.NewTimer(time.Hour), idleSince: time.Now(),
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

func (a *actor) run() {
	defer a.stop()
	for {
		select {
		case m := <-a.mail:
			a.handle(m)
			a.advance()
			a.arm()
		case in := <-a.frames:
			a.receive(in)
			a.advance()
		case <-a.timer.C:
			a.armed = time.Time{}
			a.expire(time.Now())
			a.advance()
			a.arm()
		}
		if a.idle() && a.registry.retire(a) {
			return
		}
	}
}

// idle says whether nothing keeps the actor.
func (a *actor) idle() bool {
	if len(a.flights) > 0 || len(a.leaving) > 0 {
		return false
	}
	return a.closing || time.Since(a.idleSince) >= idleLimit(a.key.Kind)
}

// idleLimit is how long a session without a turn keeps its socket. Coding agents
// pause for minutes between turns; a lane beside another session is used once.
func idleLimit(k affinity.Kind) time.Duration {
	switch k {
	case affinity.KindRequest, affinity.KindUnanchoredParallel, affinity.KindRequestParallel, affinity.KindSoftReroute:
		return 0
	case affinity.KindTurnState, affinity.KindThread, affinity.KindSession, affinity.KindModelParallel, affinity.KindCodexSession, affinity.KindStickyThread:
		return 900 * time.Second
	case affinity.KindPromptCache:
		return 120 * time.Second
	}
	return 0
}

// post hands a message to the actor from another goroutine; false = it has ended.
func (a *actor) post(m any) bool {
	select {
	case a.mail <- m:
		return true
	case <-a.done:
		return false
	}
}

func (a *actor) handle(m any) {
	switch m := m.(type) {
	case submitted:
		a.submit(m.turn)
	case detached:
		a.detach(m.turn)
	case leased:
		a.leased(m)
	case dialed:
		a.dialed(m)
	case sent:
		a.sent(m)
	case evicted:
		a.closing = true
	case draining:
		a.drain(m.force)
	}
}

// submit takes a turn in, refuses it, or passes it to a lane beside this one.
func (a *actor) submit(t *Turn) {
	if t.at.gone.Load() { // it will not hear of a detach that came before
		t.Out.end(nil)
		a.registry.release(a)
		return
	}
	f := &flight{turn: t, submitted: time.Now(), transport: t.Transport}
	needs, refusal := Route(a.question(f, Target{}))
	if refusal != nil {
		t.Out.end(refusal)
		a.registry.release(a)
		return
	}
	f.needs = needs
	if lane, ok := a.laneFor(f); ok {
		a.registry.release(a)
		a.registry.submitTo(lane, t)
		return
	}
	a.registry.alias(t, a.key)
	a.flights = append(a.flights, f)
}

// laneFor says whether a turn is better off beside this session: it needs
// another model, or it is independent of the turn that runs here. An
// independent turn is never queued behind an unrelated one.
func (a *actor) laneFor(f *flight) (affinity.Key, bool) {
	modelLane := a.key.Kind == affinity.KindModelParallel // it never forks by model again
	if f.needs.Ordered || a.key.Kind.Lane() && !modelLane {
		return affinity.Key{}, false
	}
	if model := f.turn.Facts.Model; !modelLane && a.record.Model != "" && model != "" && !strings.EqualFold(model, a.record.Model) {
		return affinity.Lane(affinity.KindModelParallel, a.key, strings.ToLower(model)), true
	}
	for _, other := range a.flights {
		if !other.gone {
			return affinity.Lane(affinity.KindUnanchoredParallel, a.key, f.turn.ID), true
		}
	}
	return affinity.Key{}, false
}

// advance starts the next waiting turn when the way is free.
func (a *actor) advance() {
	if a.link != nil && !a.link.free() {
		return
	}
	var next *flight
	for _, f := range a.flights {
		switch f.stage {
		case stageLeasing, stageDialing, stageQueued, stageSending:
			if !f.gone {
				return
			}
		case stageWaiting:
			if next == nil {
				next = f
			}
		case stageSent, stageSettled:
		}
	}
	if next != nil {
		a.takeAccount(next)
	}
}

func (a *actor) question(f *flight, target Target) Question {
	return Question{Facts: f.turn.Facts, Hard: a.key.Kind.Hard(), Owner: f.turn.Owner, Record: a.record,
		Target: target, Whole: f.recovered}
}

// takeAccount waits for an account, beside the actor.
func (a *actor) takeAccount(f *flight) {
	f.stage = stageLeasing
	ctx, cancel := context.WithTimeout(a.ctx, queueTimeout(f.turn.Runtime))
	f.cancel = cancel
	want := account.Want{Model: clone(f.turn.Facts.Model), Only: f.needs.Only, Prefer: f.needs.Prefer, Exclude: f.excluded}
	attempt := f.attempt
	go func() {
		defer cancel()
		lease, err := a.services.Accounts.Acquire(ctx, want)
		if !a.post(leased{f, attempt, lease, err}) && lease != nil {
			lease.Release()
		}
	}()
}

func (a *actor) leased(m leased) {
	f := m.flight
	if f.stage != stageLeasing || f.attempt != m.attempt {
		if m.lease != nil {
			m.lease.Release()
		}
		return
	}
	if m.err != nil {
		if f.first != nil {
			a.settle(f, f.first) // no account is left to ask
			return
		}
		a.settle(f, failure.From(m.err))
		return
	}
	f.lease = m.lease
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
	if a.link != nil && f.transport == WebSocket && a.link.transport == WebSocket && a.link.account == name {
		if a.link.writing {
			f.stage, a.link.next = stageQueued, f
			return
		}
		a.send(f, a.link)
		return
	}
	if a.link != nil && f.transport == WebSocket {
		a.leave(a.link, time.Now()) // it belongs to another account
	}
	target := upstream.Target{Endpoint: endpoint, Account: name, Credential: f.lease.Account().Credential}
	dialer := a.services.Dialer(f.turn.Runtime)
	if f.transport == HTTP {
		target.Header = upstream.RequestHeader(f.turn.Header)
		a.open(f, dialer.HTTP(target))
		return
	}
	target.Header = upstream.UpgradeHeader(f.turn.Header, !a.key.Kind.Hard())
	f.stage = stageDialing
	ctx, cancel := context.WithCancel(a.ctx)
	f.cancel = cancel
	attempt := f.attempt
	go func() {
		defer cancel()
		conn, err := dialer.WebSocket(ctx, target)
		if !a.post(dialed{f, attempt, conn, err}) && err == nil {
			conn.Close()
		}
	}()
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
	go a.read(l)
	a.send(f, l)
}

// read is the permanent reader of a link: without one, pings go unanswered and a
// dead socket is handed to the next turn.
func (a *actor) read(l *link) {
	for {
		e, err := l.conn.Receive()
		select {
		case a.frames <- inbound{l, e, err}:
		case <-a.done:
			e.Release()
			return
		}
		if err != nil {
			return
		}
	}
}

// send plans the attempt and writes it. Nothing can change between the plan and
// the write: both happen in one step of the actor.
func (a *actor) send(f *flight, l *link) {
	target := Target{Account: l.account, Scope: upstream.AnchorScope(f.turn.Runtime.Bundle.Pool.Provider.Type)}
	if l.transport == WebSocket {
		target.Connection = l.generation
	}
	plan, refusal := Make(a.question(f, target))
	if refusal != nil {
		if l.transport == HTTP {
			a.close(l)
		}
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
	f.plan, f.link, f.stage = plan, l, stageSending
	f.known = affinity.Known{}
	if plan.Whole { // the body holds the whole conversation, so its digest is known
		in := f.turn.Facts.Input
		f.known = affinity.Known{Items: len(in.Items), Prefix: in.Prefix()}
	}
	f.sent, f.expiring = time.Now(), time.Time{}
	f.lastEvent = f.sent
	f.note(FactDispatched)
	l.uncreated, l.live, l.lastUse = f, append(l.live, f), f.sent
	l.turns++
	l.writing = true
	if l.transport == WebSocket {
		f.turn.Out.setHead(l.conn.Header(), l.turns == 1)
	}
	a.record = Apply(a.record, Event{Served: &Served{l.account, clone(f.turn.Facts.Model)}}, f.sent)
	attempt := f.attempt
	ctx := a.ctx
	go func() {
		err := l.conn.Send(ctx, request)
		if err == nil {
			a.services.Observer.RequestSent(l.transport, request.Size())
		}
		a.post(sent{l, f, attempt, err})
	}()
}

func (a *actor) sent(m sent) {
	m.link.writing = false
	if f := m.flight; f.stage == stageSending && f.attempt == m.attempt {
		if m.err == nil {
			f.stage = stageSent
		} else {
			f.facts = append(f.facts, sendFact(m.err))
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
