package bridge

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

func TestB07_SilenceInMidStreamEnds(t *testing.T) {
	for transport, header := range map[string][]string{"websocket": thread("b07"), "http": nil} {
		for _, at := range []string{upstream.AtAfterCreated, upstream.AfterEvents(5)} {
			t.Run(transport+" "+at, func(t *testing.T) {
				t.Parallel()
				d := brief
				d.IdleSeconds, d.KeepaliveSeconds = 2, 1
				r := newRig(t, rigOptions{deadlines: d, hold: briefHold, script: upstream.Script{Rules: []upstream.Rule{{Repeat: 1, Fault: &upstream.Fault{At: at, Action: upstream.ActMute}}}}})
				out := r.do(call{header: header, body: hello})
				keepalives := 0
				for _, e := range out.events {
					if e.name == "keepalive" {
						keepalives++
					}
				}
				// The stream has ended, so nothing comes after its terminal event.
				if out.last().name != "response.failed" || out.code() != "stream_idle_timeout" || terminals(out) != 1 || keepalives == 0 {
					t.Fatalf("%d keepalives, %s, %v", keepalives, out.names(), out.err)
				}
				r.ended(1) // the upstream was let go
				again := r.do(call{header: header, body: hello})
				r.served(again)
				if s := r.seen(); len(s) != 2 || s[0].conn == s[1].conn {
					t.Fatalf("%+v", s)
				}
				if header != nil {
					if d := r.detail(header); d.Strikes != 0 || d.Attempts[0].Verdict != "idle" {
						t.Fatalf("%+v", d)
					}
				}
				r.unpunished()
			})
		}
	}
}

// Scenarios 61, 63 and 64: the turn moves once, unchanged, and its new attempt
// has its whole time.
func TestScenarios61_63_AFreshTurnMovesToAnotherAccount(t *testing.T) {
	t.Parallel()
	d := brief
	d.FirstEventSeconds = 2
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 3, deadlines: d, script: upstream.Script{Rules: []upstream.Rule{
		{Match: upstream.Match{Nth: 1}, Fault: &upstream.Fault{Action: upstream.ActMute}},
		{Respond: &upstream.Respond{Text: "late", Delay: upstream.Duration(1200 * time.Millisecond)}}}}})
	out := r.do(call{header: thread("s63"), body: hello})
	if r.served(out); out.text() != "late" {
		t.Fatalf("%q", out.text())
	}
	ds := r.dispatches(2)
	if ds[0].Account == ds[1].Account || ds[0].BodyDigest != ds[1].BodyDigest {
		t.Fatalf("%+v", r.seen())
	}
	d2 := r.detail(thread("s63"))
	if a := attempt(d2, 2); a.Verdict != "silent" || a.Recovery != "other_account" || a.Strike != "IdleTimeout" || d2.Strikes != 0 {
		t.Fatalf("%+v", d2)
	}
	r.unpunished()
}

// The account that fell silent is out for this turn, even if it is the next in
// line again.
func TestScenario64_TheStuckAccountIsNotAskedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 2, deadlines: brief, script: upstream.Script{Rules: []upstream.Rule{
		{Match: upstream.Match{InputContains: "stuck", Nth: 1}, Fault: &upstream.Fault{Action: upstream.ActMute}}}}})
	stuck := r.running(call{header: thread("s64"), body: strings.Replace(hello, "hello", "stuck", 1)}, "", 0)
	until(t, "it is stuck", func() bool { return len(r.seen()) == 1 })
	r.served(r.do(call{header: thread("other"), body: hello})) // takes the other account's place in the line
	r.served(stuck())
	ds := r.dispatches(3)
	if ds[0].Account == ds[2].Account || ds[1].Account == ds[0].Account || ds[0].BodyDigest != ds[2].BodyDigest {
		t.Fatalf("%+v", r.seen())
	}
}

