package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// patient deadlines let a turn whose client left come to its end.
var patient = bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, FirstEventSeconds: 30, IdleSeconds: 30, KeepaliveSeconds: 15, CancelGraceSeconds: 30}

// until waits for a condition that the proxy reaches by itself.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// calls are the tool calls that a client got.
func (r *reply) calls() []string {
	var out []string
	for _, e := range r.events {
		if e.name == "response.output_item.done" && strings.Contains(e.data, `_call"`) {
			out = append(out, e.data)
		}
	}
	return out
}

func TestB33_Scenarios60_88_ACallIsHandedOutOnceWhenATurnBreaks(t *testing.T) {
	for name, call := range map[string]upstream.ToolCall{
		"shell":       {Name: "shell", Arguments: `{"command":["rm","x"],"timeout_ms":1000}`},
		"apply_patch": {Name: "apply_patch", Arguments: "*** Begin Patch", Custom: true}, // Scenario 88
	} {
		for _, provider := range []string{bundle.ProviderChatGPT, bundle.ProviderOpenAIPlatform} {
			t.Run(name+" "+provider, func(t *testing.T) {
				acts := &upstream.Respond{ToolCalls: []upstream.ToolCall{call}}
				r := newRig(t, rigOptions{provider: provider, accounts: 2, script: upstream.Script{Rules: []upstream.Rule{
					{Match: upstream.Match{InputContains: "delete", Nth: 1}, Respond: acts, Fault: &upstream.Fault{At: upstream.AtAfterItem, Action: upstream.ActReset}},
					{Match: upstream.Match{InputContains: "delete", Nth: 1}, Respond: acts},
				}}})
				c := r.conversation(thread("b33")...)
				r.served(c.say("hello"))
				before := r.detail(c.header)
				c.items = append(c.items, json.RawMessage(`{"role":"user","content":"delete x"}`))
				body := c.body()
				broken := r.do(callOf(c, body))
				if len(broken.calls()) != 1 || broken.code() != "stream_incomplete" {
					t.Fatalf("first: %s %s", broken.names(), broken.last().data)
				}
				again := r.do(callOf(c, body))
				if len(again.calls()) != 0 || again.code() != "stream_incomplete" || again.reason() != "duplicate_tool_call" || terminals(again) != 1 {
					t.Fatalf("again: %s %s", again.names(), again.last().data)
				}
				ds := r.dispatches(3)
				if ds[2].Outcome != upstream.OutcomeCompleted || ds[2].Account != ds[0].Account {
					t.Fatalf("%+v", r.seen())
				}
				// Scenario 60: it settles nothing, moves no anchor, and costs no account.
				d := r.detail(c.header)
				if a := attempt(d, 1); a.Verdict != "duplicate" || d.Anchor == "none" || d.Account != before.Account || d.Strikes != 0 {
					t.Fatalf("%+v", d)
				}
				r.unpunished()
				// A turn that goes on is served, and its calls are its own.
				r.rules(nil, upstream.Rule{Respond: acts})
				if out := c.say("once more"); !out.done() || len(out.calls()) != 1 {
					t.Fatalf("next turn: %d %s %s", out.status, out.body, out.names())
				}
				if d := r.dispatches(4)[3]; provider == bundle.ProviderChatGPT && d.Anchor != ds[0].ResponseID {
					t.Fatalf("the anchor moved to %q", d.Anchor)
				}
			})
		}
	}
}

func callOf(c *conversation, body string) call { return call{header: c.header, body: body} }

func TestB34_PollsThatWaitDifferentlyAreTwo(t *testing.T) {
	poll := func(wait int) upstream.ToolCall {
		return upstream.ToolCall{Name: "write_stdin", Arguments: fmt.Sprintf(`{"session_id":1,"chars":"","yield_time_ms":%d}`, wait)}
	}
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, script: upstream.Script{Respond: &upstream.Respond{ToolCalls: []upstream.ToolCall{poll(1000), poll(5000), poll(5000)}}}})
	c := r.conversation(thread("b34")...)
	out := c.say("poll")
	if !out.done() || len(out.calls()) != 3 {
		t.Fatalf("%d of 3 calls: %s", len(out.calls()), out.names())
	}
	// The same polls in the next turn are no repetition either.
	out = c.send(out.results("still running")...)
	if !out.done() || len(out.calls()) != 3 {
		t.Fatalf("next turn: %d of 3 calls: %d %s %s", len(out.calls()), out.status, out.body, out.names())
	}
}

func TestB35_WhatMayHaveRunIsNotSentAgain(t *testing.T) {
	for transport, header := range map[string][]string{"websocket": thread("b35"), "http": nil} {
		for name, f := range map[string]upstream.Fault{
			"reset": {Action: upstream.ActReset}, "end": {Action: upstream.ActFin}, "close 1011": {Action: upstream.ActWSClose}, "close 1006": {Action: upstream.ActWSClose, CloseCode: 1012},
		} {
			t.Run(name+" over "+transport, func(t *testing.T) {
				r := newRig(t, rigOptions{accounts: 2, script: upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{InputContains: "twice"}, Repeat: 3, Fault: &f}}}})
				r.served(r.do(call{header: header, body: hello})) // so that the connection is a used one
				out := r.do(call{header: header, body: strings.Replace(hello, "hello", "not twice", 1)})
				r.refused(out, http.StatusBadGateway, "stream_incomplete", out.reason())
				if ds := r.ended(2); len(ds) != 2 {
					t.Fatalf("%d dispatches: %+v", len(ds), r.seen())
				}
				if header != nil {
					d := r.detail(header)
					if a := attempt(d, 1); d.Strikes != 1 || a.Recovery != "" || a.Strike != "StreamIncomplete" {
						t.Fatalf("%d strikes, %+v", d.Strikes, a)
					}
				}
				r.noDuplicates()
			})
		}
	}
}

