package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

const (
	// maxConnections of clients at once; the ops port has its own listener and is
	// not counted.
	maxConnections = 4096
	// spareIdle is how long a connection has been idle before it may make room: a
	// client that has just got an answer is about to send the next request.
	spareIdle = 5 * time.Second
	// maxTurnedAway bounds the connections that are being told that there is no
	// room; further ones are closed without a word.
	maxTurnedAway = 64
	// farewell bounds the time of an answer to a connection that is not served.
	farewell = time.Second
	// warnEvery is how often a full listener is worth a line in the log.
	warnEvery = time.Minute
)

// listener bounds the connections of the data port. It never makes a new client
// wait unseen: room is made by closing the connection that has been idle longest,
// and where none is idle the client is told to come back.
type listener struct {
	net.Listener
	limit int
	idle  time.Duration
	log   *slog.Logger

	mu     sync.Mutex // guards open, closed and warned
	open   map[*conn]struct{}
	closed bool
	warned time.Time
	// away holds a place for each connection that is being turned away.
	away    chan struct{}
	leaving sync.WaitGroup
}

// Listener puts the data port's bounds around l. HTTPServer is to serve it.
func (s *Server) Listener(l net.Listener) net.Listener {
	limit := connections()
	if limit < maxConnections {
		s.log.Warn("The limit of open files bounds the connections of clients", "limit", limit)
	}
	return newListener(l, limit, spareIdle, s.log)
}

func newListener(l net.Listener, limit int, idle time.Duration, log *slog.Logger) *listener {
	return &listener{Listener: l, limit: limit, idle: idle, log: log, open: map[*conn]struct{}{}, away: make(chan struct{}, maxTurnedAway)}
}

// Accept implements net.Listener. What the system has too few of (descriptors) is
// an error that http.Server waits out.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, listener: l}
		c.idleSince.Store(time.Now().UnixNano())
		if l.admit(c) {
			return c, nil
		}
		l.turnAway(raw)
	}
}

// admit takes c in if there is room or can be made.
func (l *listener) admit(c *conn) bool {
	l.mu.Lock()
	var spare *conn
	if len(l.open) >= l.limit {
		if spare = l.idlestLocked(); spare == nil {
			l.mu.Unlock()
			return false
		}
		delete(l.open, spare)
	}
	l.open[c] = struct{}{}
	l.mu.Unlock()
	if spare != nil {
		_ = spare.Conn.Close()
	}
	return true
}

// idlestLocked is the connection that has been without a request longest; nil =
// all have one, or had one a moment ago.
func (l *listener) idlestLocked() *conn {
	var found *conn
	least := time.Now().Add(-l.idle).UnixNano()
	for c := range l.open {
		if since := c.idleSince.Load(); since != busy && since <= least {
			found, least = c, since
		}
	}
	return found
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// turnAway tells a connection that there is no room.
func (l *listener) turnAway(raw net.Conn) {
	l.warn()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = raw.Close()
		return
	}
	select {
	case l.away <- struct{}{}:
	default:
		_ = raw.Close()
		return
	}
	l.leaving.Go(func() {
		defer func() { <-l.away }()
		defer func() { _ = raw.Close() }()
		_ = raw.SetDeadline(time.Now().Add(farewell))
		if _, err := raw.Read(make([]byte, 1)); err != nil {
			return // an answer to nothing confuses clients
		}
		say(raw, failure.New(failure.BulkheadFull, "This proxy has as many connections as it can serve; come back later.",
			failure.Scope("listener"), failure.After(time.Second)))
		// What the client is still writing would otherwise reset the connection
		// before it has read the answer.
		_, _ = io.Copy(io.Discard, raw)
	})
}

func (l *listener) warn() {
	l.mu.Lock()
	first := time.Since(l.warned) > warnEvery
	if first {
		l.warned = time.Now()
	}
	l.mu.Unlock()
	if first {
		l.log.Warn("Turning connections away: all are in use", "limit", l.limit)
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.leaving.Wait() // for farewell at most
	return err
}

// say answers a connection over HTTP/1 that net/http does not answer, and ends
// our half of it.
func say(raw net.Conn, f *failure.Failure) {
	_ = raw.SetDeadline(time.Now().Add(farewell))
	w := &wire{header: http.Header{"Connection": {"close"}}}
	f.WriteHTTP(w)
	answer := http.Response{StatusCode: w.status, ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Body: io.NopCloser(&w.body),
		ContentLength: int64(w.body.Len()), Close: true}
	if answer.Write(raw) != nil {
		return
	}
	if half, ok := raw.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// busy is the idleSince of a connection with a request.
const busy = 0

// conn is a client's connection. It knows whether it has a request, and tells a
// client that sends its header too slowly, which net/http does not.
type conn struct {
	net.Conn
	listener *listener
	// idleSince is when the last request ended, in Unix nanoseconds, or busy.
	idleSince atomic.Int64
	// header counts the bytes of a request whose header is not complete.
	header atomic.Int64
	// preface counts the first bytes that are those of HTTP/2, which has no answer
	// outside a stream; told: the client was told. Used by one reader at a time.
	preface int
	told    bool
	// upgraded: it is a WebSocket, which net/http follows no longer.
	upgraded atomic.Bool
}

// http2 is how a connection of HTTP/2 begins, and no request of HTTP/1 does.
const http2 = "PRI *"

// state follows net/http's view of a connection.
func (c *conn) state(s http.ConnState) {
	switch s {
	case http.StateIdle:
		c.header.Store(0)
		c.serves(false)
	case http.StateHijacked:
		c.upgraded.Store(true)
		c.serves(true)
	case http.StateActive:
		c.serves(true)
	case http.StateNew, http.StateClosed:
	}
}

// serves notes whether a connection has a request, or a turn once it was upgraded.
func (c *conn) serves(now bool) {
	if now {
		c.idleSince.Store(busy)
	} else {
		c.idleSince.Store(time.Now().UnixNano())
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.idleSince.Load() == busy || c.upgraded.Load() {
		return n, err
	}
	c.recognise(p[:n])
	if c.header.Add(int64(n)) > 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.preface < len(http2) && !c.told {
		c.told = true
		say(c.Conn, failure.New(failure.RequestTimeout, "The header of the request did not arrive in time.",
			failure.Reason(string(deadline.InboundHeader)), failure.Deadline(string(deadline.InboundHeader), string(deadline.Operator)),
			failure.Dispatched(deadline.InboundHeader.Dispatch())))
	}
	return n, err
}

func (c *conn) recognise(p []byte) {
	for i := 0; i < len(p) && c.preface >= 0 && c.preface < len(http2); i++ {
		if p[i] != http2[c.preface] {
			c.preface = -1
			return
		}
		c.preface++
	}
}

// CloseWrite lets net/http end its half first, as it does with a *net.TCPConn.
func (c *conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	return half.CloseWrite() //nolint:wrapcheck // of the connection itself
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.listener.forget(c)
	return c.Conn.Close()
}

// follow is the server's ConnState hook.
func follow(raw net.Conn, s http.ConnState) {
	if c, ok := raw.(*conn); ok {
		c.state(s)
	}
}
