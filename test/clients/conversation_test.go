package clients

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/test/upstream"
)

// B03: three messages of a user, two of them to new processes of the real Codex
// CLI, each with tool calls. What Codex sends again with every request crosses
// to the upstream once, on one socket.
func TestB03_CodexConversationOfThreeTurns(t *testing.T) {
	const turns, rounds = 3, 3
	s := start(t, setup{script: upstream.Script{Conversation: &upstream.Conversation{
		ToolTurns: rounds, Command: "echo turn {{turn}} | tee -a notes", Reasoning: true, FinalText: "Answer {{turn}}.",
	}}})
	u := newCodex(t, codexSettings{base: s.data + "/v1"})

	first := u.exec(t, "Look around.")
	first.finished(t, rounds, "Answer 4.")
	second := u.resume(t, "Now look closer.")
	second.finished(t, rounds, "Answer 8.")
	third := u.resume(t, "And once more.")
	third.finished(t, rounds, "Answer 12.")
	if second.thread != first.thread || third.thread != first.thread {
		t.Fatalf("threads %s, %s, %s: no resumption", first.thread, second.thread, third.thread)
	}

	s.bridged(t, turns*(rounds+1))
	sent := s.tap.requests()
	for i, d := range s.up.Ledger().Dispatches() {
		input := gjson.GetBytes(sent[i].body, "input").Array()
		last, err := upstream.Canonical([]byte(input[len(input)-1].Raw))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := d.Items[len(d.Items)-1], upstream.Digest(last); got != want {
			t.Errorf("request %d: the last item at the upstream is not the last of Codex' %d", i+1, len(input))
		}
	}
}

// bridged fails the test unless n requests became n responses of one upstream
// WebSocket, and each after the first was anchored and brought one item.
func (s *stage) bridged(t *testing.T, n int) {
	t.Helper()
	ds := s.up.Ledger().Dispatches()
	ok := len(ds) == n && len(s.tap.requests()) == n
	for i, d := range ds {
		ok = ok && d.Transport == upstream.TransportWS && d.Connection == ds[0].Connection && d.Outcome == upstream.OutcomeCompleted &&
			d.Turn == i+1 && !d.Store
		if i > 0 {
			ok = ok && d.Anchor == ds[i-1].ResponseID && d.AnchorResolved && d.InputItems == 1
		}
	}
	if !ok {
		t.Errorf("want %d requests and as many dispatches on one socket, each after the first anchored and with 1 item; got %d requests and%s",
			n, len(s.tap.requests()), describe(ds))
	}
	if c := s.up.Ledger().Connections(); len(c) != 1 {
		t.Errorf("%d upstream connections, want 1: %+v", len(c), c)
	}
	s.noDuplicates(t)
}

// What bridging saves: at most a tenth of what Codex sends reaches the upstream.
func TestCodexFiftyTurnsSendATenth(t *testing.T) {
	const turns, output = 50, 8 << 10
	s := start(t, setup{script: upstream.Script{Conversation: &upstream.Conversation{
		ToolTurns: turns, Command: "yes 'turn {{turn}}: a line that some tool has printed' | head -c 8192", FinalText: "All read.",
	}}})
	u := newCodex(t, codexSettings{base: s.data + "/v1"})
	run := u.exec(t, "Read everything.")
	run.finished(t, turns, "All read.")
	s.bridged(t, turns+1)

	sent := s.tap.requests()
	outputs := gjson.GetBytes(sent[turns].body, `input.#(type=="function_call_output")#.output`).Array()
	for i, o := range outputs {
		if len(o.Str) < output {
			t.Fatalf("Codex sent %d bytes of output %d, want at least %d", len(o.Str), i, output)
		}
	}
	if len(outputs) != turns {
		t.Fatalf("%d tool outputs in the last request, want %d", len(outputs), turns)
	}
	bodies, atUpstream := 0, 0
	for _, r := range sent {
		bodies += len(r.body)
	}
	for _, d := range s.up.Ledger().Dispatches() {
		atUpstream += d.WireBytes
	}
	if counted := int(s.metric(t, `causeway_proxy_client_bytes_total{direction="received"}`)); counted != bodies {
		t.Errorf("the proxy counts %d bytes received, the tap %d", counted, bodies)
	}
	if counted := int(s.metric(t, `causeway_proxy_upstream_bytes_total{direction="sent"}`)); counted != atUpstream {
		t.Errorf("the proxy counts %d bytes sent to the upstream, the ledger %d", counted, atUpstream)
	}
	whole, wholeUp := s.tap.bytes(), s.bytesIn(t)
	t.Logf("%d requests in %s: bodies %d bytes from Codex, %d to the upstream: %.1f %%; with heads and framing %d and %d: %.1f %%", len(sent), run.took,
		bodies, atUpstream, percent(atUpstream, bodies), whole, wholeUp, percent(wholeUp, whole))
	if atUpstream*10 > bodies || wholeUp*10 > whole {
		t.Errorf("more than 10 %% of what Codex sent reached the upstream")
	}
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(whole, 1)) }

