package clients

import (
	"net/http"
	"slices"
	"strconv"
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
		for _, kind := range s.kinds() {
			o := s.call(t, st.data, call{Kind: kind, Request: map[string]any{"input": "hi"}})
			if o.Error != nil || o.Text != text || o.Status != "completed" || o.ID == "" {
				t.Errorf("%s: %s", kind, o)
			}
			if kind != create && (o.Deltas != text || o.last() != "response.completed" || o.Events[0] != "response.created" || o.count("response.completed") != 1) {
				t.Errorf("%s: %s", kind, o)
			}
			if kind == create && o.RequestID == "" {
				t.Errorf("%s: no request id", kind)
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
		for _, kind := range s.kinds() {
			request := map[string]any{"input": "How is the weather?", "tools": []any{weather}, "store": true}
			o := s.call(t, st.data, call{Kind: kind, Request: request})
			if o.Error != nil || len(o.Calls) != 2 || o.Calls[0].Name != "weather" || o.Calls[0].Arguments != arguments || o.Calls[0].CallID == o.Calls[1].CallID {
				t.Fatalf("%s: %s", kind, o)
			}
			var results []any
			for _, c := range o.Calls {
				results = append(results, map[string]any{"type": "function_call_output", "call_id": c.CallID, "output": "rain"})
			}
			request = map[string]any{"input": results, "tools": []any{weather}, "store": true, "previous_response_id": o.ID}
			if o = s.call(t, st.data, call{Kind: kind, Request: request}); o.Error != nil || o.Text != "Rain." {
				t.Errorf("%s, with the results: %s", kind, o)
			}
		}
	})
	st.noDuplicates(t)
}

