package session

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// Registry finds the session of a turn and makes one where there is none. It is
// safe for concurrent use; its lock is held for pointer work only.
type Registry struct {
	services Services
	owners   *owners
	aliases  *aliases
	records  *records

	generation atomic.Uint64
	sockets    atomic.Int64 // open connections to upstreams

	mu       sync.Mutex // guards all below
	sessions map[affinity.Key]*entry
	recent   *list.List // of *entry, most recently used first
	closing  bool
	running  sync.WaitGroup
	// refused holds endpoints that have no WebSocket, with the time to ask again.
	refused map[string]time.Time
}

// entry is a session in the registry. turns counts the turns that were handed
// to the actor and are not settled; while it is above zero, the actor stays.
type entry struct {
	actor   *actor
	turns   int
	element *list.Element
	evicted bool
}

// webSocketRetry is how long an endpoint that refused the upgrade is used by
// HTTP before it is asked again.
const webSocketRetry = 10 * time.Minute

// NewRegistry makes an empty registry.
func NewRegistry(s Services) *Registry {
	if s.MaxSessions == 0 {
		s.MaxSessions = DefaultMaxSessions
	}
	return &Registry{
		services: s, owners: newOwners(), aliases: newAliases(), records: newRecords(),
		sessions: map[affinity.Key]*entry{}, recent: list.New(), refused: map[string]time.Time{},
	}
}

// Submit hands a turn to its session. It does not wait; the answer, also a
// refusal, comes through the turn's Outbox. The returned function tells the
// session that the client is gone; it may be called at any time, also after the
// turn has ended.
func (r *Registry) Submit(t *Turn) (detach func()) {
	r.submitTo(t.Key, t)
	return func() { r.detach(t) }
}

// handed notes where a turn is, so that a detach finds it after it moved to a
// lane.
type handed struct {
	gone  atomic.Bool // the client is gone; set before the actor is told
	mu    sync.Mutex  // guards actor
	actor *actor
}

func (r *Registry) submitTo(key affinity.Key, t *Turn) {
	a, ok := r.reserve(key)
	if !ok {
		t.Out.end(failure.New(failure.Draining,
			"This proxy is going away or holds as many sessions as it can; send the request again.", failure.Reason("capacity")))
		return
	}
	t.at.mu.Lock()
	t.at.actor = a
	t.at.mu.Unlock()
	// The reservation keeps the actor alive until it has read this.
	a.mailTurn(submitted{t})
}

// mailTurn delivers from a goroutine that may be another actor's own.
func (a *actor) mailTurn(m any) {
	select {
	case a.mail <- m:
	default:
		go a.post(m)
	}
}

func (r *Registry) detach(t *Turn) {
	t.at.gone.Store(true)
	t.at.mu.Lock()
	a := t.at.actor
	t.at.mu.Unlock()
	if a != nil {
		a.post(detached{t})
	}
}

// reserve finds or makes the actor of a key and counts a turn for it.
func (r *Registry) reserve(key affinity.Key) (*actor, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return nil, false
	}
	e := r.sessions[key]
	if e == nil {
		if len(r.sessions) >= r.services.MaxSessions && !r.evictLocked() {
			return nil, false
		}
		e = &entry{actor: newActor(key, r, r.records.take(key))}
		e.element = r.recent.PushFront(e)
		r.sessions[key] = e
		r.running.Add(1)
		go func() {
			defer r.running.Done()
			e.actor.run()
		}()
	}
	e.turns++
	r.recent.MoveToFront(e.element)
	return e.actor, true
}

// evictLocked makes room: the session that is idle longest goes. It leaves the
// table at once, so that the next turn of its key gets a new actor and never
// waits for the old one's close.
func (r *Registry) evictLocked() bool {
	for element := r.recent.Back(); element != nil; element = element.Prev() {
		e := element.Value.(*entry)
		if e.turns > 0 {
			continue
		}
		r.removeLocked(e)
		e.evicted = true
		go e.actor.post(evicted{})
		return true
	}
	return false
}

func (r *Registry) removeLocked(e *entry) {
	if r.sessions[e.actor.key] == e {
		delete(r.sessions, e.actor.key)
	}
	r.recent.Remove(e.element)
}

// release ends the count of a turn.
func (r *Registry) release(a *actor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.sessions[a.key]; e != nil && e.actor == a {
		e.turns--
	}
}

// retire lets an actor end, unless a turn is on its way to it.
func (r *Registry) retire(a *actor) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[a.key]
	if e == nil || e.actor != a {
		if e == nil { // evicted: it is out of the table already
			r.keepLocked(a)
		}
		return true
	}
	if e.turns > 0 {
		return false
	}
	r.removeLocked(e)
	r.keepLocked(a)
	return true
}

// keepLocked keeps the record of an ended session, if its key can come again.
func (r *Registry) keepLocked(a *actor) {
	if !a.key.Kind.Lane() || a.key.Kind == affinity.KindModelParallel {
		r.records.put(a.key, a.record)
	}
}

func (r *Registry) nextGeneration() uint64 { return r.generation.Add(1) }

func (r *Registry) withoutWebSocket(endpoint string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Now().Before(r.refused[endpoint])
}

func (r *Registry) noteNoWebSocket(endpoint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[endpoint] = time.Now().Add(webSocketRetry)
}

// Owner says what is known of an anchor that a client supplied.
func (r *Registry) Owner(client, responseID string) (Owner, bool) {
	return r.owners.get(responseID, client)
}

// ByTurnState is the session that a client's continuation token names.
func (r *Registry) ByTurnState(client, token string) (affinity.Key, bool) {
	return r.aliases.get(affinity.TurnStateKey(client, token))
}

func (r *Registry) alias(t *Turn, key affinity.Key) {
	if t.TurnState != "" && !key.Kind.Lane() && key.Kind != affinity.KindRequest {
		r.aliases.put(affinity.TurnStateKey(t.Client, t.TurnState), key)
	}
}

// Counts are the sessions in memory.
type Counts struct {
	// Active sessions have a turn; Idle ones keep a socket warm.
	Active, Idle int
	// Connections to upstreams that are open.
	Connections int
}

// Counts counts the sessions.
func (r *Registry) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := Counts{Connections: int(r.sockets.Load())}
	for _, e := range r.sessions {
		if e.turns > 0 {
			c.Active++
		} else {
			c.Idle++
		}
	}
	return c
}

// Close ends all sessions: idle ones at once, the others when their turns end,
// or when ctx does. It returns when none is left.
func (r *Registry) Close(ctx context.Context) {
	r.mu.Lock()
	r.closing = true
	actors := make([]*actor, 0, len(r.sessions))
	for _, e := range r.sessions {
		actors = append(actors, e.actor)
	}
	r.mu.Unlock()
	for _, a := range actors {
		a.post(draining{})
	}
	ended := make(chan struct{})
	go func() {
		r.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	for _, a := range actors {
		a.post(draining{force: true})
	}
	<-ended
}
