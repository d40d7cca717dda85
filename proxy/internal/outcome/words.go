package outcome

import (
	"strings"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// statusOverloaded is what some providers answer instead of 503 with a code.
const statusOverloaded = 529

// codes are the words with a meaning of their own, whatever the status. A code
// outranks a type, and both outrank a status.
var codes = map[string]Kind{
	"account_deactivated": Deactivated,
	"account_suspended":   Deactivated,
	"account_deleted":     Deactivated,

	"invalid_api_key":           AuthRejected,
	"invalid_authentication":    AuthRejected,
	"authentication_error":      AuthRejected,
	"token_invalidated":         AuthRejected,
	"token_expired":             AuthRejected,
	"token_revoked":             AuthRejected,
	"invalid_grant":             AuthRejected,
	"refresh_token_expired":     AuthRejected,
	"refresh_token_reused":      AuthRejected,
	"refresh_token_invalidated": AuthRejected,
	"app_session_terminated":    AuthRejected,
	"account_session_expired":   AuthRejected,

	"usage_limit_reached":        QuotaExhausted,
	"insufficient_quota":         QuotaExhausted,
	"usage_not_included":         QuotaExhausted,
	"quota_exceeded":             QuotaExhausted,
	"billing_hard_limit_reached": QuotaExhausted,
	"billing_not_active":         QuotaExhausted,

	"rate_limit_exceeded": RateLimited,
	"rate_limit_error":    RateLimited,

	"server_is_overloaded":        Overloaded,
	"server_overloaded":           Overloaded,
	"overloaded_error":            Overloaded,
	"overloaded":                  Overloaded,
	"slow_down":                   Overloaded,
	"policy_capacity_unavailable": Overloaded,

	"websocket_connection_limit_reached": ConnectionLimit,
	"websocket_stream_limit_reached":     ConnectionLimit,
	"invalid_encrypted_content":          SealedForeign,

	"cyber_policy":             PolicyRefusal,
	"bio_policy":               PolicyRefusal,
	"content_policy_violation": PolicyRefusal,
	"content_filter":           PolicyRefusal,
	"moderation_blocked":       PolicyRefusal,
	"invalid_prompt":           PolicyRefusal,

	"context_length_exceeded": CallerError,
	"model_not_found":         CallerError,
	"payload_too_large":       TooLarge,

	// The location of this proxy, not the account.
	"unsupported_country_region_territory": EdgeBlocked,
}

// byCode judges what the upstream says in words.
func byCode(f *upstream.Fault) (Kind, bool) {
	if k, ok := continuity(f); ok {
		return k, true
	}
	if k, ok := codes[f.Code]; ok {
		return k, true
	}
	if k, ok := codes[f.Type]; ok {
		return k, true
	}
	message := strings.ToLower(f.Message)
	switch {
	case strings.Contains(message, "model") && strings.Contains(message, "not supported") && strings.Contains(message, "chatgpt account"):
		return ModelNotForAccount, true
	case strings.Contains(message, "selected model is at capacity"):
		return ModelAtCapacity, true
	case f.Status == statusOverloaded:
		return Overloaded, true
	}
	return NotSent, false
}

// continuity judges what is about the state of a conversation.
func continuity(f *upstream.Fault) (Kind, bool) {
	switch {
	case f.Denial():
		return AnchorDenied, true
	case f.MissingToolOutput():
		return MissingToolOutput, true
	}
	return NotSent, false
}

// limited judges a 429 without a code. One that says when the account's window
// ends is the account's; any other is somebody before it who throttles.
func limited(f *upstream.Fault) Kind {
	for _, member := range []string{"resets_at", "resets_in_seconds", "plan_type"} {
		if v := gjson.GetBytes(f.Raw, member); v.Exists() && v.Type != gjson.Null {
			return RateLimited
		}
	}
	if f.Header != nil {
		for _, name := range []string{"x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-ratelimit-limit-requests"} {
			if f.Header(name) != "" {
				return RateLimited
			}
		}
	}
	return EdgeLimited
}

// forbidden tells a refusal of the upstream from one of something before it,
// which has no error object of its own. It takes no account out by itself: one
// caller that asks for what nobody may do would empty the pool.
func forbidden(f *upstream.Fault) Kind {
	if structured(f) {
		return Forbidden
	}
	return EdgeBlocked
}

// structured says whether the answer was an error object of the upstream's API.
func structured(f *upstream.Fault) bool {
	return f.Code != "upstream_protocol_error" && (f.Code != "" || f.Type != "" || f.Message != "")
}

// callers says whether a fault without a status names the request as its cause.
func callers(f *upstream.Fault) bool {
	for _, word := range []string{f.Code, f.Type} {
		switch word {
		case "invalid_request_error", "invalid_value", "unsupported_value", "not_found_error", "permission_error":
			return true
		}
	}
	return false
}
