package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/session"
)

// idempotencyHeader is how a client says that two requests are one.
const idempotencyHeader = "Idempotency-Key"

// maxIdempotencyKey bounds its value, which is visible ASCII.
const maxIdempotencyKey = 255

// journal takes in the client's key. A turn that no session promises anything gets
// one of its own, so that there is one owner who knows whether it was sent.
func journal(t *session.Turn, req *Request) *failure.Failure {
	key := req.Header.Get(idempotencyHeader)
	if key == "" {
		return nil
	}
	if len(key) > maxIdempotencyKey || !visible(key) {
		message := fmt.Sprintf("The header %s must be 1 to %d visible ASCII characters.", idempotencyHeader, maxIdempotencyKey)
		return failure.New(failure.InvalidRequest, message, failure.Param("idempotency-key"))
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(req.Client), req.Client, key))
	// Letters in front keep it apart from the digest of a body.
	t.Keyed, t.Fingerprint = true, "4b"+hex.EncodeToString(digest[:16])
	body := sha256.Sum256(req.Body)
	t.BodyDigest = hex.EncodeToString(body[:16])
	if !t.Key.Kind.Hard() {
		t.Key = affinity.TurnStateKey(req.Client, "idempotency:"+t.Fingerprint)
	}
	return nil
}

func visible(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
