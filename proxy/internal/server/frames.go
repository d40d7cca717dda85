package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"
)

// frames is the answer to a turn that came over a WebSocket: of a stream the data of
// each event is a message, byte for byte; an answer in one piece, which is an error,
// is one message. One goroutine uses it. What serves turns, here or at a peer, need
// not know how the client listens.
type frames struct {
	conn   *websocket.Conn
	header http.Header
	status int
	// message is the event whose data is being written; nil = none.
	message io.WriteCloser
	// line is the beginning of a line whose end is not there yet, as far as it tells
	// what the line is; inData: the line is data, and what follows goes out.
	line   []byte
	inData bool
	body   bytes.Buffer
	// err is why nothing more can be written.
	err error
}

// maxErrorBytes bounds an answer in one piece.
const maxErrorBytes = 1 << 20

var dataField = []byte("data:")

// Header implements http.ResponseWriter.
func (f *frames) Header() http.Header {
	if f.header == nil {
		f.header = http.Header{}
	}
	return f.header
}

// WriteHeader implements http.ResponseWriter.
func (f *frames) WriteHeader(status int) {
	if f.status == 0 {
		f.status = status
	}
}

func (f *frames) streams() bool {
	return f.status == http.StatusOK && strings.HasPrefix(f.Header().Get("Content-Type"), "text/event-stream")
}

// Write implements http.ResponseWriter.
func (f *frames) Write(p []byte) (int, error) {
	f.WriteHeader(http.StatusOK)
	if !f.streams() {
		f.body.Write(p[:min(len(p), maxErrorBytes-f.body.Len())])
		return len(p), nil
	}
	for rest := p; len(rest) > 0 && f.err == nil; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			f.part(rest)
			break
		}
		if f.whole(rest[:end], rest[end+1:]) {
			rest = rest[end+2:]
			continue
		}
		f.part(rest[:end])
		f.endLine()
		rest = rest[end+1:]
	}
	if f.err != nil {
		return 0, f.err
	}
	return len(p), nil
}

// whole sends an event whose data is one line that came in one piece, as nearly all
// do: without a writer of its own, and in one frame.
func (f *frames) whole(line, rest []byte) bool {
	if len(f.line) > 0 || f.inData || f.message != nil || len(rest) == 0 || rest[0] != '\n' || !bytes.HasPrefix(line, dataField) {
		return false
	}
	f.err = f.conn.WriteMessage(websocket.TextMessage, bytes.TrimPrefix(line[len(dataField):], []byte{' '}))
	return true
}

// part takes a part of a line.
func (f *frames) part(p []byte) {
	if f.inData {
		f.data(p)
		return
	}
	room := len(dataField) + 1 // and the space that may follow
	n := min(room-len(f.line), len(p))
	f.line = append(f.line, p[:n]...)
	if len(f.line) == room && bytes.HasPrefix(f.line, dataField) { // of other lines the rest does not matter
		f.beginData()
		f.data(p[n:])
	}
}

// beginData is called once the line is known to be data.
func (f *frames) beginData() {
	f.inData = true
	if f.message == nil {
		f.message, f.err = f.conn.NextWriter(websocket.TextMessage)
	} else {
		f.data([]byte{'\n'})
	}
	f.data(bytes.TrimPrefix(f.line[len(dataField):], []byte{' '}))
}

func (f *frames) data(p []byte) {
	if f.err == nil && len(p) > 0 {
		_, f.err = f.message.Write(p)
	}
}

// endLine ends an event at an empty line.
func (f *frames) endLine() {
	empty := len(f.line) == 0
	f.line, f.inData = f.line[:0], false
	if empty && f.message != nil && f.err == nil {
		f.err = f.message.Close()
		f.message = nil
	}
}

// FlushError implements what http.ResponseController calls: each message has left
// with its end.
func (f *frames) FlushError() error { return nil }

// SetWriteDeadline implements what http.ResponseController calls: it ends a write that
// is under way.
func (f *frames) SetWriteDeadline(t time.Time) error {
	return f.conn.NetConn().SetWriteDeadline(t) //nolint:wrapcheck // of the connection itself
}

// errTorn ends a connection on which an event cannot be finished: what follows would be
// read as its end, and nothing at all as silence.
var errTorn = errors.New("the answer ended in the middle of an event")

// end sends what is left to say: an answer in one piece.
func (f *frames) end() {
	if f.status == 0 {
		return
	}
	if f.streams() {
		if torn := f.message != nil || len(f.line) > 0 || f.inData; torn && f.err == nil {
			f.err = errTorn
		}
		return
	}
	_ = f.conn.SetWriteDeadline(time.Now().Add(stallTime))
	f.err = f.conn.WriteMessage(websocket.TextMessage, f.failure())
	_ = f.conn.SetWriteDeadline(time.Time{})
}

// failure is an error as clients of the Responses WebSocket know it. Codex waits in
// silence if it has no status, and finds what it should know of a retry in headers.
func (f *frames) failure() []byte {
	frame := []byte(`{"type":"error","status":` + strconv.Itoa(f.status) + `}`)
	object := gjson.GetBytes(f.body.Bytes(), "error")
	raw := []byte(object.Raw)
	if !object.IsObject() {
		raw = []byte(noObject)
	}
	if with, err := sjson.SetRawBytes(frame, "error", raw); err == nil {
		frame = with
	}
	for _, name := range told {
		if v := f.Header().Get(name); v != "" {
			if with, err := sjson.SetBytes(frame, "headers."+strings.ToLower(name), v); err == nil {
				frame = with
			}
		}
	}
	return frame
}

// noObject is the error of an answer that has none.
const noObject = `{"type":"server_error","code":"internal_error","message":"The proxy has no answer that this connection can take."}`

// told are the headers of an error that its client acts on.
var told = []string{"Retry-After", "Retry-After-Ms", "X-Causeway-Dispatch", "X-Causeway-Retry", requestIDHeader}
