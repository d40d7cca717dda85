package upstream

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestToolOutputsNeedTheirCalls(t *testing.T) {
	s := Start(t, Options{Script: Script{Conversation: &Conversation{ToolTurns: 1, Tool: "exec_command", Arguments: `{"cmd":"x"}`}}})
	k := dial(t, s, "sk")
	first := k.turn()
	callID := gjson.GetBytes(last(first).payload, "response.output.0.call_id").String()
	for _, c := range []struct {
		name, anchor, want string
		input              any
	}{
		{
			"output without call", "", "No tool call found for function call output with call_id call_x.",
			[]any{toolOutput("call_x", "ok")},
		},
		{
			"call without output", "", "No tool output found for function call call_y.",
			[]any{map[string]any{"type": "function_call", "call_id": "call_y", "name": "f", "arguments": "{}"}, message("user", "go on")},
		},
		{
			"anchored, wrong output", idOf(first), "No tool call found for function call output with call_id call_x.",
			[]any{toolOutput("call_x", "ok")},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			pairs := []any{"input", c.input}
			if c.anchor != "" {
				pairs = append(pairs, "previous_response_id", c.anchor)
			}
			e := last(k.turn(pairs...))
			if got := gjson.GetBytes(e.payload, "error.message").String(); got != c.want || gjson.GetBytes(e.payload, "status").Int() != 400 {
				t.Errorf("got %s, want %q", e.payload, c.want)
			}
		})
	}
	t.Run("anchored, no output at all", func(t *testing.T) {
		k := dial(t, s, "sk")
		id := idOf(k.turn())
		if e := last(k.turn("previous_response_id", id)); !strings.Contains(string(e.payload), "No tool output found for function call call_") {
			t.Errorf("got %s", e.payload)
		}
	})
	t.Run("anchored, right output", func(t *testing.T) {
		k := dial(t, s, "sk")
		first := k.turn()
		id := gjson.GetBytes(last(first).payload, "response.output.0.call_id").String()
		if got := textOf(k.turn("previous_response_id", idOf(first), "input", []any{toolOutput(id, "ok")})); got != "All done." {
			t.Errorf("got %q", got)
		}
	})
	if callID == "" {
		t.Error("the first answer was no tool call")
	}
}

// An anchored request and the full one for the same turn are the same
// dispatch: this is what finds a proxy that sends a turn twice.
func TestAnchoredAndFullRequestHaveOneLogicalDigest(t *testing.T) {
	s := Start(t, Options{Script: Script{Conversation: &Conversation{ToolTurns: 1, Tool: "f", Arguments: "{}", Reasoning: true}}})
	k := dial(t, s, "sk")
	first := last(k.turn("prompt_cache_key", "s1"))
	out := gjson.GetBytes(first.payload, "response.output")
	callID := out.Get("1.call_id").String()
	k.turn("prompt_cache_key", "s1", "previous_response_id", idOf([]event{first}), "input", []any{toolOutput(callID, "done")})
	replayed := []any{
		map[string]any{
			"type": "message", "id": "msg_1", "role": "user", "content": []any{map[string]any{"type": "input_text", "text": "hello"}},
		},
		map[string]any{
			"type": "reasoning", "id": out.Get("0.id").String(), "summary": []any{}, "content": nil,
			"encrypted_content": out.Get("0.encrypted_content").String(),
		},
		map[string]any{"type": "function_call", "name": "f", "arguments": "{}", "call_id": callID},
		map[string]any{"type": "function_call_output", "id": "fco_1", "call_id": callID, "output": "done"},
	}
	post(t, s, "sk", body("prompt_cache_key", "s1", "input", replayed))
	post(t, s, "sk", body("prompt_cache_key", "s2", "input", replayed))
	ds := ended(t, s, 4)
	if ds[1].LogicalDigest != ds[2].LogicalDigest || ds[1].LogicalItems != 4 || ds[1].InputItems != 1 || ds[1].Turn != 2 {
		t.Errorf("anchored %+v\nfull %+v", ds[1], ds[2])
	}
	groups := s.Ledger().Duplicates()
	if len(groups) != 1 || len(groups[0]) != 2 || groups[0][0].Seq != ds[1].Seq || groups[0][1].Seq != ds[2].Seq {
		t.Errorf("duplicates: %+v", groups)
	}
}

