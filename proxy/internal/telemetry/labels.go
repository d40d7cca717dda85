package telemetry

// Label values are small integers with a table of names: a value outside the
// table is shown as "other" and cannot add a series.

const other = "other"

func nameIn(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return other
	}
	return names[i]
}

// Route is what a client asked for.
type Route int

// Routes.
const (
	RouteResponses Route = iota
	RouteCodexResponses
	RouteModels
	RouteCodexModels
	RoutePassThrough
)

var routeNames = []string{"responses", "codex_responses", "models", "codex_models", "pass_through"}

func (r Route) String() string { return nameIn(routeNames, int(r)) }

// Transport is how bytes travel on one side of the proxy.
type Transport int

// Transports. JSON is an answer in one piece; HTTP is an upstream request
// however it is answered.
const (
	TransportSSE Transport = iota
	TransportJSON
	TransportWebSocket
	TransportHTTP
)

var transportNames = []string{"sse", "json", "websocket", "http"}

func (t Transport) String() string { return nameIn(transportNames, int(t)) }

// Outcome is how a request or an attempt ended.
type Outcome int

// Outcomes.
const (
	// OutcomeOK has got its terminal event or its whole answer.
	OutcomeOK Outcome = iota
	// OutcomeCallerError is a fault of the request: 4xx of ours or of the upstream.
	OutcomeCallerError
	// OutcomeUnauthorized is a missing or unknown client key.
	OutcomeUnauthorized
	// OutcomeRefused was turned away before dispatch: no account, no room, draining.
	OutcomeRefused
	// OutcomeLimited is a quota or rate limit of the upstream.
	OutcomeLimited
	// OutcomeConnect never reached the upstream.
	OutcomeConnect
	// OutcomeUpstreamError is a failure that the upstream itself declared.
	OutcomeUpstreamError
	// OutcomeTruncated ended without a terminal event.
	OutcomeTruncated
	// OutcomeTimeout ended by a deadline of ours.
	OutcomeTimeout
	// OutcomeCallerGone was left by the client.
	OutcomeCallerGone
	// OutcomeInternal is our own fault.
	OutcomeInternal
)

var outcomeNames = []string{"ok", "caller_error", "unauthorized", "refused", "limited", "connect",
	"upstream_error", "truncated", "timeout", "caller_gone", "internal"}

func (o Outcome) String() string { return nameIn(outcomeNames, int(o)) }

// Direction of bytes, seen from the proxy.
type Direction int

// Directions.
const (
	Received Direction = iota
	Sent
)

var directionNames = []string{"received", "sent"}

func (d Direction) String() string { return nameIn(directionNames, int(d)) }

// Result of something that works or does not.
type Result int

// Results. ResultRejected is a configuration that was refused.
const (
	ResultOK Result = iota
	ResultRejected
	ResultError
)

var resultNames = []string{"ok", "rejected", "error"}

func (r Result) String() string { return nameIn(resultNames, int(r)) }
