// Package bridge carries a client's turn over HTTP to an upstream session and
// relays what comes back.
package bridge

import (
	"net/http"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
)

// Route is the API family a client spoke.
type Route int

const (
	// RouteV1 is the OpenAI platform's form: /v1/responses.
	RouteV1 Route = iota
	// RouteCodex is the ChatGPT backend's form: /backend-api/codex/responses.
	RouteCodex
)

// Request is one authenticated, decompressed and shape-checked turn.
type Request struct {
	// ID is the request id, returned to the client as x-request-id.
	ID    string
	Route Route
	// Client is the name of the client's key; empty when clients are not asked
	// for one. It scopes session keys and anchors.
	Client string
	Header http.Header
	// Body is a valid JSON object. It is not changed and not kept after the turn.
	Body []byte
	// Stream says whether the client asked for SSE.
	Stream bool
	// Socket names the client's WebSocket, over which the turn came; empty = it came
	// over HTTP.
	Socket string
	// Forwarded is the session key that the replica derived from which the turn
	// came; nil = it came from a client.
	Forwarded *affinity.Key
	// Tail is the response that the turn builds on; empty = none.
	Tail string
	// Return says that the replica from which it came should hold the session, and
	// only found it here.
	Return bool
	// Runtime is the configuration the whole turn is served under.
	Runtime *config.Runtime
	// Budget is the time that the turn has in all.
	Budget deadline.Budget
}
