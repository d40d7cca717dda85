package bridge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// interruptible answers with a call of each kind that clients run.
var interruptible = &upstream.Respond{
	ToolCalls: []upstream.ToolCall{{Name: "shell", Arguments: `{"cmd":"a"}`, CallID: "call_f"}, {Name: "editor", Arguments: "b", Custom: true, CallID: "call_c"}},
	Items:     []json.RawMessage{json.RawMessage(`{"id":"apc_1","type":"apply_patch_call","call_id":"call_p","status":"completed","operation":{"type":"delete_file","path":"x"}}`)},
}

// outputsSent lists type, id and status of the outputs that a dispatch carries.
func outputsSent(d upstream.Dispatch) (outputs []string, interrupted int) {
	for _, item := range gjson.GetBytes(d.Body, "input").Array() {
		kind := item.Get("type").Str
		if !strings.HasSuffix(kind, "_output") {
			continue
		}
		outputs = append(outputs, strings.TrimSpace(kind+" "+item.Get("call_id").Str+" "+item.Get("status").Str))
		if strings.Contains(item.Get("output").Str, "interrupted") {
			interrupted++
		}
	}
	return outputs, interrupted
}

func TestScenario87_OutputsOfInterruptedCalls(t *testing.T) {
	made := []string{"apply_patch_call_output call_p failed", "function_call_output call_f", "custom_tool_call_output call_c"}
	own := func(kind, id string) json.RawMessage {
		return json.RawMessage(`{"type":"` + kind + `_output","call_id":"` + id + `","output":"mine"}`)
	}
	user := json.RawMessage(`{"type":"message","role":"user","content":"stop, do something else"}`)
	allOwn := []json.RawMessage{own("function_call", "call_f"), own("custom_tool_call", "call_c"), own("apply_patch_call", "call_p")}
	for name, tc := range map[string]struct {
		delta bool
		items []json.RawMessage
		want  []string // outputs that go up
		made  int      // of them by the proxy
	}{
		"none given":        {items: []json.RawMessage{user}, want: made, made: 3},
		"one given":         {items: []json.RawMessage{own("custom_tool_call", "call_c"), user}, want: append(made[:2:2], "custom_tool_call_output call_c"), made: 2},
		"all given":         {items: append(allOwn, user), want: []string{"function_call_output call_f", "custom_tool_call_output call_c", "apply_patch_call_output call_p"}},
		"delta, one given":  {delta: true, items: []json.RawMessage{own("function_call", "call_f"), user}, want: []string{"apply_patch_call_output call_p failed", "custom_tool_call_output call_c", "function_call_output call_f"}, made: 2},
		"delta, all given":  {delta: true, items: allOwn, want: []string{"function_call_output call_f", "custom_tool_call_output call_c", "apply_patch_call_output call_p"}},
		"kept on the retry": {items: []json.RawMessage{user}, want: made, made: 3},
	} {
		t.Run(name, func(t *testing.T) {
			rules := []upstream.Rule{{Match: upstream.Match{Nth: 1}, Respond: interruptible}}
			retried := name == "kept on the retry"
			if retried { // the first socket ends, and the next cannot be opened at once
				rules[0].Fault = &upstream.Fault{At: upstream.AtAfterTerminal, Action: upstream.ActWSClose, CloseCode: 1001}
				rules = append(rules, upstream.Rule{Match: upstream.Match{Route: "upgrade", Nth: 2}, Fault: &upstream.Fault{At: upstream.AtUpgrade, Action: upstream.ActReset}})
			}
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, script: upstream.Script{Rules: rules}})
			c := r.conversation(thread("s87")...)
			first := c.say("go")
			r.served(first)
			if retried {
				r.closedSockets()
			}
			send := c.send
			if tc.delta {
				send = c.delta
			}
			r.served(send(tc.items...))
			d := r.dispatches(2)[1]
			outputs, n := outputsSent(d)
			if d.Anchor != first.id() || strings.Join(outputs, ", ") != strings.Join(tc.want, ", ") || n != tc.made || d.InputItems != tc.made+len(tc.items) {
				t.Fatalf("%d made, %d items: %s", n, d.InputItems, d.Body)
			}
			// Nothing is owed any more.
			r.served(c.delta(json.RawMessage(`{"role":"user","content":"go on"}`)))
			if outputs, _ := outputsSent(r.dispatches(3)[2]); len(outputs) != 0 {
				t.Fatalf("again: %v", outputs)
			}
		})
	}
}

// closedSockets waits until the proxy has no connection to the upstream.
func (r *rig) closedSockets() {
	r.t.Helper()
	until(r.t, "all sockets closed", func() bool { return r.bridge.Sessions().Connections == 0 })
}
