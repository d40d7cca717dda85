package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// running starts a turn and returns when the client has got the given event, or
// the upstream the n-th request where there is none. wait gives its answer.
func (r *rig) running(c call, event string, n int) (wait func() *reply) {
	r.t.Helper()
	seen, done := make(chan struct{}), make(chan *reply, 1)
	var once sync.Once
	c.onEvent = func(e sse) {
		if e.name == event {
			once.Do(func() { close(seen) })
		}
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	if c.ctx == nil {
		c.ctx = ctx
	}
	go func() { done <- r.do(c) }()
	if event != "" {
		<-seen
	} else if err := r.up.Ledger().Wait(ctx, func(ds []upstream.Dispatch) bool {
		return len(ds) >= n && (n == 0 || ds[n-1].Outcome == upstream.OutcomeRunning)
	}); err != nil {
		r.t.Fatal(err)
	}
	return func() *reply { return <-done }
}

// anchoredBody is a turn on the client's own anchor.
func anchoredBody(id, text string) string {
	return `{"model":"gpt-5.5","stream":true,"store":false,"previous_response_id":"` + id + `","input":[{"role":"user","content":"` + text + `"}]}`
}

func TestScenario47_SiblingsOnOneSocketAreJudgedApart(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: patient})
	header := thread("s47")
	first := r.do(call{header: header, body: hello})
	r.served(first)
	r.rules(nil, upstream.Rule{Match: upstream.Match{InputContains: "streams"}, Respond: &upstream.Respond{Text: "a b c d e"}, Fault: &upstream.Fault{At: upstream.AfterEvents(6), Action: upstream.ActHold}},
		upstream.Rule{Match: upstream.Match{InputContains: "eventless"}, Fault: &upstream.Fault{Action: upstream.ActReset}})
	streams := r.running(call{header: header, body: anchoredBody(first.id(), "streams")}, "response.output_text.delta", 0)
	eventless := r.do(call{header: header, body: anchoredBody(first.id(), "eventless")})
	streamed := streams()
	r.refused(eventless, http.StatusBadGateway, "stream_incomplete", "abrupt")
	if streamed.code() != "stream_incomplete" || terminals(streamed) != 1 || streamed.text() == "" {
		t.Fatalf("%s", streamed.names())
	}
	ds := r.ended(3)
	if ds[1].Connection != ds[2].Connection {
		t.Fatalf("not on one socket: %+v", r.seen())
	}
	d := r.detail(header)
	if d.Strikes != 1 || len(d.Attempts) != 3 {
		t.Fatalf("%d strikes, %+v", d.Strikes, d.Attempts)
	}
	// Neither is sent again, by the proxy or for a client that asks the same.
	for _, text := range []string{"streams", "eventless"} {
		out := r.do(call{header: header, body: anchoredBody(first.id(), text)})
		if out.status != http.StatusServiceUnavailable || out.code() != "upstream_operation_status_unknown" {
			t.Fatalf("%s: %d %s %s", text, out.status, out.body, out.names())
		}
	}
	r.dispatches(3)
	r.unpunished()
}

func TestScenario117_AWaiterIsNotSentOnACorpse(t *testing.T) {
	for name, action := range map[string]string{"reset": upstream.ActReset, "close": upstream.ActWSClose, "garbage": upstream.ActGarbage, "not JSON": upstream.ActNonJSON} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: patient})
			header := thread("s117")
			first := r.do(call{header: header, body: hello})
			r.served(first)
			r.rules(nil, upstream.Rule{Match: upstream.Match{InputContains: "holder"}, Fault: &upstream.Fault{Action: action, Held: true}})
			holder := r.running(call{header: header, body: anchoredBody(first.id(), "holder")}, "", 2)
			waiter := make(chan *reply, 1)
			go func() { waiter <- r.do(call{header: header, body: anchoredBody(first.id(), "waiter")}) }()
			until(t, "the waiter waits", func() bool { return r.detail(header).Turns == 2 })
			r.up.Release()
			if out := holder(); out.done() || out.status != http.StatusBadGateway {
				t.Fatalf("holder: %d %s %s", out.status, out.body, out.names())
			}
			r.served(<-waiter)
			ds := r.dispatches(3)
			if ds[2].Connection == ds[1].Connection || !ds[2].AnchorResolved {
				t.Fatalf("%+v", r.seen())
			}
			r.noDuplicates()
		})
	}
}

func TestScenario124_AgentsUnderOneProcessDoNotWaitForEachOther(t *testing.T) {
	for name, header := range map[string]func(n int) []string{
		"process alone":      func(int) []string { return []string{"session-id", "process", "originator", "codex_exec"} },
		"process and thread": func(n int) []string { return []string{"session-id", "process", "thread-id", fmt.Sprint("agent-", n)} },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, script: upstream.Script{Rules: []upstream.Rule{
				{Match: upstream.Match{InputContains: "agent 0"}, Fault: &upstream.Fault{Action: upstream.ActHold}}}}})
			body := func(n int) string { return strings.Replace(hello, "hello", fmt.Sprint("agent ", n), 1) }
			slow := r.running(call{header: header(0), body: body(0)}, "", 1)
			for n := 1; n < 4; n++ {
				r.served(r.do(call{header: header(n), body: body(n)}))
			}
			r.up.Release()
			r.served(slow())
			conns := map[int64]bool{}
			for _, s := range r.seen() {
				conns[s.conn] = true
			}
			if len(conns) != 4 {
				t.Fatalf("%d sockets: %+v", len(conns), r.seen())
			}
			r.noDuplicates()
		})
	}
}

