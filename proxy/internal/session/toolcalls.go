package session

import (
	"crypto/sha256"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// A client acts on a tool call as soon as it arrives. When the turn then breaks
// and the client sends it again, the model makes the same call under a new id,
// and the client would act twice. Calls that change something are therefore
// handed out once per logical turn.

// CallKey identifies what a call does, whatever its id; ok is false for a call
// that may be repeated. item is the item of a response.output_item.done event.
func CallKey(item []byte) (key affinity.Digest, ok bool) {
	v := gjson.ParseBytes(item)
	kind, name := v.Get("type").Str, strings.TrimPrefix(v.Get("name").Str, "functions.")
	if !acts(kind, name, v) {
		return key, false
	}
	h := sha256.New()
	h.Write([]byte(kind + "\x00" + v.Get("namespace").Str + "\x00" + name + "\x00"))
	for _, member := range [...]string{"arguments", "input", "action", "operation"} {
		value := v.Get(member)
		if value.Type == gjson.String && gjson.Valid(value.Str) {
			value = gjson.Parse(value.Str) // arguments are JSON in a string
		}
		writeStable(h, value)
		h.Write([]byte{0})
	}
	h.Sum(key[:0])
	return key, true
}

// acts says whether a call changes something outside of the conversation.
func acts(kind, name string, v gjson.Result) bool {
	switch kind {
	case "apply_patch_call", "local_shell_call", "shell_call":
		return true
	case "function_call", "custom_tool_call":
	default:
		return false
	}
	if name == "multi_tool_use.parallel" {
		found := false
		gjson.Parse(v.Get("arguments").Str).Get("tool_uses").ForEach(func(_, use gjson.Result) bool {
			found = acting(strings.TrimPrefix(use.Get("recipient_name").Str, "functions."))
			return !found
		})
		return found
	}
	return acting(name)
}

// acting lists the tools of coding agents that act: shells, editors, and what
// starts or steers other agents.
func acting(name string) bool {
	switch name {
	case "shell", "shell_command", "local_shell", "container.exec", "exec", "exec_command", "write_stdin", "apply_patch",
		"unified_exec", "spawn_agent", "send_input", "close_agent", "update_plan", "create_goal", "update_goal", "collaboration":
		return true
	}
	return false
}

// volatile members say how long to wait for a call, not what it does. They are
// part of a call's identity in this respect only: the same turn sent again may
// choose other waits.
func volatile(name string) bool {
	return name == "max_output_tokens" || name == "timeout_ms" || name == "yield_time_ms"
}

type byteWriter interface{ Write([]byte) (int, error) }

// writeStable writes a value without its volatile members; numbers and strings
// stay as they are written.
func writeStable(w byteWriter, v gjson.Result) {
	if !v.IsObject() && !v.IsArray() {
		_, _ = w.Write([]byte(v.Raw))
		return
	}
	v.ForEach(func(name, value gjson.Result) bool {
		if volatile(name.Str) {
			return true
		}
		_, _ = w.Write([]byte(name.Raw + ":"))
		writeStable(w, value)
		_, _ = w.Write([]byte{','})
		return true
	})
}

// toolCalls remembers which calls of broken turns their clients have got.
type toolCalls struct {
	turns []brokenTurn // the newest last
}

type brokenTurn struct {
	fingerprint string
	calls       []affinity.Digest
}

// maxBroken bounds the broken turns that are remembered; a client repeats its
// last one.
const maxBroken = 4

// of are the calls that a turn has handed out before it broke.
func (t *toolCalls) of(fingerprint string) []affinity.Digest {
	for _, b := range t.turns {
		if b.fingerprint == fingerprint && fingerprint != "" {
			return append([]affinity.Digest(nil), b.calls...)
		}
	}
	return nil
}

// broke notes the calls that a turn has handed out so far; none forgets it.
func (t *toolCalls) broke(fingerprint string, calls []affinity.Digest) {
	kept := t.turns[:0]
	for _, b := range t.turns {
		if b.fingerprint != fingerprint {
			kept = append(kept, b)
		}
	}
	t.turns = kept
	if len(calls) == 0 || fingerprint == "" {
		return
	}
	t.turns = append(t.turns, brokenTurn{fingerprint, calls})
	if len(t.turns) > maxBroken {
		t.turns = t.turns[1:]
	}
}
