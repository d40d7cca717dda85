package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/test/upstream"
)

func TestWithoutStreamTheResponseIsOneJSON(t *testing.T) {
	for transport, headers := range map[string][]string{"websocket": thread("json"), "http": nil} {
		t.Run(transport, func(t *testing.T) {
			r := newRig(t, rigOptions{script: upstream.Script{Respond: &upstream.Respond{Text: "one piece"}}})
			out := r.do(call{header: headers, body: `{"model":"gpt-5.5","input":"x"}`})
			if out.status != 200 || !strings.HasPrefix(out.header.Get("Content-Type"), "application/json") {
				t.Fatalf("%d %v %s", out.status, out.header, out.body)
			}
			if gjson.Get(out.body, "output.0.content.0.text").Str != "one piece" || gjson.Get(out.body, "status").Str != "completed" || gjson.Get(out.body, "object").Str != "response" {
				t.Fatalf("%s", out.body)
			}
		})
	}
}

func TestEarlyFailuresKeepTheirStatus(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  upstream.Fault
		status int
		code   string
		after  string // Retry-After
	}{
		"invalid request":         {upstream.Fault{Action: upstream.ActErrorFrame, Status: 400, Code: "invalid_value", Type: "invalid_request_error", Param: "tools"}, 400, "invalid_value", ""},
		"not found":               {upstream.Fault{Action: upstream.ActErrorFrame, Status: 404, Code: "model_not_found"}, 404, "model_not_found", ""},
		"too large is a 400":      {upstream.Fault{Action: upstream.ActErrorFrame, Status: 413, Code: "too_large"}, 400, "too_large", ""},
		"limit with a hint":       {upstream.Fault{Action: upstream.ActErrorFrame, Status: 429, Code: "rate_limit_exceeded", Headers: map[string]string{"retry-after": "7"}}, 429, "rate_limit_exceeded", "7"},
		"limit without a hint":    {upstream.Fault{Action: upstream.ActErrorFrame, Status: 429, Code: "rate_limit_exceeded"}, 429, "rate_limit_exceeded", "2"},
		"account's key rejected":  {upstream.Fault{Action: upstream.ActErrorFrame, Status: 401, Code: "invalid_api_key"}, 503, "upstream_account_rejected", "5"},
		"server error":            {upstream.Fault{Action: upstream.ActErrorFrame, Status: 500, Code: "server_error"}, 502, "server_error", ""},
		"frame without status":    {upstream.Fault{Action: upstream.ActErrorFrame, Code: "server_is_overloaded", Shape: upstream.ShapeNoStatus}, 503, "server_error", "5"}, // B111: the upstream's own word ends a Codex session
		"flat frame":              {upstream.Fault{Action: upstream.ActErrorFrame, Code: "rate_limit_exceeded", Shape: upstream.ShapeFlat}, 429, "rate_limit_exceeded", "2"},
		"a frame that is no JSON": {upstream.Fault{Action: upstream.ActNonJSON}, 502, "upstream_protocol_error", ""},
		"a binary frame":          {upstream.Fault{Action: upstream.ActBinary}, 502, "upstream_protocol_error", ""},
		"close before anything":   {upstream.Fault{Action: upstream.ActWSClose, CloseCode: 1011}, 502, "stream_incomplete", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{script: upstream.Script{Rules: []upstream.Rule{{Fault: &tc.fault}}}})
			out := r.do(call{header: thread("early"), body: hello})
			if out.status != tc.status || gjson.Get(out.body, "error.code").Str != tc.code || !after(out, tc.after) {
				t.Fatalf("%d %s Retry-After %q", out.status, out.body, out.header.Get("Retry-After"))
			}
			if strings.Contains(out.body, "canary") || strings.Contains(r.logs.String(), "sk-canary") {
				t.Fatal("a credential leaked")
			}
			r.noDuplicates()
		})
	}
}

func TestTelemetryDoesNotCommitTheStatus(t *testing.T) {
	r := newRig(t, rigOptions{script: upstream.Script{Respond: &upstream.Respond{Events: []json.RawMessage{
		json.RawMessage(`{"type":"codex.rate_limits","rate_limits":{}}`),
		json.RawMessage(`{"type":"error","status":404,"error":{"code":"model_not_found","message":"no such model"}}`)}}}})
	if out := r.do(call{header: thread("held"), body: hello}); out.status != 404 {
		t.Fatalf("%d %s %s", out.status, out.names(), out.body)
	}
}

