package failure

import (
	"net/http"
	"time"
)

// Codes of failures that the proxy itself makes. Clients act on some of them:
// previous_response_not_found makes Codex resend in full, 429 without
// Retry-After ends its turn, and 413 makes it downgrade its transport, which is
// why a body that is too large is a 400 here.
const (
	InvalidRequest           = "invalid_request_error"
	InvalidJSON              = "invalid_json"
	PayloadTooLarge          = "payload_too_large"
	UnsupportedEncoding      = "unsupported_content_encoding"
	InvalidAPIKey            = "invalid_api_key"
	NotFound                 = "not_found"
	MethodNotAllowed         = "method_not_allowed"
	UpgradeRequired          = "upgrade_required"
	InvalidStreamID          = "invalid_stream_id"
	OriginNotAllowed         = "origin_not_allowed"
	RequestTimeout           = "request_timeout"
	ModelNotFound            = "model_not_found"
	PreviousResponseNotFound = "previous_response_not_found"
	NoAccounts               = "no_accounts"
	JournalInProgress        = "journal_in_progress"
	JournalConflict          = "journal_conflict"
	JournalUnknown           = "journal_unknown"
	OwnerConflict            = "continuity_owner_conflict"
	UsageLimitReached        = "usage_limit_reached"
	QueueTimeout             = "queue_timeout"
	BulkheadFull             = "bulkhead_full"
	OwnerUnavailable         = "owner_account_unavailable"
	UpstreamUnavailable      = "upstream_unavailable"
	Draining                 = "draining"
	StreamIncomplete         = "stream_incomplete"
	StreamIdleTimeout        = "stream_idle_timeout"
	EventlessTimeout         = "bridge_eventless_timeout"
	DownstreamOverflow       = "downstream_overflow"
	UpstreamConnect          = "upstream_connect"
	UpstreamProtocol         = "upstream_protocol_error"
	UpstreamError            = "upstream_error"
	UpstreamAuth             = "upstream_account_rejected"
	RateLimitExceeded        = "rate_limit_exceeded"
	InternalError            = "internal_error"
	// Of sessions: the circuit of a key is open, the outcome of an identical turn is
	// not known, another replica owns the key, the store does not answer.
	CircuitOpen      = "upstream_request_timeout"
	OutcomeUnknown   = "upstream_operation_status_unknown"
	InstanceMismatch = "bridge_instance_mismatch"
	StoreUnavailable = "store_unavailable"
	// RouteOpen: the circuit of the route to the upstream is open.
	RouteOpen = "circuit_open"
	// Of hand-overs between slots: it took too long, too many wait for it, the slot
	// with authority cannot be reached.
	HoldTimeout     = "handoff_hold_timeout"
	HoldFull        = "hold_full"
	SlotUnavailable = "slot_unavailable"
)

type kind struct {
	status     int
	errorType  string
	retryAfter time.Duration // default hint; 0 = none
}

const (
	typeInvalid   = "invalid_request_error"
	typeAuth      = "authentication_error"
	typeServer    = "server_error"
	typeRateLimit = "rate_limit_error"
)

// kinds is the whole error table. Local overload is 503 with a hint, never 429:
// Codex does not retry a 429 and its user blames the wrong party. 401 is for the
// client's own key alone: in ChatGPT mode it makes Codex refresh its login.
var kinds = map[string]kind{
	InvalidRequest:           {http.StatusBadRequest, typeInvalid, 0},
	InvalidJSON:              {http.StatusBadRequest, typeInvalid, 0},
	PayloadTooLarge:          {http.StatusBadRequest, typeInvalid, 0},
	UnsupportedEncoding:      {http.StatusUnsupportedMediaType, typeInvalid, 0},
	InvalidAPIKey:            {http.StatusUnauthorized, typeAuth, 0},
	NotFound:                 {http.StatusNotFound, typeInvalid, 0},
	MethodNotAllowed:         {http.StatusMethodNotAllowed, typeInvalid, 0},
	UpgradeRequired:          {http.StatusUpgradeRequired, typeInvalid, 0},
	InvalidStreamID:          {http.StatusBadRequest, typeInvalid, 0},
	OriginNotAllowed:         {http.StatusForbidden, typeInvalid, 0},
	RequestTimeout:           {http.StatusRequestTimeout, typeInvalid, 0},
	ModelNotFound:            {http.StatusNotFound, typeInvalid, 0},
	PreviousResponseNotFound: {http.StatusBadRequest, typeInvalid, 0},
	// Sending it again changes nothing, and of all statuses clients retry 400 least.
	OwnerConflict:       {http.StatusBadRequest, typeInvalid, 0},
	JournalInProgress:   {http.StatusConflict, typeInvalid, time.Second},
	JournalConflict:     {http.StatusConflict, typeInvalid, 0},
	JournalUnknown:      {http.StatusConflict, typeInvalid, 0},
	NoAccounts:          {http.StatusServiceUnavailable, typeServer, 5 * time.Second},
	UsageLimitReached:   {http.StatusTooManyRequests, UsageLimitReached, 60 * time.Second},
	RateLimitExceeded:   {http.StatusTooManyRequests, typeRateLimit, 5 * time.Second},
	QueueTimeout:        {http.StatusServiceUnavailable, typeServer, 5 * time.Second},
	OwnerUnavailable:    {http.StatusServiceUnavailable, typeServer, 5 * time.Second},
	BulkheadFull:        {http.StatusServiceUnavailable, typeServer, 5 * time.Second},
	Draining:            {http.StatusServiceUnavailable, typeServer, 2 * time.Second},
	StreamIncomplete:    {http.StatusBadGateway, typeServer, 0},
	StreamIdleTimeout:   {http.StatusGatewayTimeout, typeServer, 0},
	EventlessTimeout:    {http.StatusGatewayTimeout, typeServer, 0},
	DownstreamOverflow:  {http.StatusBadGateway, typeServer, 0},
	UpstreamConnect:     {http.StatusServiceUnavailable, typeServer, 2 * time.Second},
	UpstreamProtocol:    {http.StatusBadGateway, typeServer, 0},
	UpstreamError:       {http.StatusBadGateway, typeServer, 0},
	UpstreamUnavailable: {http.StatusServiceUnavailable, typeServer, 5 * time.Second},
	UpstreamAuth:        {http.StatusServiceUnavailable, typeServer, 5 * time.Second},
	InternalError:       {http.StatusInternalServerError, typeServer, 0},
	CircuitOpen:         {http.StatusServiceUnavailable, typeServer, time.Second},
	OutcomeUnknown:      {http.StatusServiceUnavailable, typeServer, time.Second},
	InstanceMismatch:    {http.StatusConflict, typeServer, time.Second},
	StoreUnavailable:    {http.StatusServiceUnavailable, typeServer, 5 * time.Second},
	RouteOpen:           {http.StatusServiceUnavailable, typeServer, time.Second},
	HoldTimeout:         {http.StatusServiceUnavailable, typeServer, 2 * time.Second},
	HoldFull:            {http.StatusServiceUnavailable, typeServer, 5 * time.Second},
	SlotUnavailable:     {http.StatusServiceUnavailable, typeServer, 2 * time.Second},
}
