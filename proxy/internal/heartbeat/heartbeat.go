// Package heartbeat notices that the peer of a WebSocket is gone although its
// connection still stands, and keeps whatever lies between from cutting it for
// silence.
package heartbeat

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// A ping every period, and the end after silent periods without any frame. Load
// balancers in the field cut silent sockets after 60 to 100 s, so the period stays
// well below.
const (
	period = 25 * time.Second
	silent = 4
	// controlWrite is how long a ping or pong may wait for an event that is being written
	// to a slow peer. Half of one on the wire would be the end of the connection.
	controlWrite = 30 * time.Second
)

// Heartbeat watches one connection. It is safe for concurrent use.
type Heartbeat struct {
	conn  *websocket.Conn
	lost  func()
	heard atomic.Int64 // frames of any kind
	pulse atomic.Int64 // Unix nanoseconds of the last ping or pong

	mu     sync.Mutex // guards all below
	timer  *time.Timer
	done   bool
	seen   int64 // heard at the last ping
	missed int
}

// New prepares a connection that nobody reads yet. lost is called at most once, on a
// goroutine of its own, when nothing has come for too long.
func New(conn *websocket.Conn, lost func()) *Heartbeat {
	h := &Heartbeat{conn: conn, lost: lost}
	conn.SetPingHandler(func(data string) error {
		h.alive()
		_ = conn.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(controlWrite)) // or the reader learns of it
		return nil
	})
	conn.SetPongHandler(func(string) error {
		h.alive()
		return nil
	})
	h.timer = time.AfterFunc(period, h.beat)
	h.timer.Stop()
	return h
}

// Start begins to ping; Stop ends it.
func (h *Heartbeat) Start() { h.again() }

// Heard notes that a frame has come, or that nobody was listening for one.
func (h *Heartbeat) Heard() { h.heard.Add(1) }

// Pulse is the time of the last ping or pong of the peer; zero = there was none.
func (h *Heartbeat) Pulse() time.Time {
	if n := h.pulse.Load(); n != 0 {
		return time.Unix(0, n)
	}
	return time.Time{}
}

// Stop ends it; lost is not called any more, unless it has begun.
func (h *Heartbeat) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = true
	h.timer.Stop()
}

func (h *Heartbeat) alive() {
	h.heard.Add(1)
	h.pulse.Store(time.Now().UnixNano())
}

func (h *Heartbeat) beat() {
	switch h.look() {
	case gone:
		h.lost()
	case there:
		if h.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(controlWrite)) != nil {
			h.Heard() // nothing was asked, so that silence is no answer; of a broken connection the reader learns
		}
		h.again()
	case over:
	}
}

// state is what a look at the peer says.
type state int

const (
	there state = iota
	gone
	over // nobody looks any more
)

func (h *Heartbeat) look() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return over
	}
	if n := h.heard.Load(); n != h.seen {
		h.seen, h.missed = n, 0
	} else if h.missed++; h.missed >= silent {
		h.done = true
		return gone
	}
	return there
}

func (h *Heartbeat) again() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.done {
		h.timer.Reset(period)
	}
}
