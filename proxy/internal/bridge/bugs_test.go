package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

const hello = `{"model":"gpt-5.5","stream":true,"store":false,"input":[{"role":"user","content":"hello"}]}`

func yes() *bool { v := true; return &v }

// monotonic fails if sequence numbers ever fall.
func monotonic(t *testing.T, out *reply) {
	t.Helper()
	last := int64(-1)
	for _, e := range out.events {
		if n := gjson.Get(e.data, "sequence_number"); n.Exists() {
			if n.Int() < last {
				t.Fatalf("sequence %d after %d in %s", n.Int(), last, out.names())
			}
			last = n.Int()
		}
	}
}

// terminals counts the ends that a client was told; an error status is one.
func terminals(out *reply) int {
	n := 0
	if out.status >= http.StatusBadRequest {
		n++
	}
	for _, e := range out.events {
		switch e.name {
		case "response.completed", "response.failed", "response.incomplete", "error":
			n++
		}
	}
	return n
}

func TestB01_CutInMidStreamEndsWithFailed(t *testing.T) {
	for name, action := range map[string]string{"reset": upstream.ActReset, "end": upstream.ActFin, "no terminal event": upstream.ActNoTerminal} {
		for transport, headers := range map[string][]string{"websocket": thread("b01"), "http": nil} {
			t.Run(name+" over "+transport, func(t *testing.T) {
				r := newRig(t, rigOptions{deadlines: bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, FirstEventSeconds: 5, IdleSeconds: 1, KeepaliveSeconds: 15, CancelGraceSeconds: 1},
					script: upstream.Script{Rules: []upstream.Rule{{Respond: &upstream.Respond{Deltas: []string{"1", "2", "3", "4", "5", "6", "7", "8"}},
						Fault: &upstream.Fault{At: upstream.AfterEvents(7), Action: action}}}}})
				out := r.do(call{header: headers, body: hello})
				if out.err != nil || out.status != 200 {
					t.Fatalf("status %d, %v", out.status, out.err)
				}
				end := out.last()
				if end.name != "response.failed" || terminals(out) != 1 {
					t.Fatalf("events %s", out.names())
				}
				if gjson.Get(end.data, "response.id").Str != gjson.Get(out.events[0].data, "response.id").Str {
					t.Fatalf("other response id in %s", end.data)
				}
				if code := gjson.Get(end.data, "response.error.code").Str; code != "stream_incomplete" && code != "stream_idle_timeout" {
					t.Fatalf("code %s", code)
				}
				monotonic(t, out)
				if !strings.Contains(r.scrape(), "causeway_proxy_truncated_total 1") {
					t.Fatal("truncated_total did not count it")
				}
				r.noDuplicates()
			})
		}
	}
}

func TestB06_SilenceIsFilledWithEventsThatClientsTake(t *testing.T) {
	script := upstream.Script{Rules: []upstream.Rule{{Fault: &upstream.Fault{At: upstream.AtAfterCreated, Action: upstream.ActStall, Duration: upstream.Duration(3500 * time.Millisecond)}}}}
	r := newRig(t, rigOptions{script: script, hold: briefHold, deadlines: bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, FirstEventSeconds: 30, IdleSeconds: 30, KeepaliveSeconds: 1, CancelGraceSeconds: 1}})
	out := r.do(call{header: thread("b06"), body: hello})
	n := 0
	for _, e := range out.events {
		if e.name == "keepalive" {
			n++
			if gjson.Get(e.data, "type").Str != "keepalive" || !gjson.Get(e.data, "sequence_number").Exists() {
				t.Fatalf("keepalive %s", e.data)
			}
		}
	}
	if n < 2 || out.last().name != "response.completed" {
		t.Fatalf("%d keepalives in %s", n, out.names())
	}
	monotonic(t, out)
}

func TestB11_LateEventsOfACancelledTurnReachNobody(t *testing.T) {
	r := newRig(t, rigOptions{script: upstream.Script{Rules: []upstream.Rule{
		{Match: upstream.Match{InputContains: "first"}, Respond: &upstream.Respond{Deltas: strings.Split(strings.Repeat("canary ", 200), " "), EventDelay: upstream.Duration(5 * time.Millisecond)}},
		{Respond: &upstream.Respond{Text: "second answer"}},
	}}})
	ctx, cancel := context.WithCancel(t.Context())
	first := strings.Replace(hello, "hello", "first", 1)
	r.do(call{ctx: ctx, header: thread("b11"), body: first, onEvent: func(e sse) {
		if e.name == "response.output_text.delta" {
			cancel()
		}
	}})
	out := r.do(call{header: thread("b11"), body: strings.Replace(hello, "hello", "second", 1)})
	if out.events[0].name != "response.created" || out.text() != "second answer" {
		t.Fatalf("%s: %q", out.names(), out.text())
	}
	if strings.Contains(fmt.Sprint(out.events), "canary") {
		t.Fatal("the second client got the first one's text")
	}
}

