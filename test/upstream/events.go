package upstream

import (
	"encoding/json"
	"strconv"
	"strings"
)

// object is a JSON object whose keys keep their order: alternating keys and
// values. The real service has a fixed order, and clients' parsers are tested
// on it.
type object []any

// MarshalJSON writes the pairs in order.
func (o object) MarshalJSON() ([]byte, error) { return appendJSON(nil, o), nil }

// appendJSON writes what composers build without going through encoding/json
// again at every level, which would copy a large text five times.
func appendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case object:
		b = append(b, '{')
		for i := 0; i+1 < len(v); i += 2 {
			b = append(appendJSON(comma(b, i), v[i]), ':')
			b = appendJSON(b, v[i+1])
		}
		return append(b, '}')
	case []object:
		b = append(b, '[')
		for i := range v {
			b = appendJSON(comma(b, i), v[i])
		}
		return append(b, ']')
	case []json.RawMessage:
		b = append(b, '[')
		for i := range v {
			b = append(comma(b, i), v[i]...)
		}
		return append(b, ']')
	case json.RawMessage:
		return append(b, v...)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case nil:
		return append(b, "null"...)
	default:
		return append(b, encode(v)...)
	}
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// event is one payload on its way to the client.
type event struct {
	name    string
	payload []byte
}

func (e event) terminal() bool {
	switch e.name {
	case "response.completed", "response.failed", "response.incomplete", "response.cancelled":
		return true
	default:
		return false
	}
}

// answer is what the model says, before it becomes events.
type answer struct {
	id      string
	created int64
	items   []answerItem
	usage   Usage
	respond Respond
}

// answerItem is one output item: its events, and its final form.
type answerItem struct {
	typ    string // message, reasoning, function_call, custom_tool_call, or raw
	id     string
	callID string
	name   string
	ns     string
	text   string
	deltas []string
	raw    json.RawMessage
}

// final is the item as output_item.done and the response carry it.
func (it answerItem) final() object {
	switch it.typ {
	case "message":
		return object{
			"id", it.id, "type", "message", "role", "assistant", "status", "completed",
			"content", []object{textPart(it.text)},
		}
	case "reasoning":
		return object{"id", it.id, "type", "reasoning", "summary", []any{}, "encrypted_content", it.text}
	case "custom_tool_call":
		return it.call("completed", "input", it.text)
	default:
		return it.call("completed", "arguments", it.text)
	}
}

func (it answerItem) call(status, key, value string) object {
	o := object{"id", it.id, "status", status, "type", it.typ}
	if it.ns != "" {
		o = append(o, "namespace", it.ns)
	}
	return append(o, "call_id", it.callID, "name", it.name, key, value)
}

func textPart(s string) object {
	return object{"type", "output_text", "annotations", []any{}, "logprobs", []any{}, "text", s}
}

func (it answerItem) json() json.RawMessage {
	if it.raw != nil {
		return it.raw
	}
	return encode(it.final())
}

// composer turns an answer into numbered events.
type composer struct {
	req    *request
	ans    *answer
	tail   object // pairs at the end of every event: stream_id, response_id
	seq    int
	events []event
}

func (c *composer) add(name string, pairs ...any) {
	o := append(object{"type", name}, pairs...)
	o = append(o, "sequence_number", c.seq)
	c.seq++
	c.events = append(c.events, event{name, encode(append(o, c.tail...))})
}

// turnStateHeader carries a token that ties the rest of a turn to the account
// that made it.
const turnStateHeader = "x-codex-turn-state"

// compose builds the events of a whole, healthy response.
func (c *composer) compose() []event {
	c.add("response.created", "response", c.response("in_progress", nil, nil))
	if state := c.ans.respond.TurnState; state != "" && c.req.socket != nil {
		c.add("response.metadata", "headers", object{turnStateHeader, c.req.fillAccount(state)})
	}
	if c.req.generate {
		c.add("response.in_progress", "response", c.response("in_progress", nil, nil))
	}
	for range c.ans.respond.Keepalives {
		c.add("keepalive")
	}
	for i, it := range c.ans.items {
		c.item(i, it)
	}
	c.add("response.completed", "response", c.response("completed", nil, nil))
	return c.events
}

