package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// socket is one WebSocket and the memory that lives and dies with it.
type socket struct {
	s       *Server
	ws      *websocket.Conn
	tracked *trackedConn // nil inside a foreign server
	proto   request      // account, path, headers: the same for every frame
	silent  atomic.Bool  // pings are not answered

	ctx    context.Context // the life of the socket
	cancel context.CancelFunc

	writing sync.Mutex // one frame at a time

	mu      sync.Mutex
	lanes   map[string]*lane
	running map[*turn]struct{}
	places  chan struct{} // responses in flight, on all lanes
	turns   sync.WaitGroup
}

// lane is a queue of responses of which one runs at a time.
type lane struct {
	newest *remembered
	queue  []*turn
	busy   bool
}

// upgrade makes a socket of a request and serves it until it ends; first, if
// set, is called before any frame is read.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request, proto request, first func(*socket)) {
	script := s.director.get()
	up := websocket.Upgrader{
		ReadBufferSize: 4096, WriteBufferSize: 4096, EnableCompression: script.Connection.Deflate,
		CheckOrigin: func(*http.Request) bool { return true },
	}
	head := http.Header{}
	setHeaders(head, s.quotas.headers(&proto, nil))
	ws, err := up.Upgrade(w, r, head)
	if err != nil {
		return // Upgrade has answered
	}
	k := &socket{
		s: s, ws: ws, tracked: connOf(r), proto: proto, lanes: map[string]*lane{}, running: map[*turn]struct{}{},
		places: make(chan struct{}, maxInFlightSocket),
	}
	k.ctx, k.cancel = context.WithCancel(s.ctx)
	defer k.cancel()
	if !s.adopt(k) { // the peer has its 101 already, and hears why
		k.close(websocket.CloseGoingAway, "shutting down")
		return
	}
	defer s.release(k)
	if k.tracked != nil {
		s.ledger.update(func() {
			rec := k.tracked.record
			rec.Transport, rec.Account, rec.Path = TransportWS, proto.account, proto.path
		})
		k.tracked.limit.Store(script.Connection.ResetAfter)
	}
	age := defaultMaxAge
	if d := time.Duration(script.Connection.MaxAge); d > 0 {
		age = d
	}
	expire := time.AfterFunc(age, k.expire)
	defer expire.Stop()
	if first != nil {
		first(k)
	}
	k.read()
}

func (s *Server) adopt(k *socket) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.leaving {
		return false
	}
	s.sockets[k] = struct{}{}
	return true
}

func (s *Server) release(k *socket) {
	k.cancel()
	_ = k.ws.Close() // closed already, most of the time
	k.turns.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, k)
}

// expire is the end of a socket's allotted time.
func (k *socket) expire() {
	_ = k.text(k.ctx, connectionLimit().frame(ShapeNested, ""), &pace{}) // the peer may have gone
	k.close(websocket.CloseNormalClosure, "connection limit reached")
}

// read takes frames until the socket ends; turns run beside it.
func (k *socket) read() {
	k.ws.SetReadLimit(maxBody)
	k.ws.SetPingHandler(func(data string) error {
		if k.silent.Load() {
			return nil
		}
		err := k.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeWait))
		if errors.Is(err, websocket.ErrCloseSent) {
			return nil
		}
		return err //nolint:wrapcheck // goes to gorilla's reader and no further
	})
	for {
		kind, b, err := k.ws.ReadMessage()
		if err != nil {
			k.ended(err)
			return
		}
		k.frame(kind, b)
	}
}

func (k *socket) ended(err error) {
	code := websocket.CloseAbnormalClosure
	var ce *websocket.CloseError
	if errors.As(err, &ce) {
		code = ce.Code
	}
	if k.tracked != nil {
		k.tracked.closing(code, "peer")
	}
}

