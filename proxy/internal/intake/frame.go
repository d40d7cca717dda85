package intake

import (
	"errors"
	"fmt"
	"io"
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
	if body, err = without(message, "type", "stream", "stream_id"); err != nil {
		return kind, nil, err
	}
	_, err = checkShape(body, Form{StreamOnly: true})
	return kind, body, err
}

// without cuts members out of a valid JSON object, all of each name, in place: of a
// conversation with its images no second copy is made.
func without(object []byte, names ...string) ([]byte, error) {
	for {
		start, end := member(object, names)
		if end == 0 {
			return object, nil
		}
		if next := skipSpace(object, end); object[next] == ',' {
			end = next + 1
		} else {
			for start--; object[start] != ',' && object[start] != '{'; start-- {
				if object[start] > ' ' {
					return nil, failure.New(failure.InvalidJSON, "The message is not valid JSON.")
				}
			}
			if object[start] == '{' {
				start++
			}
		}
		object = append(object[:start], object[end:]...)
	}
}

// member is where the first member with one of names begins and ends; end 0 = there
// is none.
func member(object []byte, names []string) (start, end int) {
	root := gjson.Parse(unsafe.String(unsafe.SliceData(object), len(object)))
	root.ForEach(func(key, value gjson.Result) bool {
		for _, name := range names {
			if key.Str == name {
				start, end = key.Index, value.Index+len(value.Raw)
				return false
			}
		}
		return true
	})
	return start, end
}

func skipSpace(b []byte, i int) int {
	for b[i] <= ' ' {
		i++
	}
	return i
}