func (c *composer) item(index int, it answerItem) {
	switch it.typ {
	case "message":
		c.message(index, it)
	case "function_call":
		c.call(index, it, "response.function_call_arguments", "arguments")
	case "custom_tool_call":
		c.call(index, it, "response.custom_tool_call_input", "input")
	default: // reasoning and whatever a script made up
		c.add("response.output_item.added", "output_index", index, "item", it.json())
		c.add("response.output_item.done", "output_index", index, "item", it.json())
	}
}

func (c *composer) message(index int, it answerItem) {
	c.add("response.output_item.added", "output_index", index, "item",
		object{"id", it.id, "type", "message", "status", "in_progress", "content", []any{}, "role", "assistant"})
	c.add("response.content_part.added", "item_id", it.id, "output_index", index, "content_index", 0, "part", textPart(""))
	for _, d := range it.deltas {
		c.add("response.output_text.delta", "item_id", it.id, "output_index", index, "content_index", 0, "delta", d, "logprobs", []any{})
	}
	c.add("response.output_text.done", "item_id", it.id, "output_index", index, "content_index", 0, "text", it.text, "logprobs", []any{})
	c.add("response.content_part.done", "item_id", it.id, "output_index", index, "content_index", 0, "part", textPart(it.text))
	c.add("response.output_item.done", "output_index", index, "item", it.json())
}

func (c *composer) call(index int, it answerItem, prefix, key string) {
	c.add("response.output_item.added", "output_index", index, "item", it.call("in_progress", key, ""))
	for _, d := range it.deltas {
		c.add(prefix+".delta", "item_id", it.id, "output_index", index, "delta", d)
	}
	c.add(prefix+".done", "item_id", it.id, "output_index", index, key, it.text)
	c.add("response.output_item.done", "output_index", index, "item", it.json())
}

// response is the response object at a state of its life.
func (c *composer) response(status string, failure, incomplete any) object {
	output, usage := []json.RawMessage{}, any(nil)
	if status == "completed" {
		for _, it := range c.ans.items {
			output = append(output, it.json())
		}
	}
	if status == "completed" || status == "incomplete" {
		usage = c.usage()
	}
	var anchor any
	if c.req.anchor != "" {
		anchor = c.req.anchor
	}
	return object{
		"id", c.ans.id, "object", "response", "created_at", c.ans.created, "status", status, "background", false,
		"error", failure, "incomplete_details", incomplete, "instructions", nil, "max_output_tokens", nil,
		"model", c.req.model, "output", output, "parallel_tool_calls", true, "previous_response_id", anchor,
		"reasoning", object{"effort", nil, "summary", nil}, "service_tier", "default", "store", c.req.store, "temperature", 1,
		"text", object{"format", object{"type", "text"}}, "tool_choice", "auto", "tools", []any{}, "top_p", 1,
		"truncation", "disabled", "usage", usage, "metadata", object{},
	}
}

func (c *composer) usage() object {
	u := c.ans.usage
	return object{
		"input_tokens", u.Input, "input_tokens_details", object{"cached_tokens", u.Cached},
		"output_tokens", u.Output, "output_tokens_details", object{"reasoning_tokens", u.Reasoning},
		"total_tokens", u.Input + u.Output,
	}
}

// failed is response.failed with the error object of a fault: the service's
// own has a code and a message, and what else the fault names.
func (c *composer) failed(f *Fault) event {
	if f.Body != "" {
		return c.terminal("response.failed", c.response("failed", json.RawMessage(f.Body), nil))
	}
	e := f.apiError()
	failure := object{"code", orNil(e.code), "message", e.message}
	for _, m := range [][2]string{{"type", f.Type}, {"param", f.Param}} {
		if m[1] != "" {
			failure = append(failure, m[0], m[1])
		}
	}
	if len(e.headers) > 0 {
		failure = append(failure, "headers", e.headers)
	}
	return c.terminal("response.failed", c.response("failed", failure, nil))
}

func (c *composer) incomplete(reason string) event {
	return c.terminal("response.incomplete", c.response("incomplete", nil, object{"reason", reason}))
}

// terminal makes an end other than completed; its number is set when it is
// known after how many events it comes.
func (c *composer) terminal(name string, response object) event {
	o := append(object{"type", name, "response", response, "sequence_number", c.seq}, c.tail...)
	return event{name, encode(o)}
}

// words cuts text the way the real service streams it: word by word, the
// space with the word before it.
func words(s string) []string {
	if s == "" {
		return nil
	}
	return strings.SplitAfter(s, " ")
}
