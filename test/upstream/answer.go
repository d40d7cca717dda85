package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// defaultUsage is what the fixtures of real clients show; small numbers keep a
// client from compacting its history.
var defaultUsage = Usage{Input: 120, Output: 7}

// answerFor decides what the model says.
func answerFor(s Script, rule *Rule, req *request, conv *conversation, id string) (*answer, error) {
	r, err := chooseRespond(s, rule, req, conv)
	if err != nil {
		return nil, err
	}
	if r.ID != "" {
		id = r.ID
	}
	a := &answer{id: id, created: req.received.Unix(), usage: defaultUsage, respond: r}
	if r.Usage != nil {
		a.usage = *r.Usage
	}
	if !req.generate {
		a.usage.Output = 0
		return a, nil
	}
	if r.Reasoning != "" {
		a.add(answerItem{typ: "reasoning", text: strings.ReplaceAll(r.Reasoning, "{{id}}", id)})
	}
	for _, raw := range r.Items {
		a.items = append(a.items, answerItem{typ: gjson.GetBytes(raw, "type").String() + " raw", raw: raw})
	}
	a.addText(r, conv)
	for _, tc := range r.ToolCalls {
		a.addCall(tc, conv)
	}
	return a, nil
}

func chooseRespond(s Script, rule *Rule, req *request, conv *conversation) (Respond, error) {
	switch {
	case rule != nil && rule.Respond != nil:
		return rule.Respond.load()
	case req.compaction:
		return Respond{Items: []json.RawMessage{json.RawMessage(
			`{"id":"cmp_` + randomHex(4) + `","type":"compaction","encrypted_content":"ENC-COMPACTED"}`)}}, nil
	case s.Respond != nil:
		return s.Respond.load()
	case s.Conversation != nil:
		return s.Conversation.respond(conv), nil
	default:
		return promptConversation(conv).respond(conv), nil
	}
}

// load reads EventsFile.
func (r Respond) load() (Respond, error) {
	if r.EventsFile == "" {
		return r, nil
	}
	b, err := os.ReadFile(r.EventsFile)
	if err != nil {
		return r, fmt.Errorf("reading events: %w", err)
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, maxBody)
	for sc.Scan() {
		if line := bytes.TrimSpace(sc.Bytes()); len(line) > 0 {
			r.Events = append(r.Events, bytes.Clone(line))
		}
	}
	return r, sc.Err()
}

func (a *answer) add(it answerItem) {
	prefix := map[string]string{"message": "msg_", "reasoning": "rs_"}[it.typ]
	if prefix == "" {
		prefix = "fc_"
	}
	n := 1
	for _, other := range a.items {
		if strings.HasPrefix(other.id, prefix) {
			n++
		}
	}
	suffix := a.id
	if n > 1 {
		suffix += "_" + strconv.Itoa(n)
	}
	it.id = prefix + suffix
	if prefix == "fc_" && it.callID == "" {
		it.callID = "call_" + suffix
	}
	a.items = append(a.items, it)
}

func (a *answer) addText(r Respond, conv *conversation) {
	deltas := r.Deltas
	if r.Text != "" {
		deltas = words(fillIn(r.Text, conv))
	}
	for i := range r.Fill.Deltas {
		deltas = append(deltas, pad(i, max(r.Fill.Bytes, 1)))
	}
	if len(deltas) > 0 {
		a.add(answerItem{typ: "message", text: strings.Join(deltas, ""), deltas: deltas})
	}
}

func (a *answer) addCall(tc ToolCall, conv *conversation) {
	typ := "function_call"
	if tc.Custom {
		typ = "custom_tool_call"
	}
	args := fillIn(tc.Arguments, conv)
	if args == "" && !tc.Custom {
		args = "{}"
	}
	a.add(answerItem{typ: typ, name: tc.Name, ns: tc.Namespace, callID: tc.CallID, text: args, deltas: []string{args}})
}

// pad makes the i-th piece of a long text, n bytes, each unlike the last.
func pad(i, n int) string {
	s := strconv.Itoa(i) + " "
	if len(s) >= n {
		return s[len(s)-n:]
	}
	return s + strings.Repeat("x", n-len(s))
}

