package bridge

import (
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// observer turns what sessions tell into metrics.
type observer struct{ metrics *telemetry.Metrics }

func (o observer) AttemptDone(t session.Transport, row string) {
	outcome := outcomeOfRow(row)
	o.metrics.AttemptDone(transportOf(t), outcome)
	if outcome == telemetry.OutcomeTruncated || row == "idle" {
		o.metrics.Truncated()
	}
}

func (o observer) RequestSent(_ session.Transport, bytes int64) {
	o.metrics.UpstreamBytes(telemetry.Sent, int(bytes))
}

func (o observer) Unmatched() { o.metrics.Unmatched() }

func (o observer) Struck(class session.StrikeClass) {
	o.metrics.Strike(map[session.StrikeClass]telemetry.StrikeClass{
		session.StrikeCleanClose: telemetry.StrikeCleanClose,
		session.StrikeIncomplete: telemetry.StrikeIncomplete,
		session.StrikeSilence:    telemetry.StrikeIdleTimeout,
	}[class])
}

func (o observer) Suppressed(reason string) { o.metrics.Suppressed(telemetry.SuppressionOf(reason)) }

func (o observer) Probed(outcome string) {
	if outcome != "taken" {
		o.metrics.Probe(telemetry.ProbeOutcomeOf(outcome))
	}
}

func (o observer) AnchorRetired(cause session.AnchorCause) {
	if c, failed := retireCauses[cause]; failed {
		o.metrics.AnchorRetired(c)
	}
}

// retireCauses leaves out what is no failure of the anchor: it went with its
// socket or its account.
var retireCauses = map[session.AnchorCause]telemetry.RetireCause{
	session.CauseDenied: telemetry.RetiredDenied, session.CauseWedged: telemetry.RetiredWedged,
	session.CauseEventless: telemetry.RetiredEventless, session.CauseOpened: telemetry.RetiredCircuitOpened,
	session.CauseConfirmed: telemetry.RetiredFailedAgain,
}

func (o observer) Replayed(proof string) { o.metrics.Replayed(telemetry.ProofOf(proof)) }

func (o observer) Fenced() { o.metrics.FencedWrite() }

func (o observer) StoreFailed(request string) { o.metrics.StoreFailed(telemetry.StoreOpOf(request)) }

func transportOf(t session.Transport) telemetry.Transport {
	if t == session.WebSocket {
		return telemetry.TransportWebSocket
	}
	return telemetry.TransportHTTP
}

var rowOutcomes = map[string]telemetry.Outcome{
	"completed": telemetry.OutcomeOK, "prewarm": telemetry.OutcomeOK, "incomplete": telemetry.OutcomeOK,
	"client_gone": telemetry.OutcomeCallerGone, "overloaded": telemetry.OutcomeUpstreamError,
	"not_sent": telemetry.OutcomeConnect, "no_websocket": telemetry.OutcomeConnect,
	"account_fault": telemetry.OutcomeLimited, "refused": telemetry.OutcomeUpstreamError,
	"cut": telemetry.OutcomeTruncated, "cut_eventless": telemetry.OutcomeTruncated, "clean_close": telemetry.OutcomeTruncated,
	"wedged": telemetry.OutcomeTruncated, "closed_here": telemetry.OutcomeTruncated,
	"liveness": telemetry.OutcomeTruncated, "garbage": telemetry.OutcomeTruncated,
	"idle": telemetry.OutcomeTimeout, "silent": telemetry.OutcomeTimeout, "budget": telemetry.OutcomeTimeout,
	"local": telemetry.OutcomeInternal,
}

func outcomeOfRow(row string) telemetry.Outcome {
	if o, ok := rowOutcomes[row]; ok {
		return o
	}
	return telemetry.OutcomeUpstreamError
}
