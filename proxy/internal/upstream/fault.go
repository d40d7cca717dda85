package upstream

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
)

// Fault is an upstream's refusal or failure, in one form for every shape it
// comes in: nested or flat, as an error event, as response.failed, or as an
// HTTP answer.
type Fault struct {
	// Status is the HTTP status, or the frame's own; 0 = not said.
	Status  int
	Code    string
	Type    string
	Message string
	Param   string
	// ParamPresent tells an absent param from a blank one.
	ParamPresent bool
	// Raw is the error object as it came, or nil.
	Raw json.RawMessage
	// Header reads a response header, or a member of the frame's headers.
	Header func(name string) string
}

// ReadFault reads an event of KindError or KindFailed.
func ReadFault(e Event) Fault {
	root := gjson.Parse(string(e.Data)) // a copy: the fault outlives the event
	object := root.Get("error")
	if e.Kind == KindFailed {
		object = root.Get("response.error")
	}
	if !object.IsObject() {
		object = root // the flat shape
	}
	f := Fault{
		Status:  int(root.Get("status").Int()),
		Code:    object.Get("code").String(),
		Message: object.Get("message").String(),
		Header:  func(string) string { return "" },
	}
	if f.Status == 0 {
		f.Status = int(root.Get("status_code").Int())
	}
	if t := object.Get("type").Str; object.Raw != root.Raw || t != "error" {
		f.Type = t
	}
	if p := object.Get("param"); p.Exists() && p.Type != gjson.Null {
		f.Param, f.ParamPresent = p.String(), true
	}
	if f.Code == "" || object.Get("code").Type == gjson.Null {
		f.Code = f.Type // some shapes carry the code in type only
	}
	if object.Raw != root.Raw {
		f.Raw = json.RawMessage(object.Raw)
	}
	if headers := root.Get("headers"); headers.IsObject() {
		f.Header = func(name string) string { return headerMember(headers, name) }
	}
	return f
}

func headerMember(headers gjson.Result, name string) (value string) {
	headers.ForEach(func(k, v gjson.Result) bool {
		if strings.EqualFold(k.Str, name) {
			value = v.String()
			return false
		}
		return true
	})
	return value
}

// Denial says whether the fault is about an anchor: the upstream does not know
// the previous response, and so it did not run the request.
func (f Fault) Denial() bool {
	if f.Code == "previous_response_not_found" {
		return true
	}
	if f.Type != "invalid_request_error" && f.Code != "invalid_request_error" {
		return false
	}
	message := strings.ToLower(f.Message)
	switch {
	case f.Param == "previous_response_id" && strings.Contains(message, "previous response") && strings.Contains(message, "not found"):
		return true
	case !f.ParamPresent || f.Param == "previous_response_id":
		return strings.TrimSuffix(f.Message, ".") == "Invalid `previous_response_id`"
	}
	return false
}

// MissingToolOutput says whether the fault is a broken pair of call and output.
func (f Fault) MissingToolOutput() bool {
	return strings.HasPrefix(f.Message, "No tool output found for ") || strings.HasPrefix(f.Message, "No tool call found for ")
}

// Auth says whether the account's credential was refused.
func (f Fault) Auth() bool {
	switch f.Code {
	case "invalid_api_key", "invalid_authentication", "token_invalidated", "token_expired", "account_deactivated":
		return true
	}
	return f.Status == http.StatusUnauthorized || f.Type == "authentication_error"
}

// Limit says whether the account is over a rate or a quota.
func (f Fault) Limit() bool {
	switch f.Code {
	case "rate_limit_exceeded", "usage_limit_reached", "insufficient_quota", "usage_not_included", "quota_exceeded":
		return true
	}
	return f.Status == http.StatusTooManyRequests
}

// Quota says whether waiting a little will not help: the plan's window is full.
func (f Fault) Quota() bool {
	switch f.Code {
	case "usage_limit_reached", "insufficient_quota", "usage_not_included", "quota_exceeded":
		return true
	}
	return false
}

// Overloaded says whether the upstream did not take the request because it has
// too much to do, in words of its own.
func (f Fault) Overloaded() bool {
	return f.Code == "server_is_overloaded" || f.Code == "slow_down" ||
		strings.Contains(strings.ToLower(f.Message), "selected model is at capacity")
}

// ConnectionLimit says whether the connection is too old to take requests.
func (f Fault) ConnectionLimit() bool { return f.Code == "websocket_connection_limit_reached" }

// Server says whether the upstream itself failed.
func (f Fault) Server() bool { return f.Status >= http.StatusInternalServerError }

// SealedForeign says whether sealed content of another account was refused.
func (f Fault) SealedForeign() bool { return f.Code == "invalid_encrypted_content" }

// httpFault turns an HTTP answer that is no event stream into an error event,
// so that a session judges both transports alike. body is at most a few KiB.
func httpFault(status int, header http.Header, body []byte) Event {
	object := `{"type":"upstream_error","code":"upstream_protocol_error","message":` + strconv.Quote(describe(status, header)) + `}`
	if gjson.ValidBytes(body) {
		if e := gjson.GetBytes(body, "error"); e.IsObject() {
			object = e.Raw
		} else if gjson.ParseBytes(body).IsObject() && gjson.GetBytes(body, "message").Exists() {
			object = string(body)
		} else if d := gjson.GetBytes(body, "detail"); d.Type == gjson.String {
			object = `{"type":"upstream_error","code":"upstream_error","message":` + d.Raw + `}`
		}
	}
	if status < http.StatusBadRequest {
		status = http.StatusBadGateway // a success that is no answer
	}
	headers := map[string]string{}
	for _, name := range hintHeaders {
		if v := header.Get(name); v != "" {
			headers[strings.ToLower(name)] = v
		}
	}
	rawHeaders, err := json.Marshal(headers)
	if err != nil {
		rawHeaders = []byte("{}")
	}
	data := []byte(`{"type":"error","status":` + strconv.Itoa(status) + `,"error":` + object + `,"headers":` + string(rawHeaders) + `}`)
	return Own("error", data)
}

// describe says what came instead of an answer, without quoting the body.
func describe(status int, header http.Header) string {
	kind := header.Get("Content-Type")
	if kind == "" {
		kind = "no content type"
	}
	return "The upstream answered status " + strconv.Itoa(status) + " with " + strings.ToValidUTF8(kind, "?") + " instead of a response."
}

// hintHeaders say when to come back.
var hintHeaders = []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry",
	"X-Ratelimit-Reset-Requests", "X-Ratelimit-Reset-Tokens", "X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests"}