func TestScenario63_ItMovesOnlyOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 3, deadlines: brief, hold: time.Minute, script: upstream.Script{Rules: []upstream.Rule{{Fault: &upstream.Fault{Action: upstream.ActMute}}}}})
	r.refused(r.do(call{header: thread("s63"), body: hello}), http.StatusGatewayTimeout, "bridge_eventless_timeout", "first_event")
	ds := r.dispatches(2)
	if ds[0].Account == ds[1].Account {
		t.Fatalf("%+v", r.seen())
	}
}

// What may act at the upstream, or only its account can resolve, stays.
func TestScenario62_WhatIsNotNeutralIsNotSentAgain(t *testing.T) {
	user := `{"role":"user","content":"hello"}`
	for name, body := range map[string]string{
		"hosted tool":     `{"model":"m","stream":true,"tools":[{"type":"code_interpreter"}],"input":[` + user + `]}`,
		"file":            `{"model":"m","stream":true,"input":[{"role":"user","content":[{"type":"input_file","file_id":"file_1"}]}]}`,
		"sealed":          `{"model":"m","stream":true,"input":[{"type":"reasoning","id":"rs_1","encrypted_content":"x","summary":[]},` + user + `]}`,
		"unknown":         `{"model":"m","stream":true,"some_future_member":1,"input":[` + user + `]}`,
		"client's anchor": `{"model":"m","stream":true,"previous_response_id":"{{anchor}}","input":[` + user + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 2, deadlines: brief})
			first := r.do(call{header: thread("s62"), body: hello})
			r.served(first)
			r.rules(nil, upstream.Rule{Fault: &upstream.Fault{Action: upstream.ActMute}})
			out := r.do(call{header: thread("s62"), body: strings.Replace(body, "{{anchor}}", first.id(), 1)})
			r.refused(out, http.StatusGatewayTimeout, "bridge_eventless_timeout", "first_event")
			r.dispatches(2)
			if d := r.detail(thread("s62")); d.Strikes > 1 || d.Anchor != "good" {
				t.Fatalf("%+v", d)
			}
			r.unpunished()
		})
	}
}

func TestScenario68_TelemetryDoesNotHideSilence(t *testing.T) {
	t.Parallel()
	respond := &upstream.Respond{EventDelay: upstream.Duration(400 * time.Millisecond)}
	for range 20 {
		respond.Events = append(respond.Events, json.RawMessage(`{"type":"codex.rate_limits","rate_limits":{}}`), json.RawMessage(`{"type":"keepalive"}`))
	}
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: brief, script: upstream.Script{Rules: []upstream.Rule{{Respond: respond}}}})
	out := r.do(call{header: thread("s68"), body: hello})
	if out.done() || out.code() != "bridge_eventless_timeout" {
		t.Fatalf("%d %s %s", out.status, out.body, out.names())
	}
	if d := r.ended(1)[0]; d.Outcome != upstream.OutcomeCancelled {
		t.Fatalf("telemetry kept the turn alive to its end: %s", d.Outcome)
	}
	if d := r.detail(thread("s68")); d.Strikes != 1 || attempt(d, 1).Strike != "IdleTimeout" {
		t.Fatalf("%+v", d)
	}
}

func TestScenario69_SlowProgressBeforeCreatedLives(t *testing.T) {
	t.Parallel()
	respond := &upstream.Respond{EventDelay: upstream.Duration(500 * time.Millisecond)}
	for range 5 {
		respond.Events = append(respond.Events, json.RawMessage(`{"type":"response.queued","response":{"id":"{{id}}","status":"queued"}}`))
	}
	respond.Events = append(respond.Events, json.RawMessage(`{"type":"response.created","response":{"id":"{{id}}","status":"in_progress"}}`),
		json.RawMessage(`{"type":"response.completed","response":{"id":"{{id}}","status":"completed","output":[]}}`))
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: brief, script: upstream.Script{Rules: []upstream.Rule{{Respond: respond}}}})
	r.served(r.do(call{header: thread("s69"), body: hello}))
	r.dispatches(1)
}
