package session

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// Registry finds the session of a turn and makes one where there is none. It is
// safe for concurrent use; its lock is held for pointer work only.
type Registry struct {
	services Services
	owners   *owners
	aliases  *aliases
	budget   retryBudget
	pins     *cache[string, string] // the accounts of files, by alias
	world    world

	generation atomic.Uint64
	sockets    atomic.Int64 // open connections to upstreams

	mu       sync.Mutex // guards all below
	sessions map[affinity.Key]*entry
	recent   *list.List // of *entry, most recently used first
	closing  bool
	unwell   map[*actor]notice // what sessions say that are not well
	reset    string            // the last wish to close all circuits
	// refused holds endpoints that have no WebSocket, with the time to ask again.
	refused map[string]time.Time
}

// entry is a session in the registry. turns counts the turns that were handed
// to the actor and are not settled; while it is above zero, the actor stays.
type entry struct {
	actor     *actor
	turns     int
	busySince time.Time // when turns rose above zero
	element   *list.Element
	moving    bool // it belongs to another replica and ends with its turns
}

// webSocketRetry is how long an endpoint that refused the upgrade is used by
// HTTP before it is asked again.
const webSocketRetry = 10 * time.Minute

// NewRegistry makes an empty registry.
func NewRegistry(s Services) *Registry {
	s.alone()
	return newRegistry(s, &goroutines{})
}

func newRegistry(s Services, w world) *Registry {
	if s.MaxSessions == 0 {
		s.MaxSessions = DefaultMaxSessions
	}
	if s.Hold == 0 {
		s.Hold = DefaultHold
	}
	r := &Registry{
		services: s, owners: newOwners(), aliases: newAliases(), pins: newCache[string, string](maxPins), world: w,
		sessions: map[affinity.Key]*entry{}, recent: list.New(), refused: map[string]time.Time{}, unwell: map[*actor]notice{},
	}
	// Generations mean something in this process alone: another one's must not be
	// taken for ours.
	r.generation.Store(generationBase())
	return r
}

// Submit hands a turn to its session. It does not wait; the answer, also a
// refusal, comes through the turn's Outbox. The returned function is to be called
// when the client has the last byte or is gone: it gives back the turn's place in
// its lane and tells the session.
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
	r.world.hand(a, submitted{t})
}

func (r *Registry) detach(t *Turn) {
	t.place.leave()
	t.at.gone.Store(true)
	t.at.mu.Lock()
	a := t.at.actor
	t.at.mu.Unlock()
	if a != nil {
		r.world.post(a, detached{t})
	}
}

// reserve finds or makes the actor of a key and counts a turn for it.
func (r *Registry) reserve(key affinity.Key) (*actor, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[key]
	if r.closing && e == nil {
		return nil, false // a session that is here may go on while it drains
	}
	if e == nil {
		if len(r.sessions) >= r.services.MaxSessions && !r.evictLocked() {
			return nil, false
		}
		e = &entry{actor: newActor(key, r)}
		e.element = r.recent.PushFront(e)
		r.sessions[key] = e
		r.world.start(e.actor)
	}
	if e.turns++; e.turns == 1 {
		e.busySince = r.world.now()
	}
	r.recent.MoveToFront(e.element)
	return e.actor, true
}

// evictLocked makes room: the session that is idle longest goes.
func (r *Registry) evictLocked() bool {
	for element := r.recent.Back(); element != nil; element = element.Prev() {
		e := element.Value.(*entry)
		if e.turns > 0 {
			continue
		}
		r.giveUpLocked(e)
		return true
	}
	return false
}

// giveUpLocked ends an idle session. It leaves the table at once, so that the next
// turn of its key gets a new actor and never waits for the old one's close.
func (r *Registry) giveUpLocked(e *entry) {
	r.removeLocked(e)
	r.world.hand(e.actor, evicted{})
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
		if e.turns--; e.turns == 0 && e.moving {
			r.giveUpLocked(e)
		}
	}
}

// retire lets an actor end, unless a turn is on its way to it.
func (r *Registry) retire(a *actor) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[a.key]
	if e == nil || e.actor != a {
		delete(r.unwell, a)
		return true // evicted: it is out of the table already
	}
	if e.turns > 0 {
		return false
	}
	r.removeLocked(e)
	delete(r.unwell, a)
	return true
}

