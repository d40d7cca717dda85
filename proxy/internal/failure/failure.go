// Package failure is the one place where an error becomes what a client sees:
// an HTTP status, a JSON body, a Retry-After, or the last event of a stream.
package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// MaxRetryAfter caps the hint; a longer wait is said in resets_at. 300 s is the
// longest that clients in the field still honour without giving up the session.
const MaxRetryAfter = 300 * time.Second

// Failure is an error on its way to a client. Its texts never hold credentials
// or raw upstream bodies; Upstream failures carry the upstream's error object
// verbatim in Raw, which was written for this client.
type Failure struct {
	Status  int
	Code    string
	Type    string
	Message string
	// Param names the field of the request at fault.
	Param string
	// Reason is the machine-readable cause behind Code, from a closed set.
	Reason string
	// RetryAfter is how long the timer that refuses still runs; 0 = no hint.
	RetryAfter time.Duration
	// ResetsAt is when a quota is full again; zero = unknown.
	ResetsAt time.Time
	// LimitScope is the limit that turned the request away: a lane ("http",
	// "media", …) or "account"; empty = none of them.
	LimitScope string
	// Dispatch is how far the request got; empty = not said.
	Dispatch string
	// DeadlineKind is the limit that ran out and DeadlineSource whose it was, in the
	// words of package deadline; empty = none ran out.
	DeadlineKind, DeadlineSource string
	// Raw is an upstream error object relayed as it came, or nil.
	Raw json.RawMessage
}

func (f *Failure) Error() string {
	if f.Reason != "" {
		return fmt.Sprintf("%s (%s): %s", f.Code, f.Reason, f.Message)
	}
	return f.Code + ": " + f.Message
}

// Option adjusts one Failure at the place where it is made.
type Option func(*Failure)

// Param names the request field at fault.
func Param(name string) Option { return func(f *Failure) { f.Param = name } }

// Reason adds the cause.
func Reason(reason string) Option { return func(f *Failure) { f.Reason = reason } }

// After says how long the timer that refuses still runs.
func After(d time.Duration) Option { return func(f *Failure) { f.RetryAfter = d } }

// ResetsAt says when a quota is full again.
func ResetsAt(t time.Time) Option { return func(f *Failure) { f.ResetsAt = t } }

// How far a request got. Of all but DispatchNone the outcome is unknown: whoever
// sends it again may repeat what it did.
const (
	// DispatchNone says that no byte of the request went to an upstream.
	DispatchNone = "none"
	// DispatchPartial, DispatchSent and DispatchAcked say that a part of it did, or
	// all, or that the upstream has begun to answer.
	DispatchPartial = "partial"
	DispatchSent    = "sent"
	DispatchAcked   = "acked"
)

// Dispatched says how far the request got.
func Dispatched(dispatch string) Option { return func(f *Failure) { f.Dispatch = dispatch } }

// Deadline names the limit that ran out and whose it was.
func Deadline(kind, source string) Option {
	return func(f *Failure) { f.DeadlineKind, f.DeadlineSource = kind, source }
}

// Scope names the limit that turned the request away, before any dispatch.
func Scope(limit string) Option {
	return func(f *Failure) { f.LimitScope, f.Dispatch = limit, DispatchNone }
}

// New makes a failure of the table's kind.
func New(code, message string, options ...Option) *Failure {
	k, known := kinds[code]
	if !known {
		k = kinds[UpstreamError]
	}
	f := &Failure{Status: k.status, Type: k.errorType, Code: code, Message: message, RetryAfter: k.retryAfter}
	for _, o := range options {
		o(f)
	}
	return f
}

// From returns err as a Failure; an error of another kind is our own fault and
// its text stays in the log.
func From(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return New(InternalError, "The proxy failed to serve this request.")
}

// retryAfter is the hint as sent, never shorter than the truth: whole seconds within
// [1 s, MaxRetryAfter], and then up to a tenth more, at most maxSpread, so that those
// who were refused together do not come back together. spread is from [0, 1). A
// request that may have been carried out is not asked for again.
func (f *Failure) retryAfter(spread float64) (time.Duration, bool) {
	if f.RetryAfter <= 0 || f.unknown() {
		return 0, false
	}
	d := min(time.Duration(math.Ceil(f.RetryAfter.Seconds()))*time.Second, MaxRetryAfter)
	return d + time.Duration(spread*float64(min(d/10, maxSpread))), true
}

