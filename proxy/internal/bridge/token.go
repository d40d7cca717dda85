package bridge

import (
	"crypto/rand"
	"encoding/hex"
)

// newTurnState makes a continuation token of the form that affinity.ProxyMade
// knows again.
func newTurnState() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return "http_turn_" + hex.EncodeToString(b[:])
}
