package bridge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

func TestConversationIsAnchored(t *testing.T) {
	for _, provider := range []string{bundle.ProviderOpenAIPlatform, bundle.ProviderChatGPT} {
		t.Run(provider, func(t *testing.T) {
			r := newRig(t, rigOptions{provider: provider, script: upstream.Script{Conversation: &upstream.Conversation{
				ToolTurns: 3, Tool: "shell", Arguments: `{"cmd":"ls"}`, Reasoning: true, FinalText: "all done"}}})
			c := r.conversation(thread("t1")...)
			out := c.say("go")
			for range 3 {
				calls := out.results("ok")
				if len(calls) != 1 {
					t.Fatalf("no call in %d %s %s", out.status, out.names(), out.body)
				}
				out = c.send(calls...)
			}
			if out.text() != "all done" {
				t.Fatalf("text %q, events %s", out.text(), out.names())
			}
			if out = c.say("again"); out.last().name != "response.completed" {
				t.Fatalf("%d %s", out.status, out.body)
			}
			if got := r.seen(); len(got) != 5 {
				t.Fatalf("dispatches: %+v", got)
			} else {
				for i, s := range got {
					if s.anchored != (i > 0) || s.conn != got[0].conn || i > 0 && s.items != 1 {
						t.Errorf("turn %d: %+v", i, s)
					}
				}
			}
			r.noDuplicates()
		})
	}
}

func TestEventsAreRelayedByteForByte(t *testing.T) {
	for name, respond := range map[string]upstream.Respond{
		"text":                                 {Text: "Hello, world. Grüße, 世界 🌍"},
		"tool calls":                           {ToolCalls: []upstream.ToolCall{{Name: "shell", Arguments: `{"cmd":"echo \"é\""}`}, {Name: "patch", Arguments: "*** x", Custom: true}}},
		"reasoning":                            {Reasoning: "thinking about it", Text: "ok"},
		"multi-byte characters split anywhere": {Text: strings.Repeat("世界🌍é ", 40), ChunkBytes: 3},
		"a 12 MiB event": {Events: []json.RawMessage{
			json.RawMessage(`{"type":"response.created","response":{"id":"{{id}}","status":"in_progress"},"sequence_number":0}`),
			json.RawMessage(`{"type":"response.output_item.done","item":{"type":"image_generation_call","id":"ig_1","result":"` + strings.Repeat("QUJD", 3<<20) + `"},"sequence_number":1}`),
			json.RawMessage(`{"type":"response.completed","response":{"id":"{{id}}","status":"completed","output":[]},"sequence_number":2}`)}},
		"many deltas": {Fill: upstream.Fill{Deltas: 3000, Bytes: 40}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, headers := range [][]string{thread("bytes"), nil} { // WebSocket, and HTTP
				r := newRig(t, rigOptions{script: upstream.Script{Respond: &respond}})
				out := r.do(call{header: headers, body: `{"model":"gpt-5.5","stream":true,"input":"x"}`})
				d := r.ended(1)[0]
				if out.status != 200 || out.err != nil {
					t.Fatalf("status %d, %v, %s", out.status, out.err, out.body)
				}
				if out.digest() != d.EventsDigest || len(out.events) != d.Events {
					t.Fatalf("client got %d events %s, upstream sent %d %s over %s", len(out.events), out.digest(), d.Events, d.EventsDigest, d.Transport)
				}
				want := "ws"
				if headers == nil {
					want = "http"
				}
				if d.Transport != want {
					t.Fatalf("transport %s, want %s", d.Transport, want)
				}
				if out.last().name != "response.completed" {
					t.Fatalf("last event %s", out.last().name)
				}
			}
		})
	}
}