// Codex over WebSocket: its warm-up and each request after it are turns of one upstream
// socket, and it sends only what is new itself. Nothing is posted.
func TestB70_CodexOverWebSocket(t *testing.T) {
	const rounds = 3
	s := start(t, setup{script: upstream.Script{Conversation: &upstream.Conversation{
		ToolTurns: rounds, Command: "echo turn {{turn}}", Reasoning: true, FinalText: "Done."}}})
	u := newCodex(t, codexSettings{base: s.data + "/v1", websockets: true})
	run := u.exec(t, "Go.")
	run.finished(t, rounds, "Done.")
	unnoticed(t, run)
	s.upgradesOnly(t, 1)
	ds := s.up.Ledger().Dispatches()
	if len(ds) != rounds+2 || ds[0].Generate {
		t.Fatalf("want a warm-up and %d requests: %s", rounds+1, describe(ds))
	}
	for i, d := range ds {
		if d.Transport != upstream.TransportWS || d.Connection != ds[0].Connection || i > 0 && (d.Anchor != ds[i-1].ResponseID || !d.AnchorResolved) {
			t.Errorf("turn %d: %s", i, describe(ds))
		}
	}
	s.noDuplicates(t)
	// A new process goes on over a WebSocket of its own.
	again := u.resume(t, "Go on.")
	again.finished(t, rounds, "Done.")
	unnoticed(t, again)
	s.upgradesOnly(t, 2)
	s.noDuplicates(t)
}

// An anchor that dies under a delta is Codex' own matter over WebSocket: it sends the
// whole conversation, and its user sees nothing of it.
func TestCodexOverWebSocketSurvivesALostAnchor(t *testing.T) {
	const rounds = 3
	s := start(t, setup{script: upstream.Script{
		Conversation: &upstream.Conversation{ToolTurns: rounds, Command: "echo turn {{turn}}", FinalText: "Done."},
		Rules: []upstream.Rule{{Match: upstream.Match{InputContains: "turn 2", Nth: 1},
			Fault: &upstream.Fault{At: upstream.AtBeforeHeaders, Action: upstream.ActErrorFrame, Status: 400, Code: "previous_response_not_found"}}},
	}})
	u := newCodex(t, codexSettings{base: s.data + "/v1", websockets: true})
	run := u.exec(t, "Go.")
	run.finished(t, rounds, "Done.")
	unnoticed(t, run)
	s.upgradesOnly(t, 2)
	s.noDuplicates(t)
}

// unnoticed fails the test if Codex told its user of its connection.
func unnoticed(t *testing.T, run codexRun) {
	t.Helper()
	if strings.Contains(strings.ToLower(run.raw), "reconnect") || strings.Contains(run.raw, "Falling back") {
		t.Errorf("Codex told its user:\n%s", run.raw)
	}
}

// upgradesOnly fails the test unless clients opened n WebSockets and posted nothing.
func (s *stage) upgradesOnly(t *testing.T, n int) {
	t.Helper()
	upgrades := 0
	for _, r := range s.tap.requests() {
		switch r.Method {
		case http.MethodGet:
			upgrades++
		case http.MethodPost:
			t.Error("Codex posted a request")
		}
	}
	if upgrades != n {
		t.Errorf("%d upgrades, want %d", upgrades, n)
	}
}