func TestScenario122_APrewarmThatHangsCostsTheTurnNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: brief, script: upstream.Script{Rules: []upstream.Rule{
		{Match: upstream.Match{Prewarm: yes()}, Fault: &upstream.Fault{Action: upstream.ActHold}}}}})
	c := r.conversation(thread("s122")...)
	warm := *c
	warm.extra = `,"generate":false`
	r.refused(r.do(callOf(&warm, warm.body())), http.StatusGatewayTimeout, "bridge_eventless_timeout", "first_event")
	r.up.Release() // its events come late, on a socket that nobody listens to
	out := c.say("hello there")
	r.served(out)
	ds := r.ended(2)
	if len(ds) != 2 || ds[0].Connection == ds[1].Connection || out.id() != ds[1].ResponseID || out.digest() != ds[1].EventsDigest {
		t.Fatalf("%+v: %s", r.seen(), out.names())
	}
	if d := r.detail(c.header); d.Strikes != 0 || d.Anchor != "good" {
		t.Fatalf("%+v", d)
	}
}

func TestScenario123_AModelSwitchForksOnce(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, maxSessions: 3})
	c := r.conversation(thread("s123")...)
	for n, model := range []string{"gpt-5.5", "gpt-5.6", "gpt-5.5", "GPT-5.6", "gpt-5.5", "gpt-5.7", "gpt-5.6", "gpt-5.5"} {
		c.extra = `,"model":"` + model + `"`
		c.items = append(c.items, json.RawMessage(fmt.Sprintf(`{"role":"user","content":"turn %d"}`, n)))
		body := strings.Replace(c.body(), `"model":"gpt-5.5",`, "", 1)
		r.served(r.do(call{header: c.header, body: body}))
	}
	byModel := map[string]map[int64]bool{}
	for _, d := range r.up.Ledger().Dispatches() {
		m := strings.ToLower(d.Model)
		if byModel[m] == nil {
			byModel[m] = map[int64]bool{}
		}
		byModel[m][d.Connection] = true
	}
	if n := r.bridge.Sessions(); n.Idle != 3 || len(byModel) != 3 {
		t.Fatalf("sessions %+v, %v", n, byModel)
	}
	for m, conns := range byModel {
		if len(conns) != 1 {
			t.Fatalf("%s used %d sockets: %v", m, len(conns), byModel)
		}
	}
	r.noDuplicates()
}

func TestScenario120_ASoftLaneWithAFileStaysWithItsOwner(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 3})
	body := `{"model":"m","stream":true,"prompt_cache_key":"app","input":[{"role":"user","content":[{"type":"input_file","file_id":"file_1"}]}]}`
	r.served(r.do(call{body: body}))
	r.rules(nil, upstream.Rule{Repeat: 1, Fault: &upstream.Fault{Action: upstream.ActWSClose, CloseCode: 1011}})
	r.refused(r.do(call{body: body}), http.StatusBadGateway, "stream_incomplete", "abrupt")
	r.dispatches(2)
	r.served(r.do(call{body: body}))
	for _, s := range r.seen() {
		if s.account != r.seen()[0].account {
			t.Fatalf("it moved: %+v", r.seen())
		}
	}
	r.unpunished()
}

func TestScenario33_AClientThatLeavesBeforeTheSend(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, script: upstream.Script{Rules: []upstream.Rule{
		{Repeat: 3, Fault: &upstream.Fault{At: upstream.AtUpgrade, Action: upstream.ActMute}}}}})
	header := thread("s33")
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan *reply, 1)
		go func() { done <- r.do(call{ctx: ctx, header: header, body: hello}) }()
		until(t, "the socket is being opened", func() bool { return r.up.Stats().Connections > 0 && r.bridge.Overview().Active == 1 })
		cancel()
		if out := <-done; out.err == nil {
			t.Fatalf("%d %s", out.status, out.body)
		}
		until(t, "the turn is dropped", func() bool {
			return r.bridge.Overview().Active == 0 && r.serving.Load() == 0 && r.up.Stats().Connections == 0
		})
	}
	r.dispatches(0)
	if d := r.detail(header); d.Strikes != 0 || d.Circuit != "closed" {
		t.Fatalf("%+v", d)
	}
	r.unpunished()
	r.rules(nil)
	r.served(r.do(call{header: header, body: hello}))
}

func TestScenario46_EvictionIsNeutral(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, maxSessions: 1})
	a, b := r.conversation(thread("s46-a")...), r.conversation(thread("s46-b")...)
	for n := range 3 {
		for _, c := range []*conversation{a, b} {
			r.served(c.say(fmt.Sprint("turn ", n)))
			if d := r.detail(c.header); d.Strikes != 0 || d.Anchor != "good" {
				t.Fatalf("%+v", d)
			}
			r.quarantine(c.header, "")
		}
	}
	for n, s := range r.seen() {
		if (n >= 2) != s.anchored {
			t.Fatalf("an evicted session forgot its anchor: %+v", r.seen())
		}
	}
}
