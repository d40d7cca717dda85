// Package outcome says what the end of an attempt means: who is to blame, what it
// tells about the route and about the account, whether the turn may run again,
// and what the client gets. It is one table; nobody else judges an upstream.
//
// It is pure. A kind is found by Classify from the facts of an attempt, and each
// kind has one row, its Effect. Judge is both, with what the facts forbid taken
// out of the row.
//
// The rules behind the table:
//
//   - Evidence belongs to a request. A socket that ends while no request was sent
//     on it is NotSent and tells nothing about anybody.
//   - An attempt has exactly one kind, and whoever owns the attempt reports it once.
//   - Slow success is success.
//   - Only what the upstream says about an account touches the account; only what
//     does not depend on the caller touches the route.
package outcome

// Kind is what the end of an attempt means. The zero Kind is NotSent.
type Kind uint8

// Kinds.
const (
	// NotSent: nothing left, and nothing was learned.
	NotSent Kind = iota
	// OK: response.completed, however long it took.
	OK
	// Incomplete: response.incomplete with a reason; a legitimate end.
	Incomplete

	// CallerError: the request is at fault.
	CallerError
	// PolicyRefusal: the provider does not serve such a request.
	PolicyRefusal
	// TooLarge: the request is larger than the upstream reads.
	TooLarge
	// AnchorDenied: the upstream does not know the previous response, and has not
	// run the request.
	AnchorDenied
	// MissingToolOutput: calls and outputs of the request do not pair up.
	MissingToolOutput
	// SealedForeign: sealed content that another account made.
	SealedForeign
	// ConnectionLimit: the socket is too old, or carries too much, to take requests.
	ConnectionLimit
	// NoWebSocket: the upstream has no WebSocket at this place.
	NoWebSocket

	// AuthRejected: the account's credential was refused.
	AuthRejected
	// Entitlement: the account is not paid for.
	Entitlement
	// Forbidden: the account may not do what was asked; the request can be the
	// reason as well.
	Forbidden
	// Deactivated: the provider has closed the account.
	Deactivated
	// RateLimited: the account's rate is used up; it comes back by itself.
	RateLimited
	// QuotaExhausted: a window or budget of the account's plan is used up.
	QuotaExhausted
	// ModelNotForAccount: the plan of the account lacks the model.
	ModelNotForAccount
	// ModelAtCapacity: the model has no room, for nobody.
	ModelAtCapacity

	// EdgeLimited: a 429 that is not about the account.
	EdgeLimited
	// EdgeBlocked: a 403 of something before the upstream.
	EdgeBlocked
	// Unavailable: a 503 that does not say that the request was not run.
	Unavailable
	// Overloaded: the upstream says that it did not take the request.
	Overloaded
	// ServerError: a 5xx after the request was sent; it may have run.
	ServerError
	// ResponseFailed: a response that was created, and failed by the upstream's own
	// word.
	ResponseFailed
	// UpgradeFailed: no socket came about, after the connection did.
	UpgradeFailed

	// DNSFailed, ConnectFailed, TLSFailed, ProxyFailed: no connection.
	DNSFailed
	ConnectFailed
	TLSFailed
	ProxyFailed

	// WriteCut: the connection broke while the request was written.
	WriteCut
	// CutEventless: it broke after the request, before any event.
	CutEventless
	// CleanClose: the upstream said good-bye after the request, without an answer.
	CleanClose
	// Truncated: it ended after events, before the terminal one.
	Truncated
	// LivenessLost: neither pong nor event.
	LivenessLost
	// HeaderTimeout, FirstEventTimeout and IdleTimeout: the upstream was silent for
	// longer than the operator allows.
	HeaderTimeout
	FirstEventTimeout
	IdleTimeout
	// Garbage: what came is no event, or is too large for one.
	Garbage

	// CallerDeadline: the caller's own limit ended it.
	CallerDeadline
	// BudgetSpent: the operator's limit for a whole turn ended it.
	BudgetSpent
	// CallerGone: the client left, or does not read.
	CallerGone
	// Shed: refused here, before anything was sent.
	Shed
	// Drained: ended here, because the proxy or the session goes away.
	Drained
	// Internal: our own fault.
	Internal

	kinds // the number of kinds
)

var kindNames = [kinds]string{
	"not_sent", "ok", "incomplete",
	"caller_error", "policy_refusal", "too_large", "anchor_denied", "missing_tool_output", "sealed_foreign",
	"connection_limit", "no_websocket",
	"auth_rejected", "entitlement", "forbidden", "deactivated", "rate_limited", "quota_exhausted", "model_not_for_account",
	"model_at_capacity",
	"edge_limited", "edge_blocked", "unavailable", "overloaded", "server_error", "response_failed", "upgrade_failed",
	"dns_failed", "connect_failed", "tls_failed", "proxy_failed",
	"write_cut", "cut_eventless", "clean_close", "truncated", "liveness_lost", "header_timeout", "first_event_timeout",
	"idle_timeout", "garbage",
	"caller_deadline", "budget_spent", "caller_gone", "shed", "drained", "internal",
}

// String is the kind's name in logs and metrics.
func (k Kind) String() string {
	if k >= kinds {
		return "other"
	}
	return kindNames[k]
}

// Kinds lists all kinds.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}