func fillIn(s string, conv *conversation) string {
	return strings.ReplaceAll(s, "{{turn}}", strconv.Itoa(conv.answers+1))
}

// respond gives the next answer of the conversation: tool calls until
// ToolTurns answers came after the user's message, then text. It looks at the
// logical input only, so that a repeated request gets the same answer.
func (c Conversation) respond(conv *conversation) Respond {
	var r Respond
	if c.Reasoning {
		r.Reasoning = "ENC-{{id}}"
	}
	if conv.rounds >= c.ToolTurns {
		r.Text = c.FinalText
		if r.Text == "" {
			r.Text = "All done."
		}
		return r
	}
	call := ToolCall{Name: c.Tool, Arguments: c.Arguments, Namespace: c.Namespace, Custom: c.Custom}
	if call.Name == "" {
		call = shellCall(conv.tools, c.Command)
	}
	for range max(c.Parallel, 1) {
		r.ToolCalls = append(r.ToolCalls, call)
	}
	return r
}

var (
	wantsTools   = regexp.MustCompile(`(?i)\b(?:run|use|call)\s+(\d+|an?|one|two|three|four|five)\s+(?:commands?|tools?)\b`)
	wantsCommand = regexp.MustCompile(`(?m)^\s*run:\s*(.+?)\s*$`)
	numbers      = map[string]int{"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
)

// promptConversation is the answer without a script: the prompt decides.
// "run three commands" or a line "run: CMD" calls a tool, all else is echoed.
func promptConversation(conv *conversation) Conversation {
	c := Conversation{Command: "echo step {{turn}}", FinalText: "You said: " + clip(conv.lastUser, 200)}
	if m := wantsCommand.FindStringSubmatch(conv.lastUser); m != nil {
		c.ToolTurns, c.Command, c.FinalText = 1, m[1], "All done."
	} else if m := wantsTools.FindStringSubmatch(conv.lastUser); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			n = numbers[strings.ToLower(m[1])]
		}
		c.ToolTurns, c.FinalText = n, "All done."
	}
	if len(conv.tools) == 0 {
		c.ToolTurns = 0
	}
	return c
}

// clip shortens at a rune.
func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

// shellCall runs a command with the tool offered for it, in that tool's form;
// without one, the first function offered is called.
func shellCall(tools []any, command string) ToolCall {
	if command == "" {
		command = "echo step {{turn}}"
	}
	first := ToolCall{Name: "exec_command"}
	for i, t := range flatTools(tools) {
		switch t.name {
		case "exec_command":
			return ToolCall{Name: t.name, Namespace: t.ns, Arguments: string(encode(object{"cmd", command}))}
		case "shell", "container.exec":
			return ToolCall{Name: t.name, Namespace: t.ns, Arguments: string(encode(object{"command", []string{"bash", "-lc", command}}))}
		case "shell_command":
			return ToolCall{Name: t.name, Namespace: t.ns, Arguments: string(encode(object{"command", command}))}
		case "exec": // code mode: the input is JavaScript
			return ToolCall{Name: t.name, Namespace: t.ns, Custom: true, Arguments: "text(" + string(encode(command)) + ")"}
		}
		if i == 0 {
			first = ToolCall{Name: t.name, Namespace: t.ns, Custom: t.custom}
		}
	}
	return first
}

type offered struct {
	name, ns string
	custom   bool
}

// flatTools lists function and custom tools, those of namespaces included.
func flatTools(tools []any) []offered {
	var out []offered
	for _, v := range tools {
		t, ok := v.(map[string]any)
		if !ok {
			continue
		}
		switch text(t["type"]) {
		case "function", "custom":
			out = append(out, offered{name: text(t["name"]), custom: text(t["type"]) == "custom"})
		case "namespace":
			inner, _ := t["tools"].([]any)
			for _, o := range flatTools(inner) {
				o.ns = text(t["name"])
				out = append(out, o)
			}
		}
	}
	return out
}
