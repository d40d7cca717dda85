package bridge

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// eventStream writes server-sent events. One goroutine uses it.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	codex   bool
	// commit adds to the head before it is sent.
	commit    func(http.Header)
	committed bool
	created   bool
	// held are events that do not commit the head: telemetry before the first
	// event of the response, which may still turn out to be an error.
	held []upstream.Event
	// last is the last event, for its number and the response's id.
	last       []byte
	responseID string
	buf        []byte
	bytes      int
	written    time.Time
}

const (
	// copyBytes is the size up to which an event is copied into one write with
	// its framing.
	copyBytes = 8 << 10
	heldMax   = 64
)

func newEventStream(w http.ResponseWriter, codex bool) *eventStream {
	return &eventStream{w: w, control: http.NewResponseController(w), codex: codex, written: time.Now()}
}

// open sends the head before any event is there.
func (s *eventStream) open() error {
	if s.committed {
		return nil
	}
	if err := s.head(); err != nil {
		return err
	}
	return s.flush()
}

// head writes the response's head; it leaves with the event behind it, in one
// write. From here on, failures are events.
func (s *eventStream) head() error {
	if s.committed {
		return nil
	}
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	s.commit(h)
	s.committed = true
	s.w.WriteHeader(http.StatusOK)
	for i := range s.held {
		if err := s.write(&s.held[i]); err != nil {
			return err
		}
	}
	s.held = nil
	return nil
}

// events writes a batch and releases it, with one flush at its end.
func (s *eventStream) events(batch []upstream.Event) error {
	var err error
	wrote := false
	for i := range batch {
		e := &batch[i]
		switch {
		case err != nil || !s.wants(e):
			e.Release()
		case !s.committed && !e.Kind.Lifecycle():
			s.hold(*e)
		default:
			if err = s.head(); err == nil {
				err = s.write(e)
			} else {
				e.Release()
			}
			wrote = true
		}
	}
	if err == nil && wrote {
		err = s.flush()
	}
	return err
}

func (s *eventStream) hold(e upstream.Event) {
	if len(s.held) < heldMax {
		s.held = append(s.held, e)
		return
	}
	e.Release()
}

// wants says whether this client understands the event.
func (s *eventStream) wants(e *upstream.Event) bool {
	switch e.Kind {
	case upstream.KindVendor:
		return s.codex
	case upstream.KindKeepalive:
		return s.codex || s.created
	default:
		return true
	}
}

// write frames one event and releases it.
func (s *eventStream) write(e *upstream.Event) error {
	if e.Kind == upstream.KindCreated {
		s.created = true
		s.responseID = gjson.GetBytes(e.Data, "response.id").String()
	}
	s.remember(e.Data)
	err := s.frame(e.Type, e.Data)
	e.Release()
	return err
}

// frame writes an event's name and its data, byte for byte. Line ends inside the
// data, which JSON allows between tokens, become further data lines.
func (s *eventStream) frame(name string, data []byte) error {
	s.buf = append(append(append(s.buf[:0], "event: "...), name...), "\ndata: "...)
	if bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		for len(data) > 0 {
			line, rest := cutLine(data)
			s.buf = append(s.buf, line...)
			if data = rest; len(data) > 0 {
				s.buf = append(s.buf, "\ndata: "...)
			}
		}
	} else if len(data) <= copyBytes {
		s.buf = append(s.buf, data...)
	} else {
		if err := s.put(s.buf); err != nil {
			return err
		}
		if err := s.put(data); err != nil {
			return err
		}
		s.buf = s.buf[:0]
	}
	s.buf = append(s.buf, "\n\n"...)
	err := s.put(s.buf)
	if cap(s.buf) > 4*copyBytes {
		s.buf = nil
	}
	return err
}

// cutLine cuts at LF, CR LF or CR.
func cutLine(data []byte) (line, rest []byte) {
	i := bytes.IndexAny(data, "\r\n")
	if i < 0 {
		return data, nil
	}
	line, rest = data[:i], data[i+1:]
	if data[i] == '\r' && len(rest) > 0 && rest[0] == '\n' {
		rest = rest[1:]
	}
	return line, rest
}

func (s *eventStream) put(p []byte) error {
	n, err := s.w.Write(p)
	s.bytes += n
	return err
}

func (s *eventStream) flush() error {
	s.written = time.Now()
	return s.control.Flush()
}

// remember keeps the last event's bytes for its number; a large one is read at
// once.
func (s *eventStream) remember(data []byte) {
	if len(data) <= copyBytes {
		s.last = append(s.last[:0], data...)
		return
	}
	s.last = append(s.last[:0], `{"sequence_number":`...)
	s.last = strconv.AppendInt(s.last, sequenceOf(data), 10)
	s.last = append(s.last, '}')
}

// sequenceOf is an event's sequence_number; -1 = it has none.
func sequenceOf(data []byte) int64 {
	if n := gjson.GetBytes(data, "sequence_number"); n.Type == gjson.Number {
		return n.Int()
	}
	return -1
}

// keepalive fills a silence of every, and returns how long to wait for the next.
//
// After response.created it is an event that all clients take and that resets
// Codex' idle timer, which a comment does not; its number repeats the last one,
// so that numbers never fall. Before that, SDKs fail on any event, and get a
// comment that keeps intermediaries from cutting the connection.
func (s *eventStream) keepalive(every time.Duration) (time.Duration, error) {
	if silent := time.Since(s.written); silent < every {
		return every - silent, nil
	}
	if !s.committed {
		return every, nil
	}
	var err error
	if s.created || s.codex {
		s.buf = append(s.buf[:0], `event: keepalive`+"\n"+`data: {"type":"keepalive"`...)
		if n := sequenceOf(s.last); n >= 0 {
			s.buf = strconv.AppendInt(append(s.buf, `,"sequence_number":`...), n, 10)
		}
		s.buf = append(s.buf, "}\n\n"...)
		err = s.put(s.buf)
	} else {
		err = s.put([]byte(": keepalive\n\n"))
	}
	if err == nil {
		err = s.flush()
	}
	return every, err
}

// failed ends the stream with an event that says why. Its id is the response's
// if the client saw one.
func (s *eventStream) failed(f *failure.Failure, requestID string, now time.Time) error {
	id, sequence := s.responseID, sequenceOf(s.last)
	if id == "" {
		id = requestID
	}
	if sequence >= 0 {
		sequence++
	}
	if err := s.frame("response.failed", f.Event(id, sequence, now)); err != nil {
		return err
	}
	return s.flush()
}