func TestUpstreamThatAnswersHTML(t *testing.T) {
	for where, rule := range map[string]upstream.Rule{
		"http":        {Fault: &upstream.Fault{Action: upstream.ActHTML, Status: 200}},
		"http 503":    {Fault: &upstream.Fault{Action: upstream.ActHTML, Status: 503}},
		"the upgrade": {Match: upstream.Match{Route: "upgrade"}, Fault: &upstream.Fault{At: upstream.AtUpgrade, Action: upstream.ActHTML, Status: 503}},
	} {
		t.Run(where, func(t *testing.T) {
			r := newRig(t, rigOptions{script: upstream.Script{Rules: []upstream.Rule{rule}}})
			var headers []string
			if where == "the upgrade" {
				headers = thread("html")
			}
			out := r.do(call{header: headers, body: hello})
			if out.status < 500 || gjson.Get(out.body, "error.code").Str != "upstream_protocol_error" ||
				!strings.Contains(gjson.Get(out.body, "error.message").Str, "text/html") || strings.Contains(out.body, "<html") {
				t.Fatalf("%d %s", out.status, out.body)
			}
		})
	}
}

// The same late error keeps its status while it is held back, and is an event
// once the head is gone.
func TestStatusIsHeldBackForAWhile(t *testing.T) {
	late := upstream.Script{Respond: &upstream.Respond{Delay: upstream.Duration(time.Second), Events: []json.RawMessage{
		json.RawMessage(`{"type":"error","status":429,"error":{"code":"rate_limit_exceeded","message":"slow down"}}`)}}}
	held := newRig(t, rigOptions{hold: 20 * time.Second, script: late})
	if out := held.do(call{header: thread("held"), body: hello}); out.status != 429 {
		t.Fatalf("%d %s", out.status, out.names())
	}
	gone := newRig(t, rigOptions{hold: 100 * time.Millisecond, script: late})
	out := gone.do(call{header: thread("gone"), body: hello})
	if end := out.last(); out.status != 200 || end.name != "response.failed" || terminals(out) != 1 ||
		gjson.Get(end.data, "response.error.code").Str != "rate_limit_exceeded" {
		t.Fatalf("%d %s %s", out.status, out.names(), end.data)
	}
	if session.DefaultHold != 2*time.Second {
		t.Fatalf("hold %v", session.DefaultHold)
	}
}

func TestOneTerminalEventWhateverHappens(t *testing.T) {
	for name, fault := range map[string]upstream.Fault{
		"terminal twice":      {At: upstream.AtAfterTerminal, Action: upstream.ActTwice},
		"error after created": {At: upstream.AtAfterCreated, Action: upstream.ActErrorFrame, Status: 500, Code: "server_error"},
		"failed":              {At: upstream.AtAfterCreated, Action: upstream.ActFailed, Code: "server_error", Message: "x"},
		"incomplete":          {At: upstream.AtBeforeTerminal, Action: upstream.ActIncomplete, Reason: "max_output_tokens"},
		"unmatched frames":    {At: upstream.AtAfterCreated, Action: upstream.ActUnmatched},
		"garbage":             {At: upstream.AtAfterCreated, Action: upstream.ActNonJSON},
	} {
		for transport, headers := range map[string][]string{"websocket": thread("one"), "http": nil} {
			t.Run(name+" over "+transport, func(t *testing.T) {
				r := newRig(t, rigOptions{script: upstream.Script{Rules: []upstream.Rule{{Repeat: 1, Fault: &fault}}}})
				out := r.do(call{header: headers, body: hello})
				if out.err != nil || terminals(out) != 1 {
					t.Fatalf("%d terminals in %s, %v", terminals(out), out.names(), out.err)
				}
				if fault.Action != upstream.ActUnmatched { // its frames carry numbers of their own
					monotonic(t, out)
				}
				if next := r.do(call{header: headers, body: hello}); terminals(next) != 1 || next.last().name != "response.completed" {
					t.Fatalf("next turn: %d %s", next.status, next.names())
				}
			})
		}
	}
}

func TestPrettyPrintedFrameIsValidSSE(t *testing.T) {
	r := newRig(t, rigOptions{script: upstream.Script{Rules: []upstream.Rule{{Fault: &upstream.Fault{Action: upstream.ActPretty}}}}})
	out := r.do(call{header: thread("pretty"), body: hello})
	if out.last().name != "response.completed" {
		t.Fatalf("%s", out.names())
	}
	for _, e := range out.events {
		if !json.Valid([]byte(e.data)) || gjson.Get(e.data, "type").Str != e.name {
			t.Fatalf("%s: %s", e.name, e.data)
		}
	}
	if d := r.ended(1)[0]; out.digest() != d.EventsDigest {
		t.Fatal("the data is not what the upstream sent")
	}
}

