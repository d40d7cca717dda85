package intake

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// FrameCreate is the type of the frame with which a client of the Responses
// WebSocket begins a turn.
const FrameCreate = "response.create"

// ErrConnection says that nothing more can be read of a connection: it broke in
// the middle of a message, or its rest was not worth waiting for.
var ErrConnection = errors.New("the connection cannot be read any further")

// ReadMessage returns one message of a WebSocket, within the bounds of a request's
// body in size and time. Errors are *failure.Failure, after which the next message
// can be read, or ErrConnection.
func (in *Reader) ReadMessage(conn Deadlines, message io.Reader) ([]byte, error) {
	src := &source{body: message, control: conn, start: time.Now(), options: in.options}
	body, err := in.readRaw(src, -1, nil)
	if err != nil {
		var refused *failure.Failure
		if !errors.As(err, &refused) || refused.Code != failure.PayloadTooLarge || !src.drain(2*int64(in.options.MaxBody)) {
			return nil, fmt.Errorf("%w: %w", ErrConnection, err)
		}
	}
	src.unbound()
	return body, err
}

// CheckFrame checks a message of a client's WebSocket and makes a turn's body of it,
// in place: a response.create is the body of a request with its type beside; stream
// is implied. Errors are *failure.Failure. kind is the message's type, where it has
// one; only that of FrameCreate is a turn.
func CheckFrame(message []byte) (kind string, body []byte, err error) {
	if err := checkSyntax(message); err != nil {
		return "", nil, err
	}
	root := gjson.Parse(unsafe.String(unsafe.SliceData(message), len(message)))
	if !root.IsObject() {
		return "", nil, failure.New(failure.InvalidRequest, fmt.Sprintf("A message must be a JSON object, not %s.", kindOf(root)))
	}
	typ := root.Get("type")
	switch {
	case !present(typ):
		return "", nil, invalid("type", "type is required: a turn is a message of type "+FrameCreate+".")
	case typ.Type != gjson.String:
		return "", nil, invalid("type", "type must be a string, not "+kindOf(typ)+".")
	case present(root.Get("stream_id")):
		return "", nil, failure.New(failure.InvalidStreamID,
			"stream_id is not supported by this proxy: leave it out, and open a connection for each conversation.", failure.Param("stream_id"))
	}
	kind = string([]byte(typ.Str))
	if kind != FrameCreate {
		return kind, nil, nil
	}
	body = without(message, "type", "stream", "stream_id")
	_, err = checkShape(body, Form{StreamOnly: true})
	return kind, body, err
}

// without cuts members out of a valid JSON object, all of each name, in one pass and in
// place: of a conversation with its images no second copy is made. What is kept is moved
// towards the front, behind which the parser never looks.
func without(object []byte, names ...string) []byte {
	root := gjson.Parse(unsafe.String(unsafe.SliceData(object), len(object)))
	kept := append(object[:0], '{')
	root.ForEach(func(key, value gjson.Result) bool {
		if slices.Contains(names, key.Str) {
			return true
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, object[key.Index:value.Index+len(value.Raw)]...)
		return true
	})
	return append(kept, '}')
}
