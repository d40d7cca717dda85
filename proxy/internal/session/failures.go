package session

import (
	"net/http"
	"time"

	"github.com/tidwall/sjson"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// ends are the failures that a client is told where the upstream said nothing.
var ends = map[ClientResult]struct{ code, reason, message string }{
	DeliverAnchorGone: {failure.PreviousResponseNotFound, "anchor_dead",
		"Previous response not found: send the whole conversation again without previous_response_id."},
	DeliverDuplicate: {failure.StreamIncomplete, "duplicate_tool_call",
		"The model repeated a tool call that was made before this turn broke; it was not handed out twice."},
	DeliverMasked: {failure.StreamIncomplete, "anchor_dead",
		"The upstream lost the state of this conversation; send the request again."},
	DeliverCut: {failure.StreamIncomplete, "",
		"The upstream connection ended before the response did; its outcome is unknown."},
	DeliverSilence: {failure.EventlessTimeout, "first_event",
		"The upstream took the request and sent nothing in time; its outcome is unknown."},
	DeliverIdle: {failure.StreamIdleTimeout, "idle",
		"The upstream fell silent before the response ended; its outcome is unknown."},
	DeliverConnect: {failure.UpstreamConnect, "not_sent",
		"The upstream cannot be reached; the request was not sent."},
	DeliverBudget: {failure.StreamIdleTimeout, "request",
		"The request took longer than its deadline allows."},
	DeliverGarbage: {failure.UpstreamProtocol, "garbage",
		"The upstream sent something that is no response event; the outcome is unknown."},
	DeliverTooLarge: {failure.PayloadTooLarge, "upstream_frame",
		"The request is larger than the upstream reads: send less of the conversation, or smaller images."},
	DeliverLocal: {failure.Draining, "drain",
		"This proxy is going away; send the request again."},
}

// clientFailure is what a client is told of an attempt that was not recovered;
// nil where the upstream's own last event says it.
func clientFailure(f *flight, v Verdict, e Evidence, now time.Time) *failure.Failure {
	if v.Client == DeliverFault {
		if e.Last.Fault != nil {
			return faultFailure(e.Last.Fault, v.Kind, f.cooled, now)
		}
		return failure.New(failure.UpstreamError, "The upstream refused the request.")
	}
	end, ok := ends[v.Client]
	if !ok {
		return nil
	}
	if v.Client == DeliverCut {
		end.reason = cutReason(e)
	}
	options := []failure.Option{failure.Reason(end.reason)}
	switch v.Client {
	case DeliverAnchorGone, DeliverLocal, DeliverDuplicate, DeliverTooLarge:
	default:
		options = append(options, failure.Dispatched(dispatchWords[e.dispatch()]))
	}
	if !f.limit.At.IsZero() {
		options = append(options, failure.Deadline(string(f.limit.Kind), string(f.limit.Source)))
	}
	return failure.New(end.code, end.message, options...)
}

// dispatchWords say how far a request went, in the words of errors.
var dispatchWords = map[outcome.Certainty]string{
	outcome.DispatchNone: failure.DispatchNone, outcome.DispatchPartial: failure.DispatchPartial, outcome.DispatchSent: failure.DispatchSent,
	outcome.DispatchAcked: failure.DispatchAcked, outcome.DispatchTerminal: failure.DispatchAcked,
}

func cutReason(e Evidence) string {
	if e.Last.End != nil {
		return e.Last.End.Cause.String()
	}
	return upstream.CauseAbrupt.String()
}

// faultFailure maps an upstream's error. The error object is the client's own
// and is passed on as it came; the status and the hints are what clients need to
// do the right thing next.
func faultFailure(f *upstream.Fault, kind outcome.Kind, cooled, now time.Time) *failure.Failure {
	effect := kind.Effect()
	var options []failure.Option
	if until, hinted := account.ResetHint(f.Header, f.Raw, now); hinted {
		options = append(options, failure.After(until.Sub(now)), failure.ResetsAt(until))
	} else if cooled.After(now) {
		options = append(options, failure.After(cooled.Sub(now))) // how long the account is left alone
	}
	if effect.ClientCode == failure.UpstreamAuth {
		// 401 is for the client's own key alone; this one is the pool's.
		return failure.New(failure.UpstreamAuth, "The upstream rejected the credential of the account that served this request.", options...)
	}
	made := failure.New(codeFor(f, effect), f.Message, options...)
	if f.Code != "" {
		made.Code = f.Code
	}
	made.Type, made.Param, made.Raw = f.Type, f.Param, f.Raw
	if made.Status = effect.ClientStatus; made.Status == 0 {
		made.Status = statusFor(f)
	}
	if effect.Unknown {
		made.RetryAfter, made.ResetsAt = 0, time.Time{} // it may have run
	}
	if effect.Rewrite != "" {
		made.Code, made.Raw = effect.Rewrite, withCode(f.Raw, "code", effect.Rewrite)
	}
	return made
}

// withCode is a JSON object with another code at path; what cannot be changed is
// left out.
func withCode(object []byte, path, code string) []byte {
	if len(object) == 0 {
		return nil
	}
	changed, err := sjson.SetBytes(object, path, code)
	if err != nil {
		return nil
	}
	return changed
}

// forClient is the upstream's own response.failed as the client gets it: a code that
// would end a Codex session though the turn can be sent again is changed, its
// message is not.
func forClient(e upstream.Event, kind outcome.Kind) upstream.Event {
	rewrite := kind.Effect().Rewrite
	if e.Kind != upstream.KindFailed || rewrite == "" {
		return e
	}
	changed := withCode(e.Data, "response.error.code", rewrite)
	if changed == nil {
		return e
	}
	eventType := e.Type
	e.Release()
	return upstream.Own(eventType, changed)
}

// codeFor picks the row of the failure table that gives default hints.
func codeFor(f *upstream.Fault, effect outcome.Effect) string {
	switch {
	case effect.ClientCode != "":
		return effect.ClientCode
	case effect.Rewrite != "":
		return failure.UpstreamUnavailable
	case f.Code == failure.UpstreamProtocol:
		return failure.UpstreamProtocol
	case f.Status >= http.StatusBadRequest && f.Status < http.StatusInternalServerError, f.Type == "invalid_request_error":
		return failure.InvalidRequest
	}
	return failure.UpstreamError
}

// statusFor is the status of what the upstream judged itself. 413 makes Codex
// resend in full and change its transport, so that what is too large is a 400; a
// frame without a status gets the one of its code.
func statusFor(f *upstream.Fault) int {
	switch {
	case f.Status == http.StatusRequestEntityTooLarge:
		return http.StatusBadRequest
	case f.Status >= http.StatusBadRequest:
		return f.Status
	case f.Type == "invalid_request_error", f.Code == "invalid_request_error", f.Code == "context_length_exceeded":
		return http.StatusBadRequest
	}
	return http.StatusBadGateway
}