func TestB13_HeadersThatIntermediariesRespect(t *testing.T) {
	r := newRig(t, rigOptions{hold: 300 * time.Millisecond,
		deadlines: bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, FirstEventSeconds: 30, IdleSeconds: 30, KeepaliveSeconds: 1, CancelGraceSeconds: 1},
		script:    upstream.Script{Respond: &upstream.Respond{Text: "ok", Delay: upstream.Duration(2500 * time.Millisecond)}}})
	start := time.Now()
	out := r.do(call{body: hello}) // an SDK client: no events before response.created
	if time.Since(start) < 2*time.Second {
		t.Fatal("the upstream was not slow")
	}
	for name, want := range map[string]string{"X-Accel-Buffering": "no", "Cache-Control": "no-cache, no-transform", "Content-Type": "text/event-stream; charset=utf-8"} {
		if got := out.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if out.comments == 0 || out.events[0].name != "response.created" {
		t.Fatalf("%d comments before %s", out.comments, out.names())
	}
}

func TestB19_SilenceOnAnAnchorIsNoEndlessKeepalive(t *testing.T) {
	d := bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, FirstEventSeconds: 1, IdleSeconds: 30, KeepaliveSeconds: 1, CancelGraceSeconds: 1}
	t.Run("client's own anchor after a restart", func(t *testing.T) {
		r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: d})
		out := r.do(call{header: thread("b19"), body: `{"model":"gpt-5.5","stream":true,"previous_response_id":"resp_of_another_life","input":[{"role":"user","content":"x"}]}`})
		if out.status != http.StatusGatewayTimeout || gjson.Get(out.body, "error.code").Str != "bridge_eventless_timeout" {
			t.Fatalf("status %d %s %s", out.status, out.body, out.names())
		}
	})
	t.Run("injected anchor: the whole goes without it", func(t *testing.T) {
		r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: d, script: upstream.Script{
			Rules: []upstream.Rule{{Match: upstream.Match{Anchored: yes()}, Repeat: 1, Fault: &upstream.Fault{Action: upstream.ActMute}}}}})
		c := r.conversation(thread("b19")...)
		c.say("one")
		out := c.say("two")
		if out.last().name != "response.completed" {
			t.Fatalf("status %d %s %s", out.status, out.body, out.names())
		}
		got := r.seen()
		if len(got) != 3 || !got[1].anchored || got[2].anchored || got[2].items < 3 {
			t.Fatalf("dispatches %+v", got)
		}
		// The suspect anchor never comes back, and the next turn is anchored anew.
		if out := c.say("three"); out.last().name != "response.completed" {
			t.Fatalf("%s", out.names())
		}
		if got := r.seen(); len(got) != 4 || !got[3].anchored {
			t.Fatalf("dispatches %+v", got)
		}
	})
}

func TestB20_DeadConnectionIsNotUsedAgain(t *testing.T) {
	for name, fault := range map[string]upstream.Fault{
		"clean close after the turn": {At: upstream.AtAfterTerminal, Action: upstream.ActWSClose, CloseCode: 1000},
		"server error":               {Action: upstream.ActErrorFrame, Status: 500, Code: "server_error", Message: "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{script: upstream.Script{Rules: []upstream.Rule{{Repeat: 1, Fault: &fault}}}})
			c := r.conversation(thread("b20")...)
			first := c.say("one")
			if fault.Action == upstream.ActErrorFrame && (first.status != 502 || gjson.Get(first.body, "error.code").Str != "server_error") {
				t.Fatalf("first: %d %s", first.status, first.body)
			}
			r.closed()
			out := c.say("two")
			if out.last().name != "response.completed" {
				t.Fatalf("second: %d %s %s", out.status, out.body, out.names())
			}
			if got := r.seen(); len(got) != 2 || got[0].conn == got[1].conn || got[1].anchored {
				t.Fatalf("dispatches %+v", got)
			}
		})
	}
}

