package upstream

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The files in testdata hold the shape of every event of a real exchange:
// its keys, and the JSON type of each value; repeats in a row are one line.
func TestEventsHaveTheShapeOfRealOnes(t *testing.T) {
	text := &Respond{Text: "Hello from the scripted upstream."}
	for _, c := range []struct {
		shape   string
		respond *Respond
		fault   *Fault
		pairs   []any
	}{
		{shape: "text", respond: text},
		{shape: "function_call", respond: &Respond{ToolCalls: []ToolCall{{Name: "exec_command", Arguments: `{"cmd":"echo hi"}`}}}},
		{shape: "custom_tool_call", respond: &Respond{ToolCalls: []ToolCall{{Name: "apply_patch", Arguments: "*** Begin", Custom: true}}}},
		{
			shape:   "namespaced_call",
			respond: &Respond{ToolCalls: []ToolCall{{Name: "exec", Arguments: "text(1+1)", Custom: true, Namespace: "functions"}}},
		},
		{shape: "prewarm", pairs: []any{"generate", false}},
		{shape: "failed", respond: text, fault: &Fault{At: AtAfterCreated, Action: ActFailed}},
		{
			shape: "failed_headers", respond: text,
			fault: &Fault{At: AtAfterCreated, Action: ActFailed, Headers: map[string]string{"retry-after": "3"}},
		},
		{shape: "incomplete", respond: text, fault: &Fault{At: AtBeforeTerminal, Action: ActIncomplete}},
		{shape: "compaction", pairs: []any{"input", []any{map[string]any{"type": "compaction_trigger"}}}},
	} {
		t.Run(c.shape, func(t *testing.T) {
			s := Start(t, Options{Script: Script{Respond: c.respond, Rules: []Rule{{Fault: c.fault}}}})
			want, err := os.ReadFile(filepath.Join("testdata", c.shape+".shape"))
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(want)), "\n")
			if c.shape == "compaction" || c.shape == "failed" || c.shape == "failed_headers" {
				lines = withInProgress(lines, c.fault != nil) // the recorded server left it out
			}
			if diff := cmp.Diff(lines, shapes(post(t, s, "sk", body(c.pairs...)).events)); diff != "" {
				t.Errorf("SSE differs from the real one (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(lines, shapes(dial(t, s, "sk").turn(c.pairs...))); diff != "" {
				t.Errorf("WebSocket differs from the real one (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReasoningItemHasTheShapeOfARealOne(t *testing.T) {
	s := Start(t, Options{Script: Script{Respond: &Respond{Reasoning: "ENC-{{id}}", Text: "ok"}}})
	want, err := os.ReadFile(filepath.Join("testdata", "reasoning.shape"))
	if err != nil {
		t.Fatal(err)
	}
	got := shapes(post(t, s, "sk", body()).events)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), got[2:4]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func withInProgress(lines []string, cutAfterCreated bool) []string {
	if cutAfterCreated {
		return lines
	}
	second := strings.Replace(lines[0], "response.created", "response.in_progress", 1)
	return append([]string{lines[0], second}, lines[1:]...)
}

func shapes(events []event) []string {
	var out []string
	for _, e := range events {
		var v any
		if err := json.Unmarshal(e.payload, &v); err != nil {
			out = append(out, "not JSON: "+err.Error())
			continue
		}
		line := e.name + " " + string(encode(shape(v)))
		if len(out) == 0 || out[len(out)-1] != line {
			out = append(out, line)
		}
	}
	return out
}

func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			out[k] = shape(e)
		}
		return out
	case []any:
		if len(v) == 0 {
			return []any{}
		}
		return []any{shape(v[0])}
	case bool:
		return "bool"
	case float64:
		return "number"
	case string:
		return "string"
	default:
		return nil
	}
}
