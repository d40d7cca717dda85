package telemetry

import (
	"testing"
	"time"
)

func TestRecentForgetsAfterAMinute(t *testing.T) {
	var r recent
	now := time.Date(2026, 3, 1, 12, 0, 1, 0, time.UTC)
	done := func(outcomes ...Outcome) {
		for _, o := range outcomes {
			r.add(now, o)
		}
	}
	want := func(w Turns) {
		t.Helper()
		if got := r.sum(now); got != w {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
	want(Turns{})
	done(OutcomeOK, OutcomeOK, OutcomeTimeout, OutcomeInternal, OutcomeUpstreamError)
	done(OutcomeCallerError, OutcomeUnauthorized, OutcomeRefused, OutcomeLimited, OutcomeCallerGone)
	want(Turns{Ended: 5, Failed: 3, Internal: 1})
	now = now.Add(30 * time.Second)
	done(OutcomeOK)
	want(Turns{Ended: 6, Failed: 3, Internal: 1})
	now = now.Add(31 * time.Second)
	want(Turns{Ended: 1})
	now = now.Add(10 * time.Minute)
	want(Turns{})
}

func TestRecentCountsTurns(t *testing.T) {
	m := NewMetrics("test")
	m.RequestDone(RouteModels, TransportHTTP, OutcomeUpstreamError, time.Second) // is no turn
	m.RequestDone(RouteCodexResponses, TransportWebSocket, OutcomeOK, time.Second)
	m.RequestDone(RouteResponses, TransportSSE, OutcomeConnect, time.Second)
	if got := m.Recent(); got != (Turns{Ended: 2, Failed: 1}) {
		t.Errorf("%+v", got)
	}
}
