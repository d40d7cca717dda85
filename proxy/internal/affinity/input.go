package affinity

import (
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

// Role says who speaks in an item, as far as a payload's shape depends on it.
type Role uint8

// Roles of items.
const (
	RoleOther      Role = iota
	RoleSystem          // developer, system, additional_tools
	RoleUser            // a user message
	RoleAssistant       // an assistant message
	RoleReasoning       // reasoning, with or without its encrypted content
	RoleCall            // a tool call the model made
	RoleCallOutput      // the result of a tool call
	RoleReference       // a pointer to an item that only the upstream has
)

// Item is one element of the input array.
type Item struct {
	// Start and End are byte offsets in the body.
	Start, End int
	Role       Role
	CallID     string
	// Core digests what the model said, without ids and marks that clients drop
	// or add when they replay it. It is set for assistant output only.
	Core Digest
	// Chain digests this item and all before it.
	Chain Digest
}

// Input is the input of a turn, item by item. It refers to the body it was
// made from by offsets and holds no copy of it.
type Input struct {
	// List is false for a string input and for none.
	List  bool
	Items []Item
	// Start and End are the byte offsets of the input value; both 0 = no input.
	Start, End int
}

// Answers says whether an item from index from on is the output of the call.
func (in Input) Answers(callID string, from int) bool {
	for _, item := range in.Items[from:] {
		if item.Role == RoleCallOutput && item.CallID == callID {
			return true
		}
	}
	return false
}

// Facts are the members of a body that the planner looks at, read once.
type Facts struct {
	Model              string
	PreviousResponseID string
	HasConversation    bool
	PromptCacheKey     string
	// Store is the body's own value; absent means the API's default, true.
	Store bool
	// Generate is false for a prewarm.
	Generate bool
	// Media: the model is made to draw, which is slow to begin and large.
	Media bool
	// Files are the uploaded files that it refers to.
	Files []string
	Input Input
}

// Read scans a body that is known to be a valid JSON object. The strings of the
// result share its memory, which must not change.
func Read(body []byte) Facts {
	f := Facts{Store: true, Generate: true, Files: files(body)}
	gjson.Parse(view(body)).ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "model":
			f.Model = strings.TrimSpace(value.Str)
		case "previous_response_id":
			f.PreviousResponseID = strings.TrimSpace(value.Str)
		case "conversation":
			f.HasConversation = value.Type != gjson.Null && value.Str != "" || value.IsObject()
		case "prompt_cache_key", "promptCacheKey":
			if f.PromptCacheKey == "" {
				f.PromptCacheKey = strings.TrimSpace(value.Str)
			}
		case "store":
			f.Store = value.Type != gjson.False
		case "generate":
			f.Generate = value.Type != gjson.False
		case "tool_choice":
			f.Media = value.Get("type").Str == "image_generation"
		case "input":
			f.Input = readInput(value)
		}
		return true
	})
	return f
}

// view reads bytes as a string without copying a body of many megabytes.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func readInput(v gjson.Result) Input {
	in := Input{List: v.IsArray(), Start: v.Index, End: v.Index + len(v.Raw)}
	if !in.List {
		return in
	}
	h := newHasher()
	var previous Digest
	v.ForEach(func(_, item gjson.Result) bool {
		i := readItem(h, item)
		i.Chain = chain(previous, h.sum(item))
		previous = i.Chain
		in.Items = append(in.Items, i)
		return true
	})
	return in
}

func readItem(h *hasher, v gjson.Result) Item {
	i := Item{Start: v.Index, End: v.Index + len(v.Raw)}
	itemType, role := v.Get("type").Str, v.Get("role").Str
	i.Role = roleOf(itemType, role)
	if i.Role == RoleCall || i.Role == RoleCallOutput {
		i.CallID = v.Get("call_id").Str
	}
	if core, ok := h.core(v, i.Role); ok {
		i.Core = core
	}
	return i
}

func roleOf(itemType, role string) Role {
	switch {
	case itemType == "message" || itemType == "":
		switch role {
		case "user":
			return RoleUser
		case "assistant":
			return RoleAssistant
		case "developer", "system":
			return RoleSystem
		}
		return RoleOther
	case itemType == "additional_tools":
		return RoleSystem
	case itemType == "reasoning":
		return RoleReasoning
	case itemType == "item_reference":
		return RoleReference
	case strings.HasSuffix(itemType, "_call_output"):
		return RoleCallOutput
	case strings.HasSuffix(itemType, "_call"):
		return RoleCall
	}
	return RoleOther
}
