package session

import (
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// sealedBody is a whole conversation with reasoning that only the account that made it
// can open.
const sealedBody = `{"model":"m","stream":true,"store":false,"input":[{"role":"user","content":"q"},` +
	`{"type":"reasoning","id":"rs_1","encrypted_content":"c2VhbGVk"},{"role":"assistant","content":"a"},{"role":"user","content":"q2"}]}`

// B27: sealed reasoning goes to the account that its session knows, whatever the
// selection would say; where that one is at its limit and another cannot open it, the
// first one's answer is the truth, and nothing of the conversation is cut away.
func TestB27_SealedReasoningStaysWithItsAccount(t *testing.T) {
	inBubbleOf(t, ofAll("a", "b", "c"), func(b *bench) {
		b.anchored("t")
		own := b.newest().account
		for range 3 {
			b.in(errReset) // a new socket, and so a new choice
			a := b.ask("t", sealedBody)
			if got := b.newest().account; got != own {
				t.Fatalf("made by %s, sent to %s", own, got)
			}
			b.in(created("r1"), completed("r1"))
			a.take()
		}
		a := b.ask("t", sealedBody)
		b.in(`{"type":"error","status":429,"error":{"code":"usage_limit_reached","message":"full","resets_in_seconds":600}}`)
		if got := b.newest().account; got == own {
			t.Fatal("no other account was asked")
		}
		b.in(`{"type":"error","status":400,"error":{"type":"invalid_request_error","code":"invalid_encrypted_content","message":"cannot be verified"}}`)
		if code := a.code(); code != failure.UsageLimitReached {
			t.Fatalf("%q: the first answer is the truth", code)
		}
	})
}
