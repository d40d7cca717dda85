package upstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/causeway-dev/causeway/proxy/internal/heartbeat"
)

// closeWrite bounds the goodbye.
const closeWrite = 200 * time.Millisecond

// socket is a Conn over a WebSocket.
type socket struct {
	conn   *websocket.Conn
	header http.Header
	beat   *heartbeat.Heartbeat
	cause  atomic.Int32 // why the proxy closed it; -1 = it did not
	close  sync.Once
}

func newSocket(conn *websocket.Conn, header http.Header) *socket {
	s := &socket{conn: conn, header: header}
	s.cause.Store(-1)
	conn.SetReadLimit(MaxEventBytes)
	s.beat = heartbeat.New(conn, func() { s.end(CauseLiveness) })
	s.beat.Start()
	return s
}

// Heard is the time of the last ping or pong of the peer.
func (s *socket) Heard() time.Time { return s.beat.Pulse() }

func (s *socket) Header() http.Header { return s.header }

func (s *socket) Send(request Request) error {
	w, err := s.conn.NextWriter(websocket.TextMessage)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	for _, segment := range request.Segments {
		if _, err := w.Write(segment); err != nil {
			return err
		}
	}
	return w.Close()
}

func (s *socket) Receive() (Event, error) {
	for {
		kind, r, err := s.conn.NextReader()
		if err != nil {
			return Event{}, s.ended(err)
		}
		s.beat.Heard()
		if kind != websocket.TextMessage {
			return Event{}, &Ended{Cause: CauseGarbage, Err: errors.New("binary frame")}
		}
		b := newBuffer()
		if b.b, err = readAll(r, b.b[:0]); err != nil {
			b.release()
			return Event{}, s.ended(err)
		}
		if len(b.b) == 0 {
			b.release()
			continue
		}
		e, ok := parse(b)
		if !ok {
			b.release()
			return Event{}, &Ended{Cause: CauseGarbage, Err: errors.New("frame is not a JSON object")}
		}
		return e, nil
	}
}

// readAll is io.ReadAll into a buffer that is used again.
func readAll(r io.Reader, into []byte) ([]byte, error) {
	for {
		if len(into) == cap(into) {
			into = append(into, 0)[:len(into)]
		}
		n, err := r.Read(into[len(into):cap(into)])
		into = into[:len(into)+n]
		if errors.Is(err, io.EOF) {
			return into, nil
		}
		if err != nil {
			return into, err
		}
	}
}

func (s *socket) ended(err error) error {
	if cause := s.cause.Load(); cause >= 0 {
		return &Ended{Cause: Cause(cause), Err: err} //nolint:gosec // stored from a Cause
	}
	var closed *websocket.CloseError
	switch {
	case errors.Is(err, websocket.ErrReadLimit):
		return &Ended{Cause: CauseTooLarge, Err: err}
	case errors.As(err, &closed) && closed.Code == websocket.CloseNormalClosure:
		return &Ended{Cause: CauseClean, Code: closed.Code, Err: err}
	case errors.As(err, &closed):
		return &Ended{Cause: CauseAbrupt, Code: closed.Code, Err: err}
	}
	return &Ended{Cause: CauseAbrupt, Err: err}
}

func (s *socket) Close() { s.end(CauseLocal) }

func (s *socket) end(cause Cause) {
	s.close.Do(func() {
		s.cause.Store(int32(cause))
		s.beat.Stop()
		_ = s.conn.WriteControl(websocket.CloseMessage,
			websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(closeWrite))
		_ = s.conn.Close()
	})
}
