package login

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/api/effective"
)

// Outcome is how an exchange ended.
type Outcome string

// Outcomes.
const (
	// Granted: there are new tokens.
	Granted Outcome = "Granted"
	// Denied: the issuer does not accept the refresh token.
	Denied Outcome = "Denied"
	// Refused: the issuer refuses the request; the refresh token was not used.
	Refused Outcome = "Refused"
	// Unreachable: nothing was sent, or the issuer asks to come back later.
	Unreachable Outcome = "Unreachable"
	// Unknown: something was sent and no answer came that can be believed. The
	// refresh token may have been used.
	Unknown Outcome = "Unknown"
)

// denials are the codes that say that a refresh token is of no use any more, as
// OAuth (RFC 6749 section 5.2) and OpenAI's issuer have them.
var denials = map[string]string{
	"invalid_grant":             effective.CauseDenied,
	"refresh_token_expired":     effective.CauseDenied,
	"refresh_token_reused":      effective.CauseReused,
	"refresh_token_invalidated": effective.CauseDenied,
	"token_expired":             effective.CauseDenied,
	"token_invalidated":         effective.CauseDenied,
	"app_session_terminated":    effective.CauseDenied,
	"account_session_expired":   effective.CauseDenied,
	"account_deactivated":       effective.CauseGone,
	"account_suspended":         effective.CauseGone,
	"account_deleted":           effective.CauseGone,
}

var clientCodes = map[string]bool{"invalid_client": true, "unauthorized_client": true}

// MaxReply bounds the body of an issuer's answer, in bytes: three tokens of 16
// KiB and what is around them.
const MaxReply = 64 << 10

// reply is a token endpoint's answer, of either kind.
type reply struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	// The rest may be of any type: a login is not thrown away for it.
	IDToken   json.RawMessage `json:"id_token"`
	ExpiresIn json.RawMessage `json:"expires_in"`
	Error     json.RawMessage `json:"error"`
	Code      json.RawMessage `json:"code"`
}

// Read tells what a whole answer of an issuer means. cause is an effective.Cause
// constant, never text of the answer.
func Read(status int, body []byte) (g Grant, o Outcome, cause string) {
	var r reply
	err := json.Unmarshal(body, &r)
	code := ""
	if err == nil {
		code = r.code()
	}
	switch {
	case status >= 200 && status < 300 && (err != nil || r.AccessToken != "" || code == ""):
		return r.grant(err)
	case status >= 500:
		// A gateway answers so when it lost the answer of the issuer behind it.
		return Grant{}, Unknown, ""
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return Grant{}, Unreachable, ""
	}
	switch {
	case denials[code] != "":
		return Grant{}, Denied, denials[code]
	case clientCodes[code]:
		return Grant{}, Refused, effective.CauseClient
	case status == http.StatusUnauthorized && err == nil:
		return Grant{}, Denied, effective.CauseDenied
	default:
		return Grant{}, Refused, effective.CauseAnswer
	}
}

// grant is Unknown for a success that cannot be read: the token has rotated.
func (r reply) grant(err error) (Grant, Outcome, string) {
	if err != nil || !effective.IsToken(r.AccessToken) || r.RefreshToken != "" && !effective.IsToken(r.RefreshToken) {
		return Grant{}, Unknown, ""
	}
	g := Grant{AccessToken: r.AccessToken, RefreshToken: r.RefreshToken, AccountID: effective.AccountIDOf(word(r.IDToken), r.AccessToken)}
	_, g.ExpiresAt = effective.TokenTimes(r.AccessToken)
	const year = 365 * 24 * 60 * 60
	seconds, err := strconv.ParseFloat(strings.Trim(string(r.ExpiresIn), `"`), 64)
	if err == nil && seconds > 0 && seconds <= year {
		g.Lifetime = time.Duration(seconds * float64(time.Second))
	}
	return g, Granted, ""
}

// code is that of either form of error: a word, or an object with one.
func (r reply) code() string {
	var object struct {
		Code json.RawMessage `json:"code"`
		Type json.RawMessage `json:"type"`
	}
	_ = json.Unmarshal(r.Error, &object) // it may be no object
	return cmp.Or(word(r.Error), word(object.Code), word(r.Code), word(object.Type))
}

// word is the text of a JSON string; empty for anything else.
func word(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}
