package affinity

import (
	"strings"

	"github.com/tidwall/gjson"
)

// Output is one output item of a response, as far as it is needed to recognise
// the item when a client sends it back as history.
type Output struct {
	Role Role `json:"role,omitempty"`
	// Type is the item's own; set for calls.
	Type   string `json:"type,omitempty"`
	CallID string `json:"call,omitempty"`
	Core   Digest `json:"core,omitzero"`
}

// ReadOutput reads the item of a response.output_item.done event.
func ReadOutput(item []byte) Output {
	v := gjson.Parse(view(item))
	o := Output{Role: roleOf(v.Get("type").Str, v.Get("role").Str)}
	if o.Role == RoleCall {
		o.Type, o.CallID = callType(v.Get("type").Str), strings.Clone(v.Get("call_id").Str)
	}
	o.Core, _ = newHasher().core(v, o.Role)
	return o
}

// core digests what an assistant item says. Clients replay items with other
// member orders, without ids or status, with content null instead of absent, or
// a message as one plain string; what was said and called stays the same.
func (c *hasher) core(v gjson.Result, role Role) (Digest, bool) {
	c.reset()
	switch role {
	case RoleAssistant:
		frame(c.h, "message")
		content := v.Get("content")
		if content.Type == gjson.String {
			frame(c.h, content.Str)
			break
		}
		var text strings.Builder
		content.ForEach(func(_, part gjson.Result) bool {
			text.WriteString(part.Get("text").Str)
			text.WriteString(part.Get("refusal").Str)
			return true
		})
		frame(c.h, text.String())
	case RoleCall:
		for _, name := range [...]string{"type", "call_id", "name", "namespace"} {
			frame(c.h, v.Get(name).Str)
		}
		for _, name := range [...]string{"arguments", "input", "action", "operation"} {
			c.value(v.Get(name))
		}
		if v.Get("call_id").Str == "" { // hosted tools have an id only
			frame(c.h, v.Get("id").Str)
		}
	case RoleReasoning:
		frame(c.h, "reasoning")
		if sealed := v.Get("encrypted_content"); sealed.Type == gjson.String {
			frame(c.h, sealed.Str)
		} else {
			frame(c.h, v.Get("id").Str)
		}
	case RoleOther:
		frame(c.h, v.Get("type").Str)
		frame(c.h, v.Get("id").Str)
		frame(c.h, v.Get("encrypted_content").Str)
	default:
		return Digest{}, false
	}
	var d Digest
	c.h.Sum(d[:0])
	return d, true
}

// callType shares the common names, so that a record does not hold a copy of
// each.
func callType(name string) string {
	for _, known := range [...]string{"function_call", "custom_tool_call", "apply_patch_call", "local_shell_call", "web_search_call"} {
		if name == known {
			return known
		}
	}
	return strings.Clone(name)
}
