package session

import (
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

func TestJudgeAgain(t *testing.T) {
	for _, tc := range []struct {
		name         string
		state        store.TurnState
		complete     bool
		delivered    bool
		live, stored bool
		age          time.Duration
		want         Again
		wait         time.Duration
	}{
		{name: "it runs here", state: store.TurnSubmitted, live: true, want: AgainWait, wait: time.Second},
		{name: "Scenario 95: nothing was heard", state: store.TurnUnknown, age: 20 * time.Second, want: AgainWait, wait: 40 * time.Second},
		{name: "Scenario 47: it had begun", state: store.TurnAcknowledged, age: 59 * time.Second, want: AgainWait, wait: time.Second},
		{name: "Scenario 101: for good", state: store.TurnUnknown, age: 72 * time.Hour, want: AgainGone},
		{name: "for good, on a response that its account keeps", state: store.TurnUnknown, stored: true, age: time.Hour, want: AgainRun},
		{name: "Scenario 96: finished, and the client did not get it", state: store.TurnCompleted, complete: true, want: AgainReplay},
		{name: "finished, and the client got it", state: store.TurnCompleted, complete: true, delivered: true, want: AgainRun},
		{name: "Scenario 97: finished, and too long to keep", state: store.TurnCompleted, want: AgainGone},
		{name: "the same, on a response that its account keeps", state: store.TurnCompleted, stored: true, want: AgainRun},
		{name: "incomplete is an answer", state: store.TurnIncomplete, complete: true, want: AgainReplay},
		{name: "failed", state: store.TurnFailed, want: AgainRun},
		{name: "abandoned", state: store.TurnAbandoned, want: AgainRun},
	} {
		e := Earlier{Turn: store.Turn{State: tc.state, Complete: tc.complete, Delivered: tc.delivered}, Begun: t0.Add(-tc.age)}
		got, wait := JudgeAgain(e, tc.live, tc.stored, t0)
		if got != tc.want || wait != tc.wait {
			t.Errorf("%s: %v after %v, want %v after %v", tc.name, got, wait, tc.want, tc.wait)
		}
	}
}

// Outcome is total: nothing that may have run is forgotten, and nothing that
// did not is held.
func TestOutcomeIsTotal(t *testing.T) {
	everyAttempt(func(facts []Fact, _ TurnState) {
		e := Digest(facts)
		got := Outcome(e)
		last := e.Last.Kind
		switch {
		case got == "" && e.Dispatched && last != FactNotSent && last != FactDialFailed && last != FactRefused:
			t.Fatalf("%+v: forgotten", facts)
		case got == store.TurnCompleted && last != FactCompleted, got == store.TurnUnknown && e.Life:
			t.Fatalf("%+v: %v", facts, got)
		}
	})
}

// Two identical deltas are admitted before either is sent. The first is sent and
// cut: the second is the same request, and is not sent while its outcome is unknown.
func TestTheSameDeltaTwiceInTheQueueIsSentOnce(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		r := newReplica(t, shared, "one", "1", chatGPT)
		defer r.quit()
		r.anchored("t")
		holder := r.ask("t", toolOutput)
		first, second := r.ask("t", toolOutput+" "), r.ask("t", toolOutput+" ")
		before := r.sent()
		r.in(created("r1"), completed("r1"))
		holder.take()
		if r.sent() != before+1 {
			t.Fatalf("%d requests", r.sent()-before)
		}
		r.in(errReset)
		pass(time.Second)
		if code := first.code(); code != failure.StreamIncomplete {
			t.Fatal(code)
		}
		if code := second.code(); code != failure.OutcomeUnknown || r.sent() != before+1 {
			t.Fatalf("%q after %d requests", code, r.sent()-before)
		}
		pass(2 * time.Second)
		if r.inflight() != 0 || r.registry.Counts().Active != 0 {
			t.Fatal("something is left")
		}
	})
}