func TestB23_AnchorOfAConnectionStaysOnIt(t *testing.T) {
	closeOnce := upstream.Script{
		Rules:        []upstream.Rule{{Repeat: 1, Fault: &upstream.Fault{At: upstream.AtAfterTerminal, Action: upstream.ActWSClose, CloseCode: 1001}}},
		Conversation: &upstream.Conversation{ToolTurns: 1, Tool: "shell", Arguments: `{"cmd":"ls"}`, FinalText: "done"},
	}
	t.Run("a whole payload goes unanchored", func(t *testing.T) {
		r := newRig(t, rigOptions{script: closeOnce})
		c := r.conversation(thread("b23")...)
		first := c.say("go")
		r.closed()
		out := c.send(first.results("ok")...)
		if out.last().name != "response.completed" {
			t.Fatalf("%d %s", out.status, out.body)
		}
		if got := r.seen(); len(got) != 2 || got[1].anchored || got[0].conn == got[1].conn {
			t.Fatalf("dispatches %+v", got)
		}
	})
	t.Run("a delta is refused before it is sent", func(t *testing.T) {
		r := newRig(t, rigOptions{script: closeOnce})
		c := r.conversation(thread("b23")...)
		first := c.say("go")
		r.closed()
		only, err := json.Marshal(first.results("ok"))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			out := r.do(call{header: thread("b23"), body: `{"model":"gpt-5.5","stream":true,"store":false,"input":` + string(only) + `}`})
			if out.status != 400 || gjson.Get(out.body, "error.code").Str != "previous_response_not_found" || gjson.Get(out.body, "error.reason").Str != "anchor_dead" {
				t.Fatalf("%d %s", out.status, out.body)
			}
		}
		if n := len(r.seen()); n != 1 {
			t.Fatalf("%d dispatches, want 1", n)
		}
	})
	t.Run("the client's own anchor", func(t *testing.T) {
		r := newRig(t, rigOptions{script: closeOnce})
		first := r.do(call{header: thread("b23"), body: hello})
		id := gjson.Get(first.events[0].data, "response.id").Str
		r.closed()
		out := r.do(call{header: thread("b23"), body: `{"model":"gpt-5.5","stream":true,"store":false,"previous_response_id":"` + id + `","input":[{"role":"user","content":"x"}]}`})
		if out.status != 400 || gjson.Get(out.body, "error.code").Str != "previous_response_not_found" {
			t.Fatalf("%d %s", out.status, out.body)
		}
		if n := len(r.seen()); n != 1 {
			t.Fatalf("%d dispatches, want 1", n)
		}
	})
}

func TestB66_NoCompressionAndFragmentsAreRead(t *testing.T) {
	r := newRig(t, rigOptions{script: upstream.Script{Connection: upstream.Connection{Deflate: true}, Respond: &upstream.Respond{Text: strings.Repeat("wörd ", 100), ChunkBytes: 5}}})
	out := r.do(call{header: thread("b66"), body: hello})
	d := r.ended(1)[0]
	if out.digest() != d.EventsDigest {
		t.Fatal("fragments were not put together")
	}
	if ext := d.Headers["sec-websocket-extensions"]; ext != "" {
		t.Fatalf("offered %q", ext)
	}
}

