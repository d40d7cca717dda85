package session

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Sizes and times of an actor.
const (
	mailSize   = 8
	framesSize = 4
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
	world    world

	mail   chan any
	frames chan inbound
	done   chan struct{}
	timer  *time.Timer
	armed  time.Time
	ctx    context.Context //nolint:containedctx // the actor's own life, not a request's
	cancel context.CancelFunc

	record   Record
	policy   Policy // of the newest turn
	own      ownership
	earlier  earlierTurns
	replayed toolCalls
	history  history
	shown    notice // what the registry was last told

	link      *link   // where the next turn goes; nil = none open
	leaving   []*link // links that take no further turn
	arriving  []*flight
	flights   []*flight
	idleSince time.Time
	closing   bool // no turn comes any more
	forced    bool // and those that run end now
	lost      bool // its code broke
}

// Messages to an actor. attempt tells a late answer from a timely one.
type (
	submitted struct{ turn *Turn }
	detached  struct{ turn *Turn }
	delivered struct{ turn *Turn }
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
	claimed struct {
		claim   store.Claimed
		err     error
		started time.Duration
	}
	fenced struct {
		held    store.Held
		current store.Entry
	}
	recalled struct {
		flight *flight
		events [][]byte
		err    error
	}
	reset    struct{ token string }
	asking   struct{ answer chan<- Detail }
	evicted  struct{}
	draining struct{ force bool }
	inbound  struct {
		link  *link
		event upstream.Event
		err   error
	}
)

