package session

import (
	"encoding/json"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
	"github.com/tidwall/sjson"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Transport is how a turn reaches the upstream.
type Transport uint8

// Transports.
const (
	WebSocket Transport = iota
	HTTP
)

func (t Transport) String() string { return [...]string{"websocket", "http"}[t] }

// frame builds what is sent for a turn: the client's own members, raw and in
// their order, with the few changes that transport and plan ask for. Large
// members are not copied; the result refers to body.
func frame(body []byte, in affinity.Input, p Plan, t Transport, turnState string) upstream.Request {
	b := framer{}
	if t == WebSocket {
		b.text(`{"type":"response.create"`)
	} else {
		b.text(`{"stream":true`)
	}
	if p.Anchor != "" {
		b.text(`,"previous_response_id":` + quote(p.Anchor))
	}
	metadata := turnState == ""
	gjson.Parse(view(body)).ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "type", "stream", "background", "previous_response_id":
			return true // implied by the transport, or set above
		case "input":
			if items := in.Items; in.List && len(items) > p.From && (p.From > 0 || len(p.Answers) > 0) {
				items = items[p.From:]
				b.text(`,"input":[`)
				b.answers(p.Answers)
				b.raw(body[items[0].Start:items[len(items)-1].End])
				b.text(`]`)
				return true
			}
		case "client_metadata":
			if !metadata {
				metadata = true
				if with, err := sjson.Set(value.Raw, turnStateMember, turnState); err == nil {
					b.text(`,"client_metadata":` + with)
					return true
				}
			}
		}
		b.text(`,` + name.Raw + `:`)
		b.raw(bytesOf(value.Raw))
		return true
	})
	if !metadata {
		b.text(`,"client_metadata":{` + quote(turnStateMember) + `:` + quote(turnState) + `}`)
	}
	b.text(`}`)
	b.flush()
	return upstream.Request{Segments: b.segments}
}

// interruptedText is what the model reads in place of a missing output.
const interruptedText = "The tool call was interrupted; it may have had an effect. Its output is not available."

// answers writes the outputs of interrupted tool calls, each followed by a comma.
func (b *framer) answers(answers []Answer) {
	for _, a := range answers {
		b.text(`{"type":` + quote(a.Type) + `,"call_id":` + quote(a.CallID))
		if a.Type == "apply_patch_call_output" {
			b.text(`,"status":"failed"`)
		}
		b.text(`,"output":` + quote(interruptedText) + `},`)
	}
}

const turnStateMember = "x-codex-turn-state"

// framer joins small texts and keeps large slices as they are.
type framer struct {
	segments [][]byte
	small    []byte
}

// inlineBytes is the size up to which a member is copied next to its
// neighbours: a few large pieces are cheaper to write than many small ones.
const inlineBytes = 512

func (b *framer) text(s string) { b.small = append(b.small, s...) }

func (b *framer) raw(p []byte) {
	if len(p) <= inlineBytes {
		b.small = append(b.small, p...)
		return
	}
	b.flush()
	b.segments = append(b.segments, p)
}

func (b *framer) flush() {
	if len(b.small) > 0 {
		b.segments = append(b.segments, b.small)
		b.small = nil
	}
}

func quote(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(raw)
}

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// clone copies a short string out of a body, so that the body can be freed.
func clone(s string) string { return strings.Clone(s) }
