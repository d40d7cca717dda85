package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/heartbeat"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

const (
	// defaultSocketIdle is how long a client's WebSocket may be without a turn: as long as
	// OpenAI's own endpoint keeps one at all. A client that is gone is noticed earlier.
	defaultSocketIdle = time.Hour
	// socketQueue is how many messages are held for a client that sends ahead; more
	// stay in its connection.
	socketQueue = 1
	// beatEvery is how often a reader that waits for a turn to end says that it does
	// not listen.
	beatEvery = 20 * time.Second
)

// upgrader does without compression: it costs megabytes a connection, and clients do
// without it as well. Its check of the origin keeps web pages of others out, where
// clients need no key. Its buffers are those of the HTTP connection, 4 KiB each way.
var upgrader = websocket.Upgrader{
	HandshakeTimeout: 10 * time.Second,
	Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
		code := failure.InvalidRequest
		if status == http.StatusForbidden {
			code = failure.OriginNotAllowed
		}
		failure.New(code, "The WebSocket cannot be opened: "+strings.TrimPrefix(reason.Error(), "websocket: ")+".").WriteHTTP(w)
	},
}

// socket is one client's WebSocket: turns come as messages, one after another, and
// each is served as if it had been posted. What is read is read at any time; the
// handler's goroutine alone writes events.
type socket struct {
	server *Server
	conn   *websocket.Conn
	// upgrade is the request that opened it, whose header every turn has.
	upgrade *http.Request
	id      string
	label   telemetry.Route
	family  bridge.Route
	beat    *heartbeat.Heartbeat
	// messages are what the client has sent; closed when nothing more comes.
	messages chan message
	// leave tells the handler that Server.sockets wants it to end.
	leave chan struct{}
	// arriving: a message is being read, or handed over.
	arriving atomic.Bool
}

// message is a turn's body, or what answers a message that is none: err is a
// *failure.Failure then. Until end is called it counts as a request that is served.
type message struct {
	body []byte
	err  error
	end  func()
}

// serveSocket upgrades the connection and serves it to its end.
func (s *Server) serveSocket(c *call, family bridge.Route) {
	if !s.authenticate(c) {
		s.unauthorized(c)
		return
	}
	conn, err := upgrader.Upgrade(c.w, c.r, http.Header{requestIDHeader: {c.id}})
	if err != nil {
		s.done(c, telemetry.OutcomeCallerError)
		return
	}
	// The name is ours: a client may give all its connections the same id.
	k := &socket{server: s, conn: conn, upgrade: c.r, id: requestID(nil), label: c.label, family: family,
		messages: make(chan message, socketQueue), leave: make(chan struct{}, 1)}
	keepForTurns(c.r.Header)
	ctx, cancel := context.WithCancel(c.r.Context())
	k.beat = heartbeat.New(conn, func() { _ = conn.Close() })
	if !s.sockets.add(k) {
		_ = conn.Close()
		cancel()
		return
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		defer close(k.messages)
		k.read(ctx)
	})
	k.beat.Start()
	defer func() {
		k.beat.Stop()
		cancel()
		_ = conn.Close() // ends the reader
		reading.Wait()
		for m := range k.messages {
			m.end()
		}
		s.turns.SocketClosed(c.client, k.id)
		s.sockets.remove(k)
	}()
	k.run(ctx)
}

// ofConnection are headers of an upgrade that are not those of each turn on it: they
// are the connection's, or tell one request from another.
var ofConnection = map[string]bool{"Connection": true, "Upgrade": true, requestIDHeader: true, "Idempotency-Key": true,
	affinity.TurnStateHeader: true, "X-Codex-Turn-Metadata": true}

func keepForTurns(h http.Header) {
	for name := range h {
		if ofConnection[name] || strings.HasPrefix(name, "Sec-Websocket-") {
			delete(h, name)
		}
	}
}

// read takes in what the client sends until the connection ends.
func (k *socket) read(ctx context.Context) {
	for {
		kind, r, err := k.conn.NextReader()
		if err != nil {
			return
		}
		k.beat.Heard()
		if !k.receive(ctx, kind, r) {
			return
		}
	}
}

// receive takes in one message; false = there will be no further one.
func (k *socket) receive(ctx context.Context, kind int, r io.Reader) bool {
	k.arriving.Store(true)
	defer k.arriving.Store(false)
	k.busy(true)
	m := message{end: k.server.live.Begin()}
	typ := intake.FrameCreate
	if kind == websocket.TextMessage {
		var data []byte
		if data, m.err = k.server.intake.ReadMessage(k.conn, r); errors.Is(m.err, intake.ErrConnection) {
			k.refuse(m.err)
			m.end()
			return false
		}
		if m.err == nil {
			typ, m.body, m.err = intake.CheckFrame(data)
		}
	} else {
		m.err = failure.New(failure.InvalidRequest, "Binary messages are not served: send each turn as a text message.")
	}
	switch {
	case m.err != nil:
	case ignored[typ]:
		k.server.log.Debug("Ignored a message of a WebSocket", "type", typ, "socket", k.id)
		m.end()
		return true
	case typ != intake.FrameCreate:
		m.err = failure.New(failure.InvalidRequest, "Only messages of type "+intake.FrameCreate+" are served.", failure.Param("type"))
	}
	if k.hand(ctx, m) {
		return true
	}
	m.end()
	return false
}

