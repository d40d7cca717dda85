// Package upstream speaks to the Responses API of one account: a WebSocket per
// session, or one HTTP request per turn. Both give the same stream of events.
package upstream

import (
	"strings"
	"sync"
	"unsafe"

	"github.com/tidwall/gjson"
)

// Kind is what an event means to a session. Everything that only a client
// understands is KindOther and is relayed without being looked at.
type Kind uint8

// Kinds of events.
const (
	KindOther      Kind = iota // part of a response: deltas, items, parts
	KindCreated                // response.created
	KindInProgress             // response.in_progress
	KindItemAdded              // response.output_item.added
	KindItemDone               // response.output_item.done
	KindCompleted              // response.completed, the good end
	KindFailed                 // response.failed
	KindIncomplete             // response.incomplete
	KindError                  // error: a refusal of the request, or of the connection
	KindVendor                 // codex.*, response.metadata and the like: telemetry, no progress
	KindKeepalive              // keepalive: the upstream's own
)

// Terminal says whether a response ends with an event of this kind.
func (k Kind) Terminal() bool {
	return k == KindCompleted || k == KindFailed || k == KindIncomplete || k == KindError
}

// Lifecycle says whether the event proves that the upstream works on the
// response. Telemetry and keepalives do not.
func (k Kind) Lifecycle() bool { return k != KindVendor && k != KindKeepalive && k != KindError }

// Event is one event of a response. Data is the upstream's own bytes; it is
// valid until Release, which hands its memory back.
type Event struct {
	Kind Kind
	// Type is the event's name as in its JSON.
	Type string
	Data []byte
	buf  *buffer
}

// Release gives the event's memory back. The event must not be used after.
func (e *Event) Release() {
	if e.buf != nil {
		e.buf.release()
		e.buf, e.Data = nil, nil
	}
}

// Own makes an event of bytes that belong to nobody else.
func Own(eventType string, data []byte) Event {
	return Event{Kind: kindOf(eventType), Type: eventType, Data: data}
}

// known maps event types to kinds; a found key is also the interned name, so
// that an event of a known type allocates no string.
var known = map[string]Kind{
	"response.created":                             KindCreated,
	"response.in_progress":                         KindInProgress,
	"response.queued":                              KindInProgress,
	"response.output_item.added":                   KindItemAdded,
	"response.output_item.done":                    KindItemDone,
	"response.completed":                           KindCompleted,
	"response.failed":                              KindFailed,
	"response.incomplete":                          KindIncomplete,
	"error":                                        KindError,
	"keepalive":                                    KindKeepalive,
	"response.metadata":                            KindVendor,
	"codex.rate_limits":                            KindVendor,
	"codex.keepalive":                              KindVendor,
	"responsesapi.websocket_timing":                KindVendor,
	"response.content_part.added":                  KindOther,
	"response.content_part.done":                   KindOther,
	"response.output_text.delta":                   KindOther,
	"response.output_text.done":                    KindOther,
	"response.output_text.annotation.added":        KindOther,
	"response.refusal.delta":                       KindOther,
	"response.refusal.done":                        KindOther,
	"response.function_call_arguments.delta":       KindOther,
	"response.function_call_arguments.done":        KindOther,
	"response.custom_tool_call_input.delta":        KindOther,
	"response.custom_tool_call_input.done":         KindOther,
	"response.reasoning_summary_part.added":        KindOther,
	"response.reasoning_summary_part.done":         KindOther,
	"response.reasoning_summary_text.delta":        KindOther,
	"response.reasoning_summary_text.done":         KindOther,
	"response.reasoning_text.delta":                KindOther,
	"response.reasoning_text.done":                 KindOther,
	"response.image_generation_call.partial_image": KindOther,
}

// names interns the keys of known.
var names = func() map[string]string {
	m := make(map[string]string, len(known))
	for name := range known {
		m[name] = name
	}
	return m
}()

func kindOf(eventType string) Kind {
	if k, ok := known[eventType]; ok {
		return k
	}
	if strings.HasPrefix(eventType, "codex.") || strings.HasPrefix(eventType, "responsesapi.") {
		return KindVendor
	}
	return KindOther
}

// typeOf finds the value of the member "type" without decoding the event. It
// returns "" when there is none.
func typeOf(data []byte) string {
	const head = `{"type":"`
	s := view(data)
	if strings.HasPrefix(s, head) {
		if end := strings.IndexByte(s[len(head):], '"'); end > 0 {
			return intern(s[len(head) : len(head)+end])
		}
	}
	return intern(gjson.Get(s, "type").Str)
}

func intern(name string) string {
	if n, ok := names[name]; ok {
		return n
	}
	return strings.Clone(name)
}

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Buffers of events. Small ones are pooled; what one large event needed is left
// to the garbage collector, so that it does not stay for ever.
const (
	bufferBytes       = 4 << 10
	pooledBufferBytes = 64 << 10
)

type buffer struct{ b []byte }

var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, bufferBytes)} }}

func newBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) release() {
	if cap(b.b) > pooledBufferBytes {
		return
	}
	b.b = b.b[:0]
	buffers.Put(b)
}

// parse makes an event of a complete frame. ok is false when the frame is no
// JSON object; an object without a type but with an error is an error event.
func parse(b *buffer) (Event, bool) {
	data := trimSpace(b.b)
	if len(data) < 2 || data[0] != '{' || data[len(data)-1] != '}' {
		return Event{}, false
	}
	e := Event{Type: typeOf(data), Data: data, buf: b}
	e.Kind = kindOf(e.Type)
	if e.Kind == KindOther && e.Type != "" {
		return e, true // relayed as it is; only the client reads it
	}
	if !gjson.Valid(view(data)) {
		return Event{}, false
	}
	if e.Type == "" && gjson.Get(view(data), "error").Exists() {
		e.Kind, e.Type = KindError, "error"
	}
	return e, true
}

func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