func (r *Registry) nextGeneration() uint64 { return r.generation.Add(1) }

func (r *Registry) withoutWebSocket(endpoint string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.world.now().Before(r.refused[endpoint])
}

func (r *Registry) noteNoWebSocket(endpoint string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[endpoint] = r.world.now().Add(webSocketRetry)
}

// generationBase is a number that no other process starts at.
func generationBase() uint64 { return uint64(rand.Uint32()) << 32 } //nolint:gosec // distinct, not secret

// lookupTimeout bounds a question to the store that a turn waits for.
const lookupTimeout = 2 * time.Second

// Owner says what is known of an anchor that a client supplied. The error says
// that the store, which may know more, does not answer.
func (r *Registry) Owner(ctx context.Context, client, responseID string) (Owner, bool, error) {
	if owner, ok := r.owners.get(responseID, client); ok || r.services.Local {
		return owner, ok, nil
	}
	raw, err := r.lookUp(ctx, responseAlias(client, responseID))
	if err != nil || raw == nil {
		return Owner{}, false, err
	}
	owner, err := decodeOwner(raw)
	if err != nil {
		r.services.Log.Warn("A stored alias cannot be read", "error", err)
		return Owner{}, false, nil
	}
	r.owners.put(responseID, client, owner)
	return owner, true, nil
}

// remember notes whose a response is, for the turns that name it.
func (r *Registry) remember(responseID, client string, owner Owner) {
	r.owners.put(responseID, client, owner)
	if !r.services.Local {
		r.services.Writer.PutAlias(responseAlias(client, responseID), encodeOwner(owner), aliasLife)
	}
}

// ByTurnState is the session that a client's continuation token names.
func (r *Registry) ByTurnState(ctx context.Context, client, token string) (affinity.Key, bool, error) {
	name := affinity.TurnStateKey(client, token)
	if key, ok := r.aliases.get(name); ok || r.services.Local {
		return key, ok, nil
	}
	raw, err := r.lookUp(ctx, name.Name())
	if err != nil || raw == nil {
		return affinity.Key{}, false, err
	}
	key, ok := affinity.ParseKey(string(raw))
	if ok {
		r.aliases.put(name, key)
	}
	return key, ok, nil
}

func (r *Registry) alias(t *Turn, key affinity.Key) {
	if t.TurnState == "" || key.Kind.Lane() || key.Kind == affinity.KindRequest {
		return
	}
	name := affinity.TurnStateKey(t.Client, t.TurnState)
	if known, ok := r.aliases.get(name); ok && known == key {
		return
	}
	r.aliases.put(name, key)
	if !r.services.Local && kept(key) {
		r.services.Writer.PutAlias(name.Name(), []byte(key.Name()), aliasLife)
	}
}

// lookUp asks the store for an alias; nil = there is none.
func (r *Registry) lookUp(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	raw, err := r.services.Store.Alias(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		r.services.Observer.StoreFailed("alias")
		return nil, fmt.Errorf("looking up an alias: %w", err)
	}
	return raw, nil
}

// Delivered says that the client has got the whole answer of a turn.
func (r *Registry) Delivered(t *Turn) {
	if !t.recorded.Load() {
		return
	}
	t.at.mu.Lock()
	a := t.at.actor
	t.at.mu.Unlock()
	if a != nil {
		r.world.post(a, delivered{t})
	}
}

// Fenced is told by the store's side that a key is not ours any more.
func (r *Registry) Fenced(h store.Held, current store.Entry) {
	key, ok := affinity.ParseKey(string(h.Key))
	if !ok {
		return
	}
	r.mu.Lock()
	e := r.sessions[key]
	r.mu.Unlock()
	if e != nil {
		r.world.hand(e.actor, fenced{h, current})
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
		r.world.post(a, draining{})
	}
	ended := make(chan struct{})
	go func() {
		r.world.wait()
		close(ended)
	}()
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	for _, a := range actors {
		r.world.post(a, draining{force: true})
	}
	<-ended
}
