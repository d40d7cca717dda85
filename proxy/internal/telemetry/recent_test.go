package telemetry

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRecentForgetsAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics("test")
		done := func(outcomes ...Outcome) {
			for _, o := range outcomes {
				m.RequestDone(RouteResponses, TransportSSE, o, time.Second)
			}
		}
		want := func(w Turns) {
			t.Helper()
			if got := m.Recent(); got != w {
				t.Errorf("%+v, want %+v", got, w)
			}
		}
		want(Turns{})
		done(OutcomeOK, OutcomeOK, OutcomeTimeout, OutcomeInternal, OutcomeUpstreamError)
		done(OutcomeCallerError, OutcomeUnauthorized, OutcomeRefused, OutcomeLimited, OutcomeCallerGone)
		m.RequestDone(RouteModels, TransportHTTP, OutcomeUpstreamError, time.Second) // is no turn
		want(Turns{Ended: 5, Failed: 3, Internal: 1})
		time.Sleep(30 * time.Second) // of the test's own time
		done(OutcomeOK)
		want(Turns{Ended: 6, Failed: 3, Internal: 1})
		time.Sleep(31 * time.Second)
		want(Turns{Ended: 1})
		time.Sleep(10 * time.Minute)
		want(Turns{})
	})
}