// refuse tells a client whose message cannot be read to its end.
func (k *socket) refuse(err error) {
	code, f := websocket.ClosePolicyViolation, failure.From(err)
	if f.Code == failure.PayloadTooLarge {
		code = websocket.CloseMessageTooBig
	}
	_ = k.conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, f.Code), time.Now().Add(farewell))
}

// hand gives a message to the handler. Meanwhile nobody listens for the client.
func (k *socket) hand(ctx context.Context, m message) bool {
	every := time.NewTicker(beatEvery)
	defer every.Stop()
	for {
		select {
		case k.messages <- m:
			return true
		case <-every.C:
			k.beat.Heard()
		case <-ctx.Done():
			return false
		}
	}
}

// run serves turns until the client has gone, has been idle for too long, or is to
// connect anew; that is always between two turns.
func (k *socket) run(ctx context.Context) {
	idle := time.NewTimer(k.server.socketIdle)
	defer idle.Stop()
	goodbye := newGoodbye(k.server.sockets.reason())
	defer goodbye.stop()
	k.busy(false)
	for {
		select {
		case m, ok := <-k.messages:
			if !ok || !k.take(ctx, m) {
				return
			}
			idle.Reset(k.server.socketIdle)
			goodbye.set(k.server.sockets.reason())
			goodbye.turn()
		case <-k.leave:
			goodbye.set(k.server.sockets.reason())
		case <-goodbye.due():
			if k.expects() {
				goodbye.later()
				continue
			}
			k.close(k.server.sockets.reason())
			return
		case <-idle.C:
			if k.expects() {
				idle.Reset(k.server.socketIdle)
				continue
			}
			k.close(leaving{websocket.CloseGoingAway, "this connection has had no turn for long", 0})
			return
		}
	}
}

// expects says that the client has begun to send what is not served yet: whatever it
// sent before a goodbye is.
func (k *socket) expects() bool { return k.arriving.Load() || len(k.messages) > 0 }

// close says why and ends the connection.
func (k *socket) close(l leaving) {
	text := websocket.FormatCloseMessage(l.code, l.text)
	_ = k.conn.WriteControl(websocket.CloseMessage, text, time.Now().Add(farewell))
	patience := time.AfterFunc(farewell, func() { _ = k.conn.Close() })
	defer patience.Stop()
	for m := range k.messages { // what comes before the client's own goodbye is not served
		m.end()
	}
}

// busy tells the listener whether it may close the connection to make room.
func (k *socket) busy(now bool) {
	if c, ok := k.conn.NetConn().(*conn); ok {
		c.serves(now)
	}
}

// take serves one message; false = nothing more can be written, or nobody reads it.
func (k *socket) take(ctx context.Context, m message) bool {
	defer m.end()
	if ctx.Err() != nil {
		return false
	}
	k.busy(true)
	out := &frames{conn: k.conn}
	k.answer(ctx, m, out)
	if !k.arriving.Load() {
		k.busy(false)
	}
	return out.err == nil
}

// answer writes the whole answer to a message.
func (k *socket) answer(ctx context.Context, m message, out *frames) {
	s := k.server
	defer out.end()
	c := &call{w: newAnswer(out, s.stallTime), r: k.upgrade.Clone(ctx), rt: s.runtime.Load(), id: requestID(nil),
		start: time.Now(), label: k.label}
	defer c.w.stall.finish()
	defer s.recovered(c)
	err := m.err
	if err == nil && !s.authenticate(c) { // its key may have been taken away since
		failure.New(failure.InvalidAPIKey, unknownKey).WriteHTTP(c.w)
		s.done(c, telemetry.OutcomeUnauthorized)
		return
	}
	if err == nil {
		err = k.turn(c, m.body)
	}
	if err != nil {
		failure.From(err).WriteHTTP(c.w)
		s.done(c, telemetry.OutcomeCallerError)
	}
}

// turn serves a turn of the call's client. An error means that it was not begun.
func (k *socket) turn(c *call, body []byte) error {
	budget, err := c.budget(true)
	if err != nil {
		return err
	}
	k.server.turns.ServeTurn(c.w, c.r, &bridge.Request{
		ID: c.id, Route: k.family, Client: c.client, Header: c.r.Header, Body: body, Stream: true, Socket: k.id, Runtime: c.rt, Budget: budget,
	})
	return nil
}

// ignored are messages that ask for less than is under way, which may be refused
// without a word: Codex' wish to interrupt a response, after which it waits for its
// end, and its receipts.
var ignored = map[string]bool{"response.interrupt": true, "response.processed": true}
