package clients

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/test/upstream"
)

// forEach runs a test with every SDK, one after the other.
func forEach(t *testing.T, f func(t *testing.T, s sdk)) {
	t.Helper()
	for _, s := range sdks {
		t.Run(s.name, func(t *testing.T) { f(t, s) })
	}
}

// B03: text, whole and streamed, with characters that are cut on the wire.
func TestB03_SDKText(t *testing.T) {
	const text = "Grüße, 世界! 👩‍🚀 ends here."
	st := start(t, setup{script: upstream.Script{Respond: &upstream.Respond{Text: text, ChunkBytes: 7}}})
	forEach(t, func(t *testing.T, s sdk) {
		for kind, o := range s.every(t, st.data, s.kinds(), func() map[string]any { return ask("hi") }) {
			if o.Error != nil || o.Text != text || o.Status != "completed" || o.ID == "" {
				t.Errorf("%s: %s", kind, o)
			}
			if kind == create {
				if o.RequestID == "" {
					t.Errorf("%s: no request id", kind)
				}
				continue
			}
			if o.Deltas != text || o.last() != "response.completed" || o.Events[0] != "response.created" || o.count("response.completed") != 1 {
				t.Errorf("%s: %s", kind, o)
			}
		}
	})
	st.noDuplicates(t)
}

// Tool calls: the SDK's user runs them and sends what they gave, on top of
// previous_response_id.
func TestSDKToolCalls(t *testing.T) {
	weather := map[string]any{
		"type": "function", "name": "weather", "description": "Tells the weather.", "strict": true,
		"parameters": map[string]any{
			"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}},
			"required": []string{"city"}, "additionalProperties": false,
		},
	}
	const arguments = `{"city":"Köln"}`
	st := start(t, setup{script: upstream.Script{Conversation: &upstream.Conversation{
		ToolTurns: 1, Tool: "weather", Arguments: arguments, Parallel: 2, FinalText: "Rain.",
	}}})
	forEach(t, func(t *testing.T, s sdk) {
		outcomes := s.every(t, st.data, s.kinds(), func() map[string]any {
			r := ask("How is the weather?")
			r["tools"], r["store"] = []any{weather}, true
			return r
		})
		var j job
		for kind, o := range outcomes {
			if o.Error != nil || len(o.Calls) != 2 || o.Calls[0].Name != "weather" || o.Calls[0].Arguments != arguments || o.Calls[0].CallID == o.Calls[1].CallID {
				t.Fatalf("%s: %s", kind, o)
			}
			var results []any
			for _, c := range o.Calls {
				results = append(results, map[string]any{"type": "function_call_output", "call_id": c.CallID, "output": "rain"})
			}
			request := map[string]any{"input": results, "tools": []any{weather}, "store": true, "previous_response_id": o.ID}
			j.Calls = append(j.Calls, call{Kind: kind, Request: request})
		}
		for i, o := range s.run(t, st.data, j) {
			if o.Error != nil || o.Text != "Rain." {
				t.Errorf("%s, with the results: %s", j.Calls[i].Kind, o)
			}
		}
	})
	st.noDuplicates(t)
}

// A chain of stored responses, each request by a process of its own: every
// request carries its one new item, and the upstream knows the rest.
func TestSDKChainsStoredResponses(t *testing.T) {
	const turns = 3
	st := start(t, setup{})
	forEach(t, func(t *testing.T, s sdk) {
		before := len(st.up.Ledger().Dispatches())
		kinds, previous := s.kinds(), ""
		for i := range turns {
			text := fmt.Sprintf("message %d", i)
			request := ask(text)
			request["store"] = true
			if previous != "" {
				request["previous_response_id"] = previous
			}
			o := s.call(t, st.data, call{Kind: kinds[i%len(kinds)], Request: request})
			if o.Error != nil || !strings.Contains(o.Text, text) {
				t.Fatalf("turn %d: %s", i+1, o)
			}
			previous = o.ID
		}
		ds := st.up.Ledger().Dispatches()[before:]
		ok := len(ds) == turns
		for i, d := range ds {
			ok = ok && d.Turn == i+1 && d.InputItems == 1 && d.AnchorResolved == (i > 0) && d.Store
		}
		if !ok {
			t.Errorf("want %d dispatches, each a turn further:%s", turns, describe(ds))
		}
	})
	st.noDuplicates(t)
}

func TestSDKModelsAndEmbeddings(t *testing.T) {
	names := []string{"gpt-5.5", "gpt-6-sol"}
	st := start(t, setup{script: upstream.Script{Models: names}})
	forEach(t, func(t *testing.T, s sdk) {
		request := map[string]any{"model": "text-embedding-3-small", "input": []string{"one", "two"}}
		o := s.run(t, st.data, job{Calls: []call{{Kind: models}, {Kind: embeddings, Request: request}}})
		if o[0].Error != nil || !slices.Equal(o[0].Models, names) {
			t.Error(o[0])
		}
		if o[1].Error != nil || !slices.Equal(o[1].Dimensions, []int{3, 3}) {
			t.Error(o[1])
		}
	})
	for _, r := range st.up.Ledger().Requests() {
		if r.Account != "first" || r.Status != http.StatusOK {
			t.Errorf("%s %s went to account %q and got %d", r.Method, r.Path, r.Account, r.Status)
		}
	}
}

