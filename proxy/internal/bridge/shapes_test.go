package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// The shapes that are denials are in TestB17; these look like them.
func TestScenario86_WhatIsNoDenial(t *testing.T) {
	const terse = "Invalid `previous_response_id`."
	frame := func(object string) upstream.Fault {
		return upstream.Fault{Action: upstream.ActErrorFrame, Body: `{"type":"error","status":400,"error":` + object + `}`}
	}
	for name, f := range map[string]upstream.Fault{
		"another param":     {Action: upstream.ActErrorFrame, Status: 400, Type: "invalid_request_error", Param: "input", Message: terse},
		"blank param":       frame(`{"type":"invalid_request_error","message":"` + terse + `","param":""}`),
		"param of spaces":   frame(`{"type":"invalid_request_error","message":"` + terse + `","param":"  "}`),
		"param is a number": frame(`{"type":"invalid_request_error","message":"` + terse + `","param":7}`),
		"param is a list":   frame(`{"type":"invalid_request_error","message":"` + terse + `","param":["previous_response_id"]}`),
		"another type":      {Action: upstream.ActErrorFrame, Status: 400, Type: "image_error", Message: terse},
		"more words":        {Action: upstream.ActErrorFrame, Status: 400, Type: "invalid_request_error", Message: terse + " Expected a string."},
		"words, no param":   {Action: upstream.ActErrorFrame, Status: 400, Type: "invalid_request_error", Message: "Previous response with id 'x' not found."},
		"another code":      {Action: upstream.ActErrorFrame, Status: 404, Code: "model_not_found", Type: "invalid_request_error", Param: "model", Message: "No such model."},
		"words of the user": {Action: upstream.ActErrorFrame, Status: 400, Code: "invalid_prompt", Type: "invalid_request_error", Message: "previous_response_not_found"},
		"Scenario 25":       {Action: upstream.ActErrorFrame, Status: 400, Code: "invalid_value", Type: "invalid_request_error", Param: "tools[0]", Message: "Invalid value."},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIncident(t, lost{verdict: "denied", rule: upstream.Rule{Fault: &f, Repeat: 2}})
			for n := range 2 {
				out := i.talk.send(i.calls[n:]...) // the calls' outputs, then the same again
				if out.status != http.StatusBadRequest && out.status != http.StatusNotFound || out.code() == "previous_response_not_found" {
					t.Fatalf("%d %s %s", out.status, out.body, out.names())
				}
				d := i.detail(i.talk.header)
				if a := attempt(d, 1); a.Verdict != "fault" || d.Strikes != 0 || d.Anchor != "good" || a.Recovery != "" {
					t.Fatalf("%+v, %d strikes, anchor %s", a, d.Strikes, d.Anchor)
				}
				i.quarantine(i.talk.header, "")
				i.dispatches(2 + n)
			}
			i.served(i.talk.send())
			if d := i.dispatches(4)[3]; d.Anchor != i.gone || d.InputItems != 1 {
				t.Fatalf("the anchor was dropped: %+v", i.seen())
			}
			i.unpunished()
		})
	}
}

func TestScenario23_AFailedEnvelopeIsOneStrike(t *testing.T) {
	for name, f := range map[string]upstream.Fault{
		"code":             {Action: upstream.ActFailed, Code: "server_error", Message: "The server had an error."},
		"only the type":    {Action: upstream.ActFailed, Body: `{"type":"server_error"}`},
		"stream_timeout":   {Action: upstream.ActFailed, Code: "stream_read_error", Message: "stream disconnected"},
		"error, no status": {Action: upstream.ActErrorFrame, Shape: upstream.ShapeNoStatus, Code: "server_error"},
		"error 503":        {Action: upstream.ActErrorFrame, Status: 503, Code: "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, script: upstream.Script{Rules: []upstream.Rule{{Fault: &f}}}})
			header := thread("s23")
			for n := 1; n <= 2; n++ {
				out := r.do(call{header: header, body: hello})
				if out.done() || terminals(out) > 1 {
					t.Fatalf("%d %s %s", out.status, out.body, out.names())
				}
				if d := r.detail(header); d.Strikes != n || attempt(d, 1).Strike != "StreamIncomplete" || attempt(d, 1).Verdict != "upstream_fault" {
					t.Fatalf("%d strikes after %d failures: %+v", d.Strikes, n, attempt(d, 1))
				}
			}
			out := r.do(call{header: header, body: hello})
			r.refused(out, http.StatusServiceUnavailable, "upstream_request_timeout", "hard_key_cooldown")
			if !after(out, "59") {
				t.Fatalf("Retry-After %q", out.header.Get("Retry-After"))
			}
			r.dispatches(2)
			r.unpunished()
			// Scenario 36: nobody else is let down.
			r.rules(nil)
			r.served(r.do(call{header: thread("other"), body: hello}))
		})
	}
}

func TestScenario24_AnIncompleteResponseIsNoFailure(t *testing.T) {
	for _, at := range []string{upstream.AtBeforeHeaders, upstream.AtAfterCreated, upstream.AtBeforeTerminal} {
		for _, reason := range []string{"max_output_tokens", "content_filter"} {
			t.Run(reason+" "+at, func(t *testing.T) {
				r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT})
				c := r.conversation(thread("s24")...)
				r.served(c.say("one"))
				first := r.dispatches(1)[0]
				r.rules(nil, upstream.Rule{Fault: &upstream.Fault{At: at, Action: upstream.ActIncomplete, Reason: reason}})
				for n := range 3 {
					c.items = append(c.items[:3:3], json.RawMessage(fmt.Sprintf(`{"role":"user","content":"more %d"}`, n)))
					out := r.do(call{header: c.header, body: c.body()})
					if d := r.ended(2 + n)[1+n]; out.last().name != "response.incomplete" || out.digest() != d.EventsDigest || d.Anchor != first.ResponseID {
						t.Fatalf("%d %s %s, anchor %q", out.status, out.body, out.names(), d.Anchor)
					}
					if d := r.detail(c.header); d.Strikes != 0 || d.Anchor != "good" || attempt(d, 1).Verdict != "incomplete" {
						t.Fatalf("%+v", d)
					}
				}
				r.quarantine(c.header, "")
				r.unpunished()
			})
		}
	}
}

func TestScenario31_ReasoningThenADropIsNoStrike(t *testing.T) {
	item := json.RawMessage(`{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]},"sequence_number":0}`)
	for name, action := range map[string]string{"reset": upstream.ActReset, "close": upstream.ActWSClose} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 2, script: upstream.Script{Rules: []upstream.Rule{{
				Respond: &upstream.Respond{Events: []json.RawMessage{item}}, Fault: &upstream.Fault{At: upstream.AfterEvents(1), Action: action}}}}})
			for n := range 3 {
				out := r.do(call{header: thread("s31"), body: hello})
				if out.done() || out.code() != "stream_incomplete" {
					t.Fatalf("%d %s %s", out.status, out.body, out.names())
				}
				if d := r.detail(thread("s31")); d.Strikes != 0 || attempt(d, 1).Verdict != "cut" || attempt(d, 1).Recovery != "" {
					t.Fatalf("%+v", d)
				}
				r.dispatches(n + 1)
			}
			r.unpunished()
		})
	}
}
