package clients

import (
	"testing"

	"github.com/causeway-dev/causeway/test/upstream"
)

// B03: the real Codex CLI works through the proxy, and what it sends again with
// every request crosses to the upstream once.
func TestB03_CodexConversation(t *testing.T) {
	const rounds = 2
	s := start(t, setup{script: upstream.Script{Conversation: &upstream.Conversation{
		ToolTurns: rounds, Command: "echo turn {{turn}}", Reasoning: true, FinalText: "Answer {{turn}}.",
	}}})
	u := newCodex(t, codexSettings{base: s.data + "/v1"})
	first := u.exec(t, "Look around.")
	t.Log(first.raw, first.took)
	first.finished(t, rounds, "Answer 3.")
	second := u.resume(t, "Go on.")
	t.Log(second.raw, second.took)
	second.finished(t, rounds, "Answer 6.")
	t.Log(describe(s.up.Ledger().Dispatches()))
}
