package server

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// leaving is why clients should open their WebSockets anew.
type leaving struct {
	code int // of the close frame; 0 = they should not
	text string
	// spread is the time in which idle ones are closed, so that they do not all come
	// back at once. One that has a turn is closed when that has ended.
	spread time.Duration
}

var (
	// stopping: this process ends. Whoever connects again reaches another one.
	stopping = leaving{websocket.CloseGoingAway, "this proxy is going away; connect again", 3 * time.Second}
	// closing: it ends now.
	closing = leaving{websocket.CloseGoingAway, stopping.text, 0}
	// released: another slot serves, and what lived on this one's connections has had
	// its time.
	released = leaving{websocket.CloseServiceRestart, "another version serves now; connect again", time.Minute}
)

// sockets are the clients' WebSockets that are open. net/http forgets connections
// that it has handed over, so that a stop would neither wait for them nor end them.
type sockets struct {
	mu     sync.Mutex // guards all below
	open   map[*socket]struct{}
	why    leaving
	closed bool
	wg     sync.WaitGroup
}

func newSockets() *sockets { return &sockets{open: map[*socket]struct{}{}} }

// add counts k until remove; false = there are to be no more.
func (s *sockets) add(k *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[k] = struct{}{}
	s.wg.Add(1)
	return true
}

func (s *sockets) remove(k *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, k)
	s.wg.Done()
}

func (s *sockets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// reason is why clients should leave at this moment.
func (s *sockets) reason() leaving {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// ask tells all of them to go, or to stay after all. A process that stops goes on
// doing so.
func (s *sockets) ask(why leaving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == why || s.why.code == websocket.CloseGoingAway && why.code != websocket.CloseGoingAway {
		return
	}
	s.why = why
	for k := range s.open {
		select {
		case k.leave <- struct{}{}:
		default:
		}
	}
}

// close ends those that have no turn at once, cuts what is left then, and returns when
// all handlers have ended.
func (s *sockets) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.ask(closing)
	cut := time.AfterFunc(2*farewell, s.cut)
	defer cut.Stop()
	s.wg.Wait()
}

func (s *sockets) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.open {
		_ = k.conn.Close()
	}
}

// goodbye is when one of them ends because of a reason to leave.
type goodbye struct {
	why leaving
	// since is when it began to be the reason.
	since time.Time
	timer *time.Timer // nil = there is no reason
}

// newGoodbye is that of a socket which is opened while there is a reason already,
// because not everybody has heard of it: there is time for a turn.
func newGoodbye(why leaving) *goodbye {
	g := &goodbye{why: why, since: time.Now()}
	if why.code != 0 {
		g.timer = time.NewTimer(why.spread)
	}
	return g
}

// set starts it anew for another reason.
func (g *goodbye) set(why leaving) {
	if why == g.why {
		return
	}
	g.stop()
	if g.why, g.since = why, time.Now(); why.code != 0 {
		g.timer = time.NewTimer(time.Duration(rand.Int64N(int64(why.spread) + 1))) //nolint:gosec // spreads clients, guards nothing
	}
}

// afterTurn is how soon a socket ends after its turn has: its client may be sending the
// next one at that very moment. One that has always done so, until its time was over, is
// not waited for any longer.
const (
	afterTurn = time.Second
	atLast    = 20 * time.Millisecond
)

// turn notes that a turn has ended, after which is a good moment.
func (g *goodbye) turn() {
	switch {
	case g.timer == nil:
	case time.Since(g.since) > g.why.spread:
		g.timer.Reset(atLast)
	default:
		g.timer.Reset(afterTurn)
	}
}

// later waits for what the client is sending.
func (g *goodbye) later() { g.timer.Reset(atLast) }

func (g *goodbye) due() <-chan time.Time {
	if g.timer == nil {
		return nil
	}
	return g.timer.C
}

func (g *goodbye) stop() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}
