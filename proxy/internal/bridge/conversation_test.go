package bridge

import (
	"encoding/json"
)

// conversation is a client that resends its whole history each turn, as Codex
// does over HTTP.
type conversation struct {
	rig    *rig
	items  []json.RawMessage
	header []string
	extra  string // further members of the body, with a leading comma
	sent   int
	// onEvent is called for each event of an answer.
	onEvent func(sse)
}

func (r *rig) conversation(header ...string) *conversation {
	return &conversation{rig: r, header: header, items: []json.RawMessage{
		json.RawMessage(`{"type":"message","role":"developer","content":[{"type":"input_text","text":"Be brief."}]}`)}}
}

func (c *conversation) body() string {
	items, err := json.Marshal(c.items)
	if err != nil {
		c.rig.t.Fatal(err)
	}
	return `{"model":"gpt-5.5","stream":true,"store":false,"tools":[{"type":"function","name":"shell","parameters":{}}],"input":` + string(items) + c.extra + `}`
}

func (c *conversation) say(text string) *reply {
	c.rig.t.Helper()
	item, err := json.Marshal(map[string]any{"type": "message", "role": "user", "content": []map[string]string{{"type": "input_text", "text": text}}})
	if err != nil {
		c.rig.t.Fatal(err)
	}
	return c.send(item)
}

// send adds items, runs the turn and keeps the response's output as history.
func (c *conversation) send(items ...json.RawMessage) *reply {
	c.rig.t.Helper()
	c.items = append(c.items, items...)
	body := c.body()
	c.sent += len(body)
	out := c.rig.do(call{header: c.header, body: body, onEvent: c.onEvent})
	for _, e := range out.events {
		if e.name == "response.output_item.done" {
			var d struct {
				Item json.RawMessage `json:"item"`
			}
			if err := json.Unmarshal([]byte(e.data), &d); err != nil {
				c.rig.t.Fatal(err)
			}
			c.items = append(c.items, d.Item)
		}
	}
	return out
}

// results answers the tool calls of a reply.
func (r *reply) results(output string) []json.RawMessage {
	var out []json.RawMessage
	for _, e := range r.events {
		var d struct {
			Item struct {
				Type   string `json:"type"`
				CallID string `json:"call_id"`
			} `json:"item"`
		}
		if e.name != "response.output_item.done" || json.Unmarshal([]byte(e.data), &d) != nil || d.Item.Type != "function_call" {
			continue
		}
		raw, _ := json.Marshal(map[string]string{"type": "function_call_output", "call_id": d.Item.CallID, "output": output})
		out = append(out, raw)
	}
	return out
}
