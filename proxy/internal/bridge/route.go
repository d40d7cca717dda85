package bridge

import (
	"net/http"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// Router knows the other replicas. It is safe for concurrent use.
type Router interface {
	// Owner is the peer address of the replica that should hold the session of
	// key; empty = this one, also when nothing is known of others.
	Owner(key affinity.Key) string
	// Forward sends the turn to the peer at address and relays the answer. False
	// means that the peer did not take it and nothing was written to w: the turn
	// can be served here. The request is not forwarded again by the peer.
	Forward(w http.ResponseWriter, r *http.Request, req *Request, key affinity.Key, address string) bool
	// Relay is Forward to the replica of the other slot that should hold the session
	// of key, or, if that one is not there, the next in line.
	Relay(w http.ResponseWriter, r *http.Request, req *Request, key affinity.Key) bool
}
