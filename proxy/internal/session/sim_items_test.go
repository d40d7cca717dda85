package session

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// simItem is one item of a conversation. Its word is what it means: two contexts
// are the same if their words are. Reasoning and the outputs of interrupted calls
// mean nothing: clients and proxy may leave them out or add them.
type simItem struct{ raw, word string }

func simUser(text string) simItem {
	return simItem{`{"role":"user","content":` + strconv.Quote(text) + `}`, "user " + text}
}

func simOutput(call string) simItem {
	return simItem{`{"type":"function_call_output","call_id":"` + call + `","output":"done"}`, "output " + call}
}

// simAborted is what a client says of a call that its user stopped.
func simAborted(call string) simItem {
	return simItem{raw: `{"type":"function_call_output","call_id":"` + call + `","output":"aborted"}`}
}

func simAnswer(text string) simItem {
	return simItem{`{"type":"message","id":"msg_` + strconv.Itoa(len(text)) + `","role":"assistant","status":"completed","content":[` +
		`{"type":"output_text","text":` + strconv.Quote(text) + `}]}`, "answer " + text}
}

func simReasoning(id string) simItem {
	return simItem{raw: `{"type":"reasoning","id":"rs_` + id + `","summary":[]}`}
}

func simCall(call, name, arguments string) simItem {
	return simItem{`{"type":"function_call","id":"fc_` + call + `","call_id":"` + call + `","name":"` + name + `","arguments":` +
		strconv.Quote(arguments) + `}`, "call " + call}
}

// simWord reads the meaning of an item.
func simWord(item gjson.Result) string {
	switch kind := item.Get("type").Str; kind {
	case "reasoning":
		return ""
	case "function_call":
		return "call " + item.Get("call_id").Str
	case "function_call_output":
		if text := item.Get("output").Str; text == interruptedText || text == "aborted" {
			return ""
		}
		return "output " + item.Get("call_id").Str
	}
	if item.Get("role").Str == "assistant" {
		if content := item.Get("content"); content.Type == gjson.String {
			return "answer " + content.Str
		}
		return "answer " + item.Get("content.0.text").Str
	}
	return "user " + item.Get("content").Str
}

// replayed is the item as a client sends it back as history.
func (i simItem) replayed(s *sim) simItem {
	if !strings.HasPrefix(i.word, "answer ") || s.chance(0.5) {
		return i
	}
	return simItem{`{"role":"assistant","content":` + strconv.Quote(strings.TrimPrefix(i.word, "answer ")) + `,"type":"message"}`, i.word}
}

func simWords(items []simItem) []string {
	var words []string
	for _, i := range items {
		if i.word != "" {
			words = append(words, i.word)
		}
	}
	return words
}

// simBody is a request.
func simBody(ask string, items []simItem, more string) []byte {
	raws := make([]string, len(items))
	for i, item := range items {
		raws[i] = item.raw
	}
	return []byte(`{"model":"m","user":"` + ask + `","stream":true` + more + `,"input":[` + strings.Join(raws, ",") + `]}`)
}

// openCalls are the calls that have no output and were not stopped, in order.
func openCalls(words, stopped []string) []string {
	var open []string
	for _, w := range words {
		if call, ok := strings.CutPrefix(w, "call "); ok {
			if !slices.Contains(stopped, call) {
				open = append(open, call)
			}
		}
		if call, ok := strings.CutPrefix(w, "output "); ok {
			for i, o := range open {
				if o == call {
					open = append(open[:i:i], open[i+1:]...)
					break
				}
			}
		}
	}
	return open
}

// orphan says whether an output has no call before it.
func orphan(words []string) bool {
	calls := map[string]bool{}
	for _, w := range words {
		if call, ok := strings.CutPrefix(w, "call "); ok {
			calls[call] = true
		}
		if call, ok := strings.CutPrefix(w, "output "); ok && !calls[call] {
			return true
		}
	}
	return false
}