// A chain of stored responses, each request a process of its own: every request
// carries its one new item, and the upstream knows the rest.
func TestSDKChainsStoredResponses(t *testing.T) {
	const turns = 3
	st := start(t, setup{})
	forEach(t, func(t *testing.T, s sdk) {
		before := len(st.up.Ledger().Dispatches())
		kinds, previous := s.kinds(), ""
		for i := range turns {
			request := map[string]any{"input": "message " + strconv.Itoa(i), "store": true}
			if previous != "" {
				request["previous_response_id"] = previous
			}
			o := s.call(t, st.data, call{Kind: kinds[i%len(kinds)], Request: request})
			if o.Error != nil || !strings.Contains(o.Text, "message "+strconv.Itoa(i)) {
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
	st := start(t, setup{script: upstream.Script{Models: []string{"gpt-5.5", "gpt-6-sol"}}})
	forEach(t, func(t *testing.T, s sdk) {
		if o := s.call(t, st.data, call{Kind: models}); o.Error != nil || !slices.Equal(o.Models, []string{"gpt-5.5", "gpt-6-sol"}) {
			t.Error(o)
		}
		request := map[string]any{"model": "text-embedding-3-small", "input": []string{"one", "two"}}
		if o := s.call(t, st.data, call{Kind: embeddings, Request: request}); o.Error != nil || len(o.Dimensions) != 2 || o.Dimensions[0] == 0 {
			t.Error(o)
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
	onText := func(s string) upstream.Match { return upstream.Match{InputContains: s} }
	st := start(t, setup{script: upstream.Script{Rules: []upstream.Rule{
		{Match: onText("bad param"), Fault: &upstream.Fault{
			Action: upstream.ActStatus, Status: 400, Code: "invalid_value", Type: "invalid_request_error",
			Message: "Invalid value: 'loud'.", Param: "text.verbosity",
		}},
		{Match: onText("too much"), Fault: &upstream.Fault{
			Action: upstream.ActStatus, Status: 429, Code: "rate_limit_exceeded", Headers: map[string]string{"Retry-After": "2"},
		}},
	}}})
	ask := func(text string) map[string]any { return map[string]any{"input": text} }
	tests := []struct {
		name string
		call call
		want sdkError // Class as in Node
	}{
		{"unknown client key", call{APIKey: "cwk-nobody", Request: ask("hi")},
			sdkError{Class: "AuthenticationError", Status: 401, Code: "invalid_api_key"}},
		{"the upstream's 400", call{Request: ask("bad param")},
			sdkError{Class: "BadRequestError", Status: 400, Code: "invalid_value", Param: "text.verbosity"}},
		{"our 400", call{Request: map[string]any{"input": "hi", "previous_response_id": "resp_1", "conversation": "conv_1"}},
			sdkError{Class: "BadRequestError", Status: 400, Code: "invalid_request_error", Param: "conversation"}},
		{"previous response that nobody knows", call{Request: map[string]any{"input": "hi", "previous_response_id": "resp_1"}},
			sdkError{Class: "BadRequestError", Status: 400, Code: "previous_response_not_found", Param: "previous_response_id"}},
		{"429", call{Request: ask("too much")},
			sdkError{Class: "RateLimitError", Status: 429, Code: "rate_limit_exceeded", RetryAfter: "2"}},
	}
	forEach(t, func(t *testing.T, s sdk) {
		for _, tt := range tests {
			for _, kind := range s.kinds() {
				c := tt.call
				c.Kind = kind
				o := s.call(t, st.data, c)
				if o.Error == nil {
					t.Fatalf("%s, %s: %s", tt.name, kind, o)
				}
				e := *o.Error
				if e.Status != tt.want.Status || e.Code != tt.want.Code || e.Param != tt.want.Param || e.RequestID == "" || e.RetryAfter != tt.want.RetryAfter ||
					s.node != "" && e.Class != tt.want.Class {
					t.Errorf("%s, %s: %+v, want %+v", tt.name, kind, e, tt.want)
				}
				if strings.Contains(e.Message, "CANARY") {
					t.Errorf("%s, %s: a credential in %q", tt.name, kind, e.Message)
				}
			}
		}
	})
	st.noDuplicates(t)
}

// A 429 says how long to wait, and an SDK that waits so long succeeds.
func TestSDKWaitsAsLongAsToldAndSucceeds(t *testing.T) {
	forEach(t, func(t *testing.T, s sdk) {
		st := start(t, setup{script: upstream.Script{Rules: []upstream.Rule{{
			Repeat: 1, Fault: &upstream.Fault{Action: upstream.ActStatus, Status: 429, Code: "rate_limit_exceeded", Headers: map[string]string{"Retry-After": "2"}},
		}}}})
		o := s.call(t, st.data, call{Kind: stream, MaxRetries: 1, Request: map[string]any{"input": "hi"}})
		if o.Error != nil || o.last() != "response.completed" {
			t.Fatal(o)
		}
		if o.ElapsedMS < 1900 || o.ElapsedMS > 30_000 {
			t.Errorf("it took %d ms, want the 2 s that the upstream asked for", o.ElapsedMS)
		}
		st.noDuplicates(t)
	})
}

// A stream that the upstream cuts ends with an event that says so. SDKs take
// a stream that just ends for one that ended well.
func TestSDKCutStreamFails(t *testing.T) {
	for _, action := range []string{upstream.ActReset, upstream.ActFin, upstream.ActNoTerminal} {
		t.Run(action, func(t *testing.T) {
			st := start(t, setup{idle: 3, keepalive: 1, script: upstream.Script{
				Respond: &upstream.Respond{Text: "one two three four five six seven"},
				Rules:   []upstream.Rule{{Fault: &upstream.Fault{At: upstream.AtBeforeTerminal, Action: action}}},
			}})
			forEach(t, func(t *testing.T, s sdk) {
				o := s.call(t, st.data, call{Kind: stream, Request: map[string]any{"input": "hi"}})
				if o.Error != nil || o.last() != "response.failed" || o.count("response.failed") != 1 || o.Status != "failed" ||
					o.ResponseError == nil || o.ResponseError.Message == "" || o.ID == "" {
					t.Errorf("stream: %s", o)
				}
				o = s.call(t, st.data, call{Kind: create, Request: map[string]any{"input": "hi"}})
				if o.Error == nil || o.Error.Status < 500 || o.Error.Code == "" {
					t.Errorf("create: %s", o)
				}
			})
			st.noDuplicates(t)
		})
	}
}