func TestSecondAccountTakesOver(t *testing.T) {
	for name, fault := range map[string]upstream.Fault{
		"key rejected":       {Action: upstream.ActErrorFrame, Status: 401, Code: "invalid_api_key"},
		"limit reached":      {Action: upstream.ActErrorFrame, Status: 429, Code: "usage_limit_reached"},
		"upgrade refused":    {At: upstream.AtUpgrade, Action: upstream.ActStatus, Status: 401},
		"upgrade is limited": {At: upstream.AtUpgrade, Action: upstream.ActStatus, Status: 429, Headers: map[string]string{"Retry-After": "60"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{accounts: 2})
			c := r.conversation(thread("failover")...)
			c.say("one")
			owner := r.seen()[0].account
			rule := upstream.Rule{Match: upstream.Match{Account: owner}, Fault: &fault}
			if fault.At == upstream.AtUpgrade {
				rule.Match.Route = "upgrade"
				// The socket that is open already must go for an upgrade to happen.
				r.bridge.Close(t.Context())
				r.bridge = New(Options{Logger: r.bridge.log, Accounts: r.accounts, Metrics: r.metrics})
			}
			if err := r.up.Script(upstream.Script{Rules: []upstream.Rule{rule}}); err != nil {
				t.Fatal(err)
			}
			// With the account out, the other one takes every turn, in the same request.
			for i := range 3 {
				out := c.say(fmt.Sprint("turn ", i))
				if out.status != 200 || out.last().name != "response.completed" {
					t.Fatalf("turn %d: %d %s %s", i, out.status, out.body, out.names())
				}
			}
			served := r.seen()
			if last := served[len(served)-1]; last.account == owner || !last.anchored {
				t.Fatalf("dispatches %+v", served)
			}
			refused := 0
			for _, s := range served[1:] {
				if s.account == owner {
					refused++
				}
			}
			if refused > 1 {
				t.Fatalf("the account that said no was asked %d times: %+v", refused, served)
			}
			r.noDuplicates()
		})
	}
}

func TestAllAccountsOutIsATruthfulAnswer(t *testing.T) {
	r := newRig(t, rigOptions{accounts: 2, script: upstream.Script{Rules: []upstream.Rule{{
		Fault: &upstream.Fault{Action: upstream.ActErrorFrame, Status: 429, Code: "usage_limit_reached", Type: "usage_limit_reached", Headers: map[string]string{"retry-after": "120"}}}}}})
	for range 2 {
		out := r.do(call{header: thread("out"), body: hello})
		if out.status != 429 || gjson.Get(out.body, "error.code").Str != "usage_limit_reached" {
			t.Fatalf("%d %s", out.status, out.body)
		}
		if !after(out, "119") {
			t.Fatalf("Retry-After %q", out.header.Get("Retry-After"))
		}
	}
	if n := len(r.seen()); n != 2 {
		t.Fatalf("%d dispatches, want one an account", n)
	}
}

func TestUpstreamWithoutWebSocketIsServedByHTTP(t *testing.T) {
	for _, status := range []int{404, 405, 426, 501} {
		r := newRig(t, rigOptions{provider: bundle.ProviderGeneric, script: upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{Route: "upgrade"},
			Fault: &upstream.Fault{At: upstream.AtUpgrade, Action: upstream.ActStatus, Status: status}}}}})
		c := r.conversation(thread("plain")...)
		for range 2 {
			if out := c.say("hi"); out.last().name != "response.completed" {
				t.Fatalf("%d: %d %s", status, out.status, out.body)
			}
		}
		upgrades := 0
		for _, q := range r.up.Ledger().Requests() {
			if q.Route == "upgrade" {
				upgrades++
			}
		}
		if got := r.seen(); len(got) != 2 || got[1].anchored || upgrades > 1 {
			t.Fatalf("%d: %d upgrades, %+v", status, upgrades, got)
		}
	}
}

func TestTurnStateNamesTheSession(t *testing.T) {
	r := newRig(t, rigOptions{})
	first := r.do(call{header: []string{"session-id", "s1"}, body: hello})
	token := first.header.Get("X-Codex-Turn-State")
	if !strings.HasPrefix(token, "http_turn_") {
		t.Fatalf("token %q", token)
	}
	second := r.do(call{header: []string{"x-codex-turn-state", token}, body: hello})
	if second.header.Get("X-Codex-Turn-State") != token {
		t.Fatal("the client's token was not returned")
	}
	other := r.do(call{header: []string{"x-codex-turn-state", token, "X-Test-Client", "someone-else"}, body: hello})
	if other.status != 200 {
		t.Fatalf("%d", other.status)
	}
	got := r.seen()
	if got[0].conn != got[1].conn || got[2].conn == got[0].conn {
		t.Fatalf("sockets %+v", got)
	}
}

