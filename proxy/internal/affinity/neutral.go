package affinity

import (
	"strings"

	"github.com/tidwall/gjson"
)

// Neutral says whether any account can run a body, and run it twice without
// harm: it names nothing that only one account holds, and no tool of it acts at
// the upstream. Whatever it does not know makes a body not neutral.
func Neutral(body []byte) bool {
	neutral := true
	gjson.Parse(view(body)).ForEach(func(name, value gjson.Result) bool {
		neutral = neutralMember(name.Str, value)
		return neutral
	})
	return neutral
}

func neutralMember(name string, value gjson.Result) bool {
	switch name {
	case "model", "instructions", "stream", "stream_options", "store", "include", "reasoning", "text", "tool_choice",
		"parallel_tool_calls", "max_output_tokens", "max_tool_calls", "temperature", "top_p", "top_logprobs", "truncation",
		"metadata", "client_metadata", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "user",
		"service_tier", "generate", "type":
		return true
	case "previous_response_id", "conversation", "prompt", "background":
		return value.Type == gjson.Null || value.Type == gjson.False
	case "tools":
		return neutralTools(value)
	case "input":
		return neutralInput(value)
	}
	return false
}

// neutralTools accepts the tools that run at the client, and searches.
func neutralTools(tools gjson.Result) bool {
	neutral := true
	tools.ForEach(func(_, tool gjson.Result) bool {
		switch kind := tool.Get("type").Str; {
		case kind == "function", kind == "custom", kind == "local_shell", kind == "apply_patch",
			strings.HasPrefix(kind, "web_search"):
		case kind == "namespace":
			neutral = neutralTools(tool.Get("tools"))
		default:
			neutral = false
		}
		return neutral
	})
	return neutral
}

func neutralInput(input gjson.Result) bool {
	if input.Type == gjson.String {
		return true
	}
	neutral := input.IsArray()
	input.ForEach(func(_, item gjson.Result) bool {
		itemType := item.Get("type").Str
		switch roleOf(itemType, item.Get("role").Str) {
		case RoleUser, RoleSystem, RoleAssistant, RoleCall, RoleCallOutput:
			neutral = neutral && !strings.Contains(item.Raw, `"file_id"`) && !strings.Contains(item.Raw, `"container_id"`)
		case RoleReasoning:
			neutral = neutral && item.Get("encrypted_content").Type != gjson.String
		case RoleOther, RoleReference:
			neutral = false
		}
		return neutral
	})
	return neutral
}