// Errors reach SDKs as their own kinds of error, with what users need to act.
func TestSDKErrors(t *testing.T) {
	st := start(t, setup{script: upstream.Script{Rules: []upstream.Rule{{
		Match: upstream.Match{InputContains: "bad param"}, Fault: &upstream.Fault{
			Action: upstream.ActStatus, Status: http.StatusBadRequest, Code: "invalid_value", Type: "invalid_request_error",
			Message: "Invalid value: 'loud'.", Param: "text.verbosity",
		}},
	}}})
	with := func(request map[string]any, more ...string) map[string]any {
		for i := 0; i < len(more); i += 2 {
			request[more[i]] = more[i+1]
		}
		return request
	}
	tests := []struct {
		name string
		call call
		want sdkError // Class as in Node
	}{
		{"unknown client key", call{APIKey: "cwk-nobody", Request: ask("hi")},
			sdkError{Class: "AuthenticationError", Status: 401, Code: "invalid_api_key"}},
		{"the upstream's 400", call{Request: ask("bad param")},
			sdkError{Class: "BadRequestError", Status: 400, Code: "invalid_value", Param: "text.verbosity"}},
		{"our 400", call{Request: with(ask("hi"), "previous_response_id", "resp_1", "conversation", "conv_1")},
			sdkError{Class: "BadRequestError", Status: 400, Code: "invalid_request_error", Param: "previous_response_id"}},
		{"previous response that nobody knows", call{Request: with(ask("hi"), "previous_response_id", "resp_1")},
			sdkError{Class: "BadRequestError", Status: 400, Code: "previous_response_not_found", Param: "previous_response_id"}},
	}
	forEach(t, func(t *testing.T, s sdk) {
		for _, kind := range s.kinds() {
			var j job
			for _, tt := range tests {
				c := tt.call
				c.Kind = kind
				j.Calls = append(j.Calls, c)
			}
			for i, o := range s.run(t, st.data, j) {
				tt := tests[i]
				if o.Error == nil || !o.Error.is(s, tt.want) || o.Error.RequestID == "" {
					t.Errorf("%s, %s: %s, want the error %+v", tt.name, kind, o, tt.want)
				}
				if strings.Contains(o.String(), "CANARY") {
					t.Errorf("%s, %s: a credential in %s", tt.name, kind, o)
				}
			}
		}
	})
}

// is compares what a user acts on.
func (e *sdkError) is(s sdk, want sdkError) bool {
	return e.Status == want.Status && e.Code == want.Code && e.Param == want.Param && (s.node == "" || e.Class == want.Class)
}

// The upstream's 429 arrives with the wait that it asked for, and an SDK that
// waits so long succeeds.
func TestSDKLearnsHowLongToWait(t *testing.T) {
	busy := func(times int) setup {
		return setup{script: upstream.Script{Rules: []upstream.Rule{{Repeat: times, Fault: &upstream.Fault{
			Action: upstream.ActStatus, Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", Headers: map[string]string{"Retry-After": "2"},
		}}}}}
	}
	forEach(t, func(t *testing.T, s sdk) {
		for _, kind := range []string{create, stream} {
			st := start(t, busy(1))
			o := s.call(t, st.data, call{Kind: kind, Request: ask("hi")})
			if o.Error == nil || !o.Error.is(s, sdkError{Class: "RateLimitError", Status: 429, Code: "rate_limit_exceeded"}) || o.Error.RetryAfter != "2" {
				t.Errorf("%s: %s", kind, o)
			}
		}
		st := start(t, busy(1))
		o := s.call(t, st.data, call{Kind: stream, MaxRetries: 1, Request: ask("hi")})
		if o.Error != nil || o.last() != "response.completed" || o.ElapsedMS < 1900 {
			t.Errorf("with a retry after 2 s: %s", o)
		}
		st.noDuplicates(t)
	})
}

// A stream that the upstream cuts ends with an event that says so. SDKs take
// a stream that just ends for one that ended well.
func TestSDKCutStreamFails(t *testing.T) {
	for _, action := range []string{upstream.ActReset, upstream.ActFin, upstream.ActNoTerminal} {
		t.Run(action, func(t *testing.T) {
			st := start(t, setup{script: upstream.Script{
				Respond: &upstream.Respond{Text: "one two three four five six seven"},
				Rules:   []upstream.Rule{{Fault: &upstream.Fault{At: upstream.AtBeforeTerminal, Action: action}}},
			}})
			forEach(t, func(t *testing.T, s sdk) {
				for kind, o := range s.every(t, st.data, []string{create, stream}, func() map[string]any { return ask("hi") }) {
					switch {
					case kind == create && (o.Error == nil || o.Error.Status < 500 || o.Error.Code == ""):
						t.Errorf("%s: %s", kind, o)
					case kind == stream && (o.Error != nil || o.last() != "response.failed" || o.count("response.failed") != 1 || o.Status != "failed" ||
						o.ResponseError == nil || o.ResponseError.Message == "" || o.ID == ""):
						t.Errorf("%s: %s", kind, o)
					}
				}
			})
			st.noDuplicates(t)
		})
	}
}

// Over WebSocket: two turns, of which the second builds on the first, though nothing is
// stored and nothing but the connection names the conversation.
func TestSDKOverWebSocket(t *testing.T) {
	forEach(t, func(t *testing.T, s sdk) {
		st := start(t, setup{script: upstream.Script{Respond: &upstream.Respond{Text: "Hello."}}})
		request := ask("hi")
		request["store"] = false
		o := s.call(t, st.data, call{Kind: socket, Request: request})
		if o.Error != nil || o.Text != "Hello." || o.Status != "completed" || len(o.Events) != 2 {
			t.Fatal(o)
		}
		ds := st.up.Ledger().Dispatches()
		if len(ds) != 2 || ds[1].Anchor != o.Events[0] || !ds[1].AnchorResolved || ds[1].Connection != ds[0].Connection {
			t.Error(describe(ds))
		}
		wrong := s.call(t, st.data, call{Kind: socket, Request: map[string]any{"model": "", "input": "no model"}})
		if wrong.Error == nil || !strings.Contains(wrong.Error.Message, "model is empty") {
			t.Error(wrong)
		}
	})
}
