package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

func TestParseScriptNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"unknown field", `rules: [{match: {acount: a}}]`, `"acount"`},
		{"mode", `mode: azure`, "mode"},
		{"action", `rules: [{fault: {action: explode}}]`, `rules[0].fault.action: "explode"`},
		{"goaway", `rules: [{}, {fault: {action: goaway}}]`, "rules[1].fault.action: goaway belongs to HTTP/2"},
		{"place", `rules: [{fault: {at: sometime, action: reset}}]`, `rules[0].fault.at: "sometime"`},
		{"number of events", `rules: [{fault: {at: "afterEvents:x", action: reset}}]`, `rules[0].fault.at`},
		{"shape", `rules: [{fault: {action: errorFrame, shape: round}}]`, `rules[0].fault.shape`},
		{"upgrade", `rules: [{fault: {at: upgrade, action: failed}}]`, `rules[0].fault.action: "failed" cannot be played at the upgrade`},
		{"slow", `rules: [{fault: {action: slow}}]`, "rules[0].fault.bytesPerSecond"},
		{"duration", `connection: {maxAge: 5}`, `like "250ms"`},
		{"account", `accounts: [{token: x}]`, "accounts[0].name"},
		{"YAML", `{`, "reading script"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseScript([]byte(c.script)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestRulesMatch(t *testing.T) {
	say := func(s string) *Respond { return &Respond{Text: s} }
	yes, no := true, false
	s := Start(t, Options{
		Accounts: map[string]string{"sk-a": "a", "sk-b": "b"},
		Script: Script{Respond: say("default"), Rules: []Rule{
			{Match: Match{InputContains: "needle"}, Repeat: 2, Respond: say("needle")},
			{Match: Match{Account: "b", Transport: TransportHTTP}, Respond: say("b over http")},
			{Match: Match{Model: "gpt-x"}, Respond: say("model")},
			{Match: Match{Session: "s9"}, Respond: say("session")},
			{Match: Match{Transport: TransportWS, Anchored: &yes, Prewarm: &no}, Respond: say("anchored")},
			{Match: Match{Turn: 3}, Respond: say("third turn")},
			{Match: Match{InputContains: "count", Nth: 2}, Respond: say("second count")},
		}},
	})
	three := []any{message("user", "q"), message("assistant", "a"), message("user", "q"), message("assistant", "a"), message("user", "q")}
	for _, c := range []struct {
		name, token, want string
		pairs             []any
	}{
		{"needle 1", "sk-a", "needle", []any{"input", "a needle"}},
		{"needle 2", "sk-b", "needle", []any{"input", "a needle"}},
		{"needle is used up", "sk-a", "default", []any{"input", "a needle"}},
		{"account", "sk-b", "b over http", nil},
		{"model", "sk-a", "model", []any{"model", "gpt-x"}},
		{"session", "sk-a", "session", []any{"prompt_cache_key", "s9"}},
		{"turn", "sk-a", "third turn", []any{"input", three}},
		{"nth 1", "sk-a", "default", []any{"input", "count"}},
		{"nth 2", "sk-a", "second count", []any{"input", "count"}},
		{"nth 3", "sk-a", "default", []any{"input", "count"}},
	} {
		if got := textOf(post(t, s, c.token, body(c.pairs...)).events); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	k := dial(t, s, "sk-b")
	if got := textOf(k.turn("previous_response_id", idOf(k.turn()))); got != "anchored" {
		t.Errorf("anchored: got %q", got)
	}
}

// A rule whose fault comes later is not used up by a request that the service
// refuses anyway.
func TestRefusedRequestUsesUpNoRule(t *testing.T) {
	s := Start(t, Options{Script: Script{Rules: []Rule{{Repeat: 1, Fault: &Fault{At: AtAfterCreated, Action: ActFailed}}}}})
	k := dial(t, s, "sk")
	if got := codeOf(k.turn("previous_response_id", "resp_x")); got != notFound {
		t.Fatalf("got %q", got)
	}
	if got := last(k.turn()).name; got != "response.failed" {
		t.Errorf("got %s", got)
	}
	if got := last(k.turn()).name; got != "response.completed" {
		t.Errorf("got %s", got)
	}
}

func TestRespond(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events.jsonl")
	lines := `{"type":"response.created","response":{"id":"{{id}}"}}` + "\n\n" +
		`{"type":"response.completed","response":{"id":"{{id}}","output":[]}}` + "\n"
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := ParseScript([]byte(`
rules:
- match: {inputContains: raw}
  respond:
    events:
    - {type: response.output_item.done, output_index: 0, item: {type: message, role: assistant, content: [{type: output_text, text: hi}]}}
    - {type: response.completed, response: {id: "{{id}}"}}
- match: {inputContains: file}
  respond: {id: resp_file, eventsFile: ` + file + `}
- match: {inputContains: missing}
  respond: {eventsFile: /nowhere/events.jsonl}
- match: {inputContains: all}
  respond:
    reasoning: ENC
    text: t
    toolCalls: [{name: a, callID: call_1}, {name: b, custom: true, arguments: go}]
    items: [{type: web_search_call, id: ws_1, status: completed}]
    usage: {input: 1000, cached: 900, output: 5, reasoning: 2}
    headers: {openai-model: gpt-served}
    turnState: ts-{{account}}
    keepalives: 2
    keepaliveEvery: 1ms
    delay: 1ms
`))
	if err != nil {
		t.Fatal(err)
	}
	s := Start(t, Options{Script: script, Accounts: map[string]string{"sk": "acc"}})
	got := names(post(t, s, "sk", body("input", "raw")).events)
	if !cmp.Equal(got, []string{"response.output_item.done", "response.completed"}) {
		t.Errorf("raw: %v", got)
	}
	if got := idOf(post(t, s, "sk", body("input", "file")).events); got != "resp_file" {
		t.Errorf("file: %q", got)
	}
	if r := post(t, s, "sk", body("input", "missing")); r.status != 500 || r.get("error.code") != "script_error" {
		t.Errorf("missing: %d %s", r.status, r.body)
	}
	r := post(t, s, "sk", body("input", "all"))
	if r.header.Get("Openai-Model") != "gpt-served" || r.header.Get("X-Codex-Turn-State") != "ts-acc" {
		t.Errorf("headers: %v", r.header)
	}
	res := gjson.GetBytes(last(r.events).payload, "response")
	if got := res.Get("output.#.type").String(); got != `["reasoning","web_search_call","message","function_call","custom_tool_call"]` {
		t.Errorf("output: %s", got)
	}
	if got := res.Get("usage").Raw; got != `{"input_tokens":1000,"input_tokens_details":{"cached_tokens":900},"output_tokens":5,`+
		`"output_tokens_details":{"reasoning_tokens":2},"total_tokens":1005}` {
		t.Errorf("usage: %s", got)
	}
	if got := names(r.events)[2:4]; !cmp.Equal(got, []string{"keepalive", "keepalive"}) {
		t.Errorf("keepalives: %v", got)
	}
	ws := dial(t, s, "sk").turn("input", "all")
	if got := string(ws[1].payload); got != `{"type":"response.metadata","headers":{"x-codex-turn-state":"ts-acc"},"sequence_number":1}` {
		t.Errorf("metadata: %s", got)
	}
}

func TestSlowIsSlow(t *testing.T) {
	began := time.Now()
	s := faulty(t, Fault{At: AtBeforeTerminal, Action: ActSlow, BytesPerSecond: 4000})
	post(t, s, "sk", body())
	if took := time.Since(began); took < 150*time.Millisecond {
		t.Errorf("about 900 bytes at 4000 a second took %s", took)
	}
}