func TestB37_OneFailureSeenByManyIsOneStrike(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT})
	header := thread("b37")
	r.served(r.do(call{header: header, body: hello}))
	r.bridge.Close(t.Context())
	r.reopen()
	if err := r.up.Script(upstream.Script{Connection: upstream.Connection{ResetAfter: 256 << 10}}); err != nil {
		t.Fatal(err)
	}
	// The socket dies while the frame is written: writer, reader and the end of the
	// session see the same failure.
	large := strings.Replace(hello, "hello", strings.Repeat("large ", 1<<20), 1)
	for n := 1; n <= 2; n++ {
		out := r.do(call{header: header, body: large})
		r.refused(out, http.StatusBadGateway, "stream_incomplete", "abrupt")
		until(t, "socket closed", func() bool { return r.bridge.Sessions().Connections == 0 })
		if d := r.detail(header); d.Strikes != n || len(d.Attempts) != n {
			t.Fatalf("after %d failures: %d strikes, %+v", n, d.Strikes, d.Attempts)
		}
	}
	if d := r.detail(header); d.Circuit != "open" {
		t.Fatalf("circuit %s", d.Circuit)
	}
	r.dispatches(1)
	if o := r.bridge.Overview(); o.Open != 1 || len(o.Circuits) != 1 || o.Circuits[0].Reason != "StreamIncomplete" || o.Circuits[0].Key != shown(header) {
		t.Fatalf("status %+v", o)
	}
}

// reopen makes a new bridge in place of one that was closed.
func (r *rig) reopen() {
	r.bridge = New(Options{Logger: r.bridge.log, Accounts: r.accounts, Metrics: r.metrics, Hold: r.bridge.hold})
}

// The other half of B37: what ends between turns is nobody's failure.
func TestB37_Scenario39_AnIdleCloseIsNoStrike(t *testing.T) {
	for name, f := range map[string]upstream.Fault{
		"1000": {Action: upstream.ActWSClose, CloseCode: 1000}, "1001": {Action: upstream.ActWSClose, CloseCode: 1001}, "1011": {Action: upstream.ActWSClose},
		"reset": {Action: upstream.ActReset}, "end": {Action: upstream.ActFin}, "garbage": {Action: upstream.ActGarbage},
	} {
		t.Run(name, func(t *testing.T) {
			f.At = upstream.AtAfterTerminal
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, script: upstream.Script{Rules: []upstream.Rule{{Repeat: 3, Fault: &f}}}})
			c := r.conversation(thread("idle")...)
			for n := range 3 {
				r.served(c.say(fmt.Sprint("turn ", n)))
				until(t, "socket closed", func() bool { return r.bridge.Sessions().Connections == 0 })
			}
			if d := r.detail(c.header); d.Strikes != 0 || len(d.Attempts) != 3 || d.Anchor != "good" {
				t.Fatalf("%+v", d)
			}
			// A single failure after them is the first.
			r.rules(nil, upstream.Rule{Repeat: 1, Fault: &upstream.Fault{Action: upstream.ActReset}})
			c.say("cut")
			if d := r.detail(c.header); d.Strikes != 1 || d.Circuit != "closed" {
				t.Fatalf("%d strikes, circuit %s", d.Strikes, d.Circuit)
			}
			r.served(c.send())
		})
	}
}

func TestScenario121_CleanClosesOnRealSockets(t *testing.T) {
	r := newRig(t, rigOptions{hold: time.Minute, script: upstream.Script{Rules: []upstream.Rule{{Fault: &upstream.Fault{Action: upstream.ActWSClose, CloseCode: 1000}}}}})
	out := r.do(call{header: thread("bye"), body: hello})
	r.refused(out, http.StatusBadGateway, "stream_incomplete", "clean")
	conns := map[int64]bool{}
	for _, s := range r.seen() {
		conns[s.conn] = true
	}
	if len(conns) != 3 || len(r.seen()) != 3 {
		t.Fatalf("dispatches %+v", r.seen())
	}
}

// A turn that was sent again once is not sent a third time, whatever comes.
func TestScenario22_OneReplayATurn(t *testing.T) {
	for name, second := range map[string]upstream.Fault{
		"denied again":      {Action: upstream.ActErrorFrame, Status: 400, Code: "previous_response_not_found", Message: "gone"},
		"missing output":    {Action: upstream.ActErrorFrame, Status: 400, Type: "invalid_request_error", Param: "input", Message: "No tool output found for function call call_1."},
		"cut":               {Action: upstream.ActReset},
		"cut after created": {At: upstream.AtAfterCreated, Action: upstream.ActReset},
		"connection limit":  {Action: upstream.ActErrorFrame, Status: 400, Code: "websocket_connection_limit_reached"},
		"server error":      {Action: upstream.ActErrorFrame, Status: 500, Code: "server_error"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 2, script: upstream.Script{Conversation: talk}})
			c := r.conversation(thread("s22")...)
			first := c.say("go")
			r.rules(talk, upstream.Rule{Match: upstream.Match{Anchored: yes()}, Fault: &upstream.Fault{Action: upstream.ActErrorFrame, Status: 400, Code: "previous_response_not_found"}},
				upstream.Rule{Repeat: 5, Fault: &second})
			out := c.send(first.results("ok")...)
			if out.done() || terminals(out) > 1 {
				t.Fatalf("%d %s %s", out.status, out.body, out.names())
			}
			ds := r.dispatches(3)
			intact(t, ds[2], c.before(out))
			if ds[2].Account != ds[0].Account {
				t.Fatalf("%+v", r.seen())
			}
		})
	}
}