func TestModelsDoNotShareASocket(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, model := range []string{"gpt-5.5", "gpt-5.6", "gpt-5.5", "GPT-5.6"} {
		if out := r.do(call{header: thread("models"), body: strings.Replace(hello, "gpt-5.5", model, 1)}); out.status != 200 {
			t.Fatalf("%d %s", out.status, out.body)
		}
	}
	got := r.seen()
	if got[0].conn != got[2].conn || got[1].conn != got[3].conn || got[0].conn == got[1].conn {
		t.Fatalf("sockets %+v", got)
	}
}

func TestRequestHeadersTowardsTheUpstream(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.do(call{header: append(thread("headers"), "Authorization", "Bearer cwk-canary", "Cookie", "a=canary", "X-Forwarded-For", "10.0.0.1", "Cf-Ray", "1",
		"X-Causeway-Peer-Key", "k", "version", "0.169.0", "openai-beta", "other=1, responses=experimental"), body: hello})
	h := r.ended(1)[0].Headers
	for name, want := range map[string]string{"originator": "codex_exec", "thread-id": "headers", "session-id": "headers", "openai-beta": "other=1, responses_websockets=2026-02-06"} {
		if h[name] != want {
			t.Errorf("%s: %q, want %q", name, h[name], want)
		}
	}
	if s := fmt.Sprint(h); strings.Contains(s, "canary") || strings.Contains(s, "10.0.0.1") || strings.Contains(s, "peer") {
		t.Errorf("passed on: %s", s)
	}
}

func TestResponseHeadersTowardsTheClient(t *testing.T) {
	r := newRig(t, rigOptions{script: upstream.Script{Respond: &upstream.Respond{Text: "x", Headers: map[string]string{
		"openai-model": "another", "x-request-id": "up-1", "x-ratelimit-remaining-requests": "9", "x-models-etag": "e", "set-cookie": "c=1"}}}})
	out := r.do(call{body: hello})
	for name, want := range map[string]string{"X-Request-Id": "req-1", "X-Causeway-Upstream-Request-Id": "up-1", "X-Ratelimit-Remaining-Requests": "9",
		"X-Models-Etag": "e", "Openai-Model": "", "Set-Cookie": ""} {
		if got := out.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestSDKsGetNoVendorEvents(t *testing.T) {
	events := []json.RawMessage{
		json.RawMessage(`{"type":"codex.rate_limits","rate_limits":{}}`),
		json.RawMessage(`{"type":"response.created","response":{"id":"{{id}}","status":"in_progress"},"sequence_number":0}`),
		json.RawMessage(`{"type":"response.metadata","headers":{}}`),
		json.RawMessage(`{"type":"response.completed","response":{"id":"{{id}}","status":"completed","output":[]},"sequence_number":1}`),
	}
	for client, want := range map[string]string{"codex": "codex.rate_limits created metadata completed", "sdk": "created completed"} {
		r := newRig(t, rigOptions{script: upstream.Script{Respond: &upstream.Respond{Events: events}}})
		headers := []string{"session-id", "s"}
		if client == "codex" {
			headers = thread("vendor")
		}
		if out := r.do(call{header: headers, body: hello}); out.names() != want {
			t.Errorf("%s got %s", client, out.names())
		}
	}
}

func TestDeniedInjectedAnchorIsTheProxysToPay(t *testing.T) {
	for _, shape := range []string{upstream.ShapeNested, upstream.ShapeTypeOnly, upstream.ShapeFlat, upstream.ShapeNoStatus} {
		fault := upstream.Fault{Action: upstream.ActErrorFrame, Status: 400, Code: "previous_response_not_found", Type: "invalid_request_error",
			Param: "previous_response_id", Message: "Previous response with id 'x' not found.", Shape: shape}
		if shape == upstream.ShapeTypeOnly {
			fault.Type = fault.Code
		}
		r := newRig(t, rigOptions{script: upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{Anchored: yes()}, Repeat: 1, Fault: &fault}}}})
		c := r.conversation(thread("denied")...)
		c.say("one")
		out := c.say("two")
		if out.status != http.StatusOK || out.last().name != "response.completed" {
			t.Fatalf("%s: %d %s %s", shape, out.status, out.body, out.names())
		}
		got := r.seen()
		if len(got) != 3 || !got[1].anchored || got[2].anchored {
			t.Fatalf("%s: %+v", shape, got)
		}
	}
}