func TestLongToolConversationInThreeLines(t *testing.T) {
	script, err := ParseScript([]byte(
		`conversation: {toolTurns: 50, tool: exec_command, arguments: '{"cmd":"step {{turn}}"}', finalText: All done.}`))
	if err != nil {
		t.Fatal(err)
	}
	s := Start(t, Options{Script: script})
	k := dial(t, s, "sk")
	events := k.turn()
	for i := 1; i <= 50; i++ {
		item := gjson.GetBytes(last(events).payload, "response.output.0")
		if got, want := item.Get("arguments").String(), fmt.Sprintf(`{"cmd":"step %d"}`, i); got != want {
			t.Fatalf("turn %d: arguments %s", i, got)
		}
		events = k.turn("previous_response_id", idOf(events), "input", []any{toolOutput(item.Get("call_id").String(), "ok")})
	}
	if got := textOf(events); got != "All done." {
		t.Errorf("the end is %q", got)
	}
	if d := last51(ended(t, s, 51)); d.Turn != 51 || d.LogicalItems != 101 {
		t.Errorf("ledger: %+v", d)
	}
}

func last51(ds []Dispatch) Dispatch { return ds[50] }

func TestPromptDecidesWithoutAScript(t *testing.T) {
	tools := []any{map[string]any{"type": "function", "name": "exec_command"}}
	lite := []any{
		map[string]any{"type": "additional_tools", "role": "developer", "tools": []any{map[string]any{
			"type": "namespace", "name": "functions", "tools": []any{map[string]any{"type": "custom", "name": "exec"}},
		}}},
		message("user", "use a tool"),
	}
	for _, c := range []struct {
		name, path, want string
		pairs            []any
	}{
		{"text", "type", "message", []any{"input", "hi"}},
		{"no tools offered", "type", "message", []any{"input", "run two commands"}},
		{"count", "arguments", `{"cmd":"echo step 1"}`, []any{"input", "run two commands", "tools", tools}},
		{"command", "arguments", `{"cmd":"ls <a> && pwd"}`, []any{"input", "please\nrun: ls <a> && pwd", "tools", tools}},
		{"code mode", "input", `text("echo step 1")`, []any{"input", lite}},
		{"code mode namespace", "namespace", "functions", []any{"input", lite}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Start(t, Options{})
			r := post(t, s, "sk", body(c.pairs...))
			if got := gjson.GetBytes(last(r.events).payload, "response.output.0."+c.path).String(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	s := Start(t, Options{})
	for _, c := range []struct{ name, body, param string }{
		{"not JSON", `{`, ""},
		{"no object", `[]`, ""},
		{"no model", `{"input":"x"}`, "model"},
		{"input", `{"model":"m","input":1}`, "input"},
		{"input item", `{"model":"m","input":[1]}`, "input"},
		{"exclusive", `{"model":"m","conversation":"c","previous_response_id":"r"}`, "conversation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := post(t, s, "sk", c.body)
			if r.status != http.StatusBadRequest || r.get("error.param") != c.param {
				t.Errorf("got %d %s", r.status, r.body)
			}
		})
	}
	if got := len(s.Ledger().Dispatches()); got != 0 {
		t.Errorf("%d bad requests became dispatches", got)
	}
	k := dial(t, s, "sk")
	for _, frame := range []string{`nonsense`, `[]`, `{"type":"session.update"}`, `{"type":"response.create"}`} {
		k.say(frame)
		if got := k.next(); gjson.Get(got, "status").Int() != 400 {
			t.Errorf("%s: got %s", frame, got)
		}
	}
}

// A refusal is proof that nothing ran; a broken connection is not.
func TestDuplicatesAreWhatMayHaveRunTwice(t *testing.T) {
	for _, c := range []struct {
		fault Fault
		want  int
	}{
		{Fault{Action: ActStatus, Status: 503}, 0},
		{Fault{Action: ActErrorFrame, Status: 429}, 0},
		{Fault{Action: ActReset}, 1},
		{Fault{At: AtAfterCreated, Action: ActFailed}, 1},
		{Fault{At: AtAfterTerminal, Action: ActFin}, 1},
	} {
		t.Run(c.fault.Action, func(t *testing.T) {
			s := Start(t, Options{Script: Script{Rules: []Rule{{Repeat: 1, Fault: &c.fault}}}})
			post(t, s, "sk", body())
			post(t, s, "sk", body())
			ended(t, s, 2)
			if got := len(s.Ledger().Duplicates()); got != c.want {
				t.Errorf("got %d groups, want %d", got, c.want)
			}
		})
	}
	t.Run("prewarm", func(t *testing.T) {
		s := Start(t, Options{})
		k := dial(t, s, "sk")
		k.turn("generate", false)
		k.turn("generate", false)
		if got := s.Ledger().Duplicates(); len(got) != 0 {
			t.Errorf("got %+v", got)
		}
	})
}