// maxSpread bounds what is added to a hint.
const maxSpread = 5 * time.Second

// unknown says whether the request may have been carried out.
func (f *Failure) unknown() bool { return f.Dispatch != "" && f.Dispatch != DispatchNone }

// retry says whether sending the request again can do harm or good; empty = that
// is not known.
func (f *Failure) retry() string {
	switch {
	case f.unknown():
		return "unsafe"
	case f.Dispatch == DispatchNone && (f.Status >= http.StatusInternalServerError || f.Status == http.StatusRequestTimeout ||
		f.Status == http.StatusTooManyRequests):
		return "safe"
	case f.Type == typeInvalid && f.Status != http.StatusRequestTimeout:
		return "never" // the request is at fault and would be so again
	}
	return ""
}

// Headers of an error, for clients that know this proxy.
const (
	dispatchHeader = "X-Causeway-Dispatch"
	retryHeader    = "X-Causeway-Retry"
)

// object is the error object of both forms.
type object struct {
	Message         string `json:"message"`
	Type            string `json:"type"`
	Code            string `json:"code"`
	Param           string `json:"param,omitempty"`
	Reason          string `json:"reason,omitempty"`
	ResetsAt        int64  `json:"resets_at,omitempty"`
	ResetsInSeconds int64  `json:"resets_in_seconds,omitempty"`
	// Own holds what no other server says.
	Own own `json:"causeway,omitzero"`
}

type own struct {
	Dispatch       string `json:"dispatch,omitempty"`
	LimitScope     string `json:"limit_scope,omitempty"`
	DeadlineKind   string `json:"deadline_kind,omitempty"`
	DeadlineSource string `json:"deadline_source,omitempty"`
}

func (f *Failure) object(now time.Time) json.RawMessage {
	if len(f.Raw) > 0 {
		return f.Raw
	}
	o := object{Message: f.Message, Type: f.Type, Code: f.Code, Param: f.Param, Reason: f.Reason,
		Own: own{Dispatch: f.Dispatch, LimitScope: f.LimitScope, DeadlineKind: f.DeadlineKind, DeadlineSource: f.DeadlineSource}}
	if !f.ResetsAt.IsZero() {
		o.ResetsAt = f.ResetsAt.Unix()
		o.ResetsInSeconds = max(0, int64(math.Ceil(f.ResetsAt.Sub(now).Seconds())))
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return json.RawMessage(`{"message":"internal error","type":"server_error","code":"internal_error"}`)
	}
	return raw
}

// WriteHTTP answers a request whose head has not been sent.
func (f *Failure) WriteHTTP(w http.ResponseWriter) {
	f.writeHTTP(w, time.Now(), rand.Float64()) //nolint:gosec // spreads clients, guards nothing
}

func (f *Failure) writeHTTP(w http.ResponseWriter, now time.Time, spread float64) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	if wait, ok := f.retryAfter(spread); ok {
		h.Set("Retry-After", strconv.Itoa(int(wait.Seconds())))
		h.Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds(), 10))
	}
	if f.Dispatch != "" {
		h.Set(dispatchHeader, f.Dispatch)
	}
	if retry := f.retry(); retry != "" {
		h.Set(retryHeader, retry)
	}
	body := append([]byte(`{"error":`), f.object(now)...)
	body = append(body, '}', '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.Status)
	_, _ = w.Write(body)
}

// Event is the JSON of a response.failed event: the honest end of a stream
// that had begun. responseID is the id the client saw, or the request id.
// sequence continues the stream's own numbers; negative = none.
func (f *Failure) Event(responseID string, sequence int64, now time.Time) []byte {
	type response struct {
		ID        string          `json:"id"`
		Object    string          `json:"object"`
		CreatedAt int64           `json:"created_at"`
		Status    string          `json:"status"`
		Error     json.RawMessage `json:"error"`
		Output    []string        `json:"output"`
	}
	type event struct {
		Type     string   `json:"type"`
		Sequence *int64   `json:"sequence_number,omitempty"`
		Response response `json:"response"`
	}
	e := event{Type: "response.failed", Response: response{ID: responseID, Object: "response",
		CreatedAt: now.Unix(), Status: "failed", Error: f.object(now), Output: []string{}}}
	if sequence >= 0 {
		e.Sequence = &sequence
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return []byte(`{"type":"response.failed","response":{"status":"failed","error":{"code":"internal_error","message":"internal error"}}}`)
	}
	return raw
}