func (k *socket) frame(kind int, b []byte) {
	req := k.proto
	req.received, req.socket, req.transport = time.Now(), k, TransportWS
	req.body, req.wire = b, len(b)
	if k.tracked != nil {
		k.s.ledger.update(func() { k.tracked.record.Requests++ })
	}
	if kind != websocket.TextMessage {
		k.reject(&req, badRequest("invalid_frame", "Only text frames are accepted.", ""))
		return
	}
	v, err := decode(b)
	fields, ok := v.(map[string]any)
	if err != nil || !ok {
		k.reject(&req, badRequest("invalid_json", "We could not parse the JSON of your frame.", ""))
		return
	}
	switch typ := text(fields["type"]); typ {
	case "response.create":
		if refusal := req.parse(); refusal != nil {
			k.reject(&req, refusal)
			return
		}
		k.create(&req)
	case "response.interrupt":
		k.note(&req, typ, nil)
		k.interrupt(text(fields["response_id"]))
	case "response.steer", "response.cancel", "response.processed":
		k.note(&req, typ, nil)
	default:
		k.reject(&req, badRequest("invalid_event", fmt.Sprintf("Unknown event type '%s'.", typ), "type"))
	}
}

// note writes a frame that is no response.create to the ledger.
func (k *socket) note(req *request, typ string, e *apiError) {
	r := &Request{
		Time: req.received, Route: "frame", Method: typ, Path: req.path, Account: req.account, Connection: req.conn, Client: req.client,
		BodyBytes: len(req.body), BodyDigest: Digest(req.body),
	}
	if e != nil {
		r.Status, r.Code = e.status, e.code
	}
	if k.s.opts.KeepBodies {
		r.Body = req.body
	}
	k.s.ledger.addRequest(r)
}

func (k *socket) reject(req *request, e *apiError) {
	k.note(req, "rejected", e)
	_ = k.text(k.ctx, e.frame(ShapeNested, ""), &pace{}) // the reader notices a dead peer
}

// create starts a response or queues it behind the one of its lane.
func (k *socket) create(req *request) {
	if e := k.checkLane(req.lane); e != nil {
		k.reject(req, e)
		return
	}
	t := k.s.newTurn(req, &wsSink{k: k, lane: req.lane})
	k.turns.Add(1)
	if req.mode == ModeChatGPT {
		go k.play(t)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.lanes[req.lane]
	l.queue = append(l.queue, t)
	if !l.busy {
		l.busy = true
		go k.drain(l)
	}
}

func (k *socket) checkLane(name string) *apiError {
	if len(name) > maxLaneName {
		return badRequest("invalid_stream_id", "Invalid 'stream_id': at most 256 characters.", "stream_id")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lanes[name] != nil {
		return nil
	}
	if name != "" && len(k.lanes) >= maxLanes {
		return badRequest("websocket_stream_limit_reached", "At most 32 streams per connection.", "stream_id")
	}
	k.lanes[name] = &lane{}
	return nil
}

// drain runs the responses of a lane, one after the other.
func (k *socket) drain(l *lane) {
	for {
		k.mu.Lock()
		if len(l.queue) == 0 {
			l.busy = false
			k.mu.Unlock()
			return
		}
		t := l.queue[0]
		l.queue = l.queue[1:]
		k.mu.Unlock()
		k.play(t)
	}
}

func (k *socket) play(t *turn) {
	defer k.turns.Done()
	select {
	case k.places <- struct{}{}:
		defer func() { <-k.places }()
	case <-k.ctx.Done():
	}
	k.mu.Lock()
	k.running[t] = struct{}{}
	k.mu.Unlock()
	t.run(k.ctx)
	k.mu.Lock()
	delete(k.running, t)
	k.mu.Unlock()
}

func (k *socket) interrupt(id string) {
	if k.s.director.get().Connection.IgnoreInterrupt {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for t := range k.running {
		if t.answers(id) {
			t.stopOnce.Do(func() { close(t.interrupted) })
		}
	}
}

// newest finds an anchor in the memory of the socket: the newest response of
// any of its lanes.
func (k *socket) newest(id string) *remembered {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.lanes {
		if l.newest != nil && l.newest.id == id {
			return l.newest
		}
	}
	return nil
}

func (k *socket) remember(name string, r *remembered) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lanes[name].newest = r
}

func (k *socket) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.lanes {
		l.newest = nil
	}
}

// evict forgets the anchor a response of the same lane failed on.
func (k *socket) evict(name, id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.lanes[name]; l != nil && l.newest != nil && l.newest.id == id {
		l.newest = nil
	}
}