func newActor(key affinity.Key, r *Registry) *actor {
	a := &actor{
		key: key, registry: r, services: &r.services, world: r.world,
		mail: make(chan any, mailSize), frames: make(chan inbound, framesSize), done: make(chan struct{}),
		timer: time.NewTimer(time.Hour), idleSince: r.world.now(),
	}
	a.own.kept = kept(key)
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// kept says whether the record of a key outlives its session, and whether
// failures count against it: keys that a client can name again and that promise
// continuity. A lane for one turn never comes again.
func kept(key affinity.Key) bool {
	return key.Kind.Hard() && (!key.Kind.Lane() || key.Kind == affinity.KindModelParallel)
}

// log names the session. It is made when there is something to say: a logger of
// its own would be a good part of an idle session.
func (a *actor) log() *slog.Logger {
	return a.services.Log.With("session", a.key.Short(), "kind", a.key.Kind.String())
}

func (a *actor) now() time.Time { return a.world.now() }

func (a *actor) run() {
	defer a.stop()
	defer a.survive()
	for {
		select {
		case m := <-a.mail:
			a.handle(m)
		case in := <-a.frames:
			a.receive(in)
			a.advance()
			if a.retired() {
				return
			}
			continue // events only move deadlines back
		case <-a.timer.C:
			a.wake()
		}
		if a.retired() {
			return
		}
	}
}

// handle takes one message.
func (a *actor) handle(m any) {
	switch m := m.(type) {
	case submitted:
		a.submit(m.turn)
	case detached:
		a.detach(m.turn)
	case delivered:
		a.delivered(m.turn)
	case leased:
		a.leased(m)
	case dialed:
		a.dialed(m)
	case sent:
		a.sent(m)
	case claimed:
		a.claimed(m)
	case fenced:
		a.fenced(m)
	case recalled:
		a.recalled(m)
	case reread:
		a.rereadDone(m)
	default:
		a.command(m)
	}
	a.advance()
	a.arm()
}

// command takes a message about the session as a whole.
func (a *actor) command(m any) {
	switch m := m.(type) {
	case reset:
		a.apply(Event{Reset: m.token})
		a.persist()
	case asking:
		m.answer <- a.detail()
	case broken:
		a.fail()
	case evicted:
		a.closing = true
	case draining:
		a.drain(m.force)
	}
}

// wake looks at the deadlines.
func (a *actor) wake() {
	a.armed = time.Time{}
	a.expire(a.now())
	a.advance()
	a.arm()
}

// retired says whether the actor ends now.
func (a *actor) retired() bool { return a.lost || a.idle() && a.registry.retire(a) }

// idle says whether nothing keeps the actor.
func (a *actor) idle() bool {
	if len(a.flights) > 0 || len(a.arriving) > 0 || len(a.leaving) > 0 || a.own.claiming {
		return false
	}
	return a.closing || a.now().Sub(a.idleSince) >= idleLimit(a.key.Kind)
}

// idleLimit is how long a session without a turn keeps its socket. Coding agents
// pause for minutes between turns; a lane beside another session is used once.
func idleLimit(k affinity.Kind) time.Duration {
	switch k {
	case affinity.KindRequest, affinity.KindUnanchoredParallel, affinity.KindRequestParallel, affinity.KindSoftReroute:
		return 0
	case affinity.KindTurnState, affinity.KindThread, affinity.KindSession, affinity.KindModelParallel,
		affinity.KindCodexSession, affinity.KindStickyThread:
		return 900 * time.Second
	case affinity.KindPromptCache:
		return 120 * time.Second
	}
	return 0
}

// apply changes the record. What changes while nobody owns it is kept, to be
// said again once the stored record is known.
func (a *actor) apply(e Event) {
	now := a.now()
	before := a.record.Version
	a.record = Apply(a.record, e, now)
	if a.record.Version != before {
		a.own.missed(e, now)
	}
}

// submit takes a turn in.
func (a *actor) submit(t *Turn) {
	if t.at.gone.Load() { // it will not hear of a detach that came before
		t.Out.end(nil)
		a.registry.release(a)
		return
	}
	a.policy = PolicyOf(t.Runtime.Bundle.Circuit)
	a.arriving = append(a.arriving, &flight{turn: t, submitted: a.now(), transport: t.Transport})
	a.claim()
	a.admitAll()
}

// admitAll admits the turns that wait for the record, as far as it is known. One
// that needs none does not wait for one that does.
func (a *actor) admitAll() {
	for i := 0; i < len(a.arriving); {
		f := a.arriving[i]
		state := a.known(f)
		if state == recordAwaited {
			i++
			continue
		}
		a.arriving = slices.Delete(a.arriving, i, i+1)
		if state == recordUnknown {
			a.refuse(f, a.unknownRecord())
		} else {
			a.admit(f)
		}
	}
}

// refuse ends a turn that was never admitted, with the reason why.
func (a *actor) refuse(f *flight, end *failure.Failure) {
	a.services.Observer.Suppressed(end.Reason)
	a.dismiss(f, end)
}

// dismiss ends a turn that was never admitted and that is nobody's loss: its
// client is gone, or it goes to another replica.
func (a *actor) dismiss(f *flight, end *failure.Failure) {
	f.turn.Out.end(end)
	f.stage = stageSettled
	a.idleSince = a.now()
	a.registry.release(a)
}

// admit takes a turn in, answers it from what is known, refuses it, or passes it
// to a lane beside this one.
func (a *actor) admit(f *flight) {
	if a.answeredBefore(f) {
		return
	}
	needs, refusal := Route(a.question(f, Target{}))
	if refusal == nil && needs.Ordered && a.ordered() >= maxOrdered {
		refusal = failure.New(failure.BulkheadFull, "Too many turns wait for the one before them in this conversation.",
			failure.Reason("session_queue"), failure.Scope("session"))
	}
	if refusal != nil && refusal.Code == failure.OwnerConflict && !f.reread && !a.services.Local {
		a.rereadOwners(f)
		return
	}
	if refusal == nil {
		refusal = a.suppressed(f)
	}
	if refusal != nil {
		a.refuse(f, refusal)
		return
	}
	f.needs = needs
	if lane, ok := a.laneFor(f); ok {
		f.stage = stageSettled
		a.registry.release(a)
		a.registry.submitTo(lane, f.turn)
		return
	}
	a.registry.alias(f.turn, a.key)
	a.flights = append(a.flights, f)
}

// advance starts the next waiting turn when the way is free.
func (a *actor) advance() {
	a.admitAll()
	if a.link != nil && !a.link.free() {
		return
	}
	var next *flight
	for _, f := range a.flights {
		switch f.stage {
		case stageLeasing, stageDialing, stageQueued, stageSending, stagePausing:
			if !f.gone {
				return
			}
		case stageWaiting:
			if next == nil {
				next = f
			}
		case stageSent, stageSettled, stageRecalling, stageRereading:
		}
	}
	if next != nil {
		a.takeAccount(next)
	}
}

func (a *actor) question(f *flight, target Target) Question {
	return Question{Facts: f.turn.Facts, Hard: a.key.Kind.Hard(), Owner: f.turn.Owner, Pin: f.turn.Pin, Record: a.record,
		Target: target, Whole: f.whole, Unowned: a.own.kept && !a.own.valid()}
}