func TestB67_NothingIsLeftOfClosedSockets(t *testing.T) {
	r := newRig(t, rigOptions{maxSessions: 4, script: upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{Nth: 3}, Fault: &upstream.Fault{At: upstream.AtAfterTerminal, Action: upstream.ActNoPong}}}}})
	r.do(call{header: thread("warm"), body: hello})
	before := runtime.NumGoroutine()
	const n = 150
	for i := range n {
		if out := r.do(call{header: thread(fmt.Sprint("b67-", i)), body: hello}); out.last().name != "response.completed" {
			t.Fatalf("turn %d: %d %s", i, out.status, out.body)
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	// 4 sessions may stay, each with its actor, reader, and the upstream's own.
	for runtime.NumGoroutine() > before+4*8+5 {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d at the start", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}

func TestB80_IdleSessionsHoldNoAccount(t *testing.T) {
	r := newRig(t, rigOptions{concurrent: 5})
	for i := range 6 {
		if out := r.do(call{header: thread(fmt.Sprint("b80-", i)), body: hello}); out.last().name != "response.completed" {
			t.Fatalf("client %d: %d %s", i+1, out.status, out.body)
		}
	}
	if c := r.bridge.Sessions(); c.Idle != 6 {
		t.Fatalf("sessions %+v", c)
	}
}

func TestB101_AbortAtEveryEventLeaksNothing(t *testing.T) {
	r := newRig(t, rigOptions{accounts: 1, script: upstream.Script{Rules: []upstream.Rule{
		{Match: upstream.Match{InputContains: "private"}, Respond: &upstream.Respond{Deltas: []string{"canary", "canary", "canary"}, EventDelay: upstream.Duration(2 * time.Millisecond)}},
		{Respond: &upstream.Respond{Text: "public"}},
	}}})
	private := strings.Replace(hello, "hello", "private", 1)
	full := r.do(call{header: thread("count"), body: private})
	for stop := range full.events {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		r.do(call{ctx: ctx, header: append(thread("shared"), "X-Test-Client", "alice"), body: private, onEvent: func(sse) {
			if n++; n > stop {
				cancel()
			}
		}})
		cancel()
		out := r.do(call{header: append(thread("shared"), "X-Test-Client", "bob"), body: hello})
		if strings.Contains(fmt.Sprint(out.events), "canary") || out.text() != "public" || out.events[0].name != "response.created" {
			t.Fatalf("abort after event %d: bob got %s %q", stop, out.names(), out.text())
		}
		again := r.do(call{header: append(thread("shared"), "X-Test-Client", "alice"), body: hello})
		if strings.Contains(fmt.Sprint(again.events), "canary") || again.text() != "public" {
			t.Fatalf("abort after event %d: alice's next turn got %s %q", stop, again.names(), again.text())
		}
	}
}

func TestB102_SharedSocketsNameNobody(t *testing.T) {
	r := newRig(t, rigOptions{})
	body := strings.Replace(hello, `{"model"`, `{"prompt_cache_key":"our-app","model"`, 1)
	for _, user := range []string{"alice", "bob"} {
		r.do(call{header: []string{"X-Client-Request-Id", user, "X-Openai-Subagent", user, "User-Agent", "OpenAI/JS 7.59.0", "X-Stainless-Retry-Count", "0"}, body: body})
	}
	for _, d := range r.ended(2) {
		if s := fmt.Sprint(d.Headers); strings.Contains(s, "alice") || strings.Contains(s, "bob") {
			t.Fatalf("the upgrade names a user: %s", s)
		}
		if d.Transport != "ws" || d.Headers["user-agent"] != "OpenAI/JS 7.59.0" {
			t.Fatalf("%s %v", d.Transport, d.Headers)
		}
	}
}

func TestB103_AnotherClientsAnchorDoesNotExist(t *testing.T) {
	r := newRig(t, rigOptions{clients: []string{"alice", "bob"}})
	first := r.do(call{header: []string{"X-Test-Client", "alice", "session-id", "s"}, body: `{"model":"gpt-5.5","stream":true,"input":"my secret"}`})
	id := gjson.Get(first.events[0].data, "response.id").Str
	ask := func(client, id string) *reply {
		return r.do(call{header: []string{"X-Test-Client", client, "session-id", "s"}, body: `{"model":"gpt-5.5","stream":true,"previous_response_id":"` + id + `","input":"what did I say?"}`})
	}
	stolen, invented := ask("bob", id), ask("bob", "resp_that_never_was")
	if stolen.status != 400 || stolen.body != invented.body {
		t.Fatalf("stolen: %d %s\ninvented: %d %s", stolen.status, stolen.body, invented.status, invented.body)
	}
	if n := len(r.seen()); n != 1 {
		t.Fatalf("%d dispatches, want 1", n)
	}
	if own := ask("alice", id); own.last().name != "response.completed" {
		t.Fatalf("alice herself: %d %s", own.status, own.body)
	}
}

func TestParallelTurnsOfOneThreadRunBesideEachOther(t *testing.T) {
	r := newRig(t, rigOptions{script: upstream.Script{Respond: &upstream.Respond{Text: "a b c", EventDelay: upstream.Duration(50 * time.Millisecond)}}})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if out := r.do(call{header: thread("parallel"), body: hello}); out.last().name != "response.completed" {
				t.Errorf("%d %s", out.status, out.body)
			}
		})
	}
	group.Wait()
	conns := map[int64]bool{}
	for _, s := range r.seen() {
		conns[s.conn] = true
	}
	if len(conns) != 4 {
		t.Fatalf("%d sockets for 4 turns at once", len(conns))
	}
}
