package bridgepolicy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
)

func after(d time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(d))
	return &t
}

// session is an open circuit; the higher n, the longer it stays.
func session(n int) v1alpha1.CircuitState {
	return v1alpha1.CircuitState{Scope: v1alpha1.CircuitScopeSession, Key: fmt.Sprintf("%012x", n), State: v1alpha1.CircuitOpen,
		Reason: "IdleTimeout", Until: after(time.Duration(n) * time.Minute)}
}

// reporting gives every pod a report with these circuits, shared out.
func reporting(circuits ...v1alpha1.CircuitState) func(*plan.World) {
	return func(w *plan.World) {
		for i := range w.Reports {
			w.Reports[i].Replica = &v1alpha1.BridgeReplica{Status: v1alpha1.BridgeReplicaStatus{
				ReportedAt: after(0), Sessions: &v1alpha1.ReplicaSessions{Active: 100, Draining: 10, Quarantined: 1},
			}}
		}
		for i, c := range circuits {
			s := &w.Reports[i%len(w.Reports)].Replica.Status
			s.Circuits = append(s.Circuits, c)
		}
	}
}

func TestStatusSumsUpSessionsAndCircuits(t *testing.T) {
	half := session(0)
	half.State, half.Until = v1alpha1.CircuitHalfOpen, nil
	w := world(reporting(session(1), session(5), session(2), half, session(7), session(4), session(3)))
	w.Reports[0].Replica.Status.CircuitsOmitted = 4
	got := statusOf(w, plan.Next(w, now), nil, now).Status
	if want := (v1alpha1.SessionTotals{Active: 200, Draining: 20, Quarantined: 2}); *got.Sessions != want {
		t.Errorf("sessions %+v, want %+v", *got.Sessions, want)
	}
	want := &v1alpha1.CircuitSummary{Open: 10, HalfOpen: 1,
		Top: []v1alpha1.CircuitState{session(7), session(5), session(4), session(3), session(2)}}
	if diff := cmp.Diff(want, got.Circuits); diff != "" {
		t.Error(diff)
	}
	// A circuit of one session says nothing about the upstream.
	if c := conditions.Find(got.Conditions, v1alpha1.ConditionUpstreamHealthy); c.Reason == v1alpha1.ReasonCircuitOpen {
		t.Errorf("%+v", c)
	}
	if c := conditions.Find(got.Conditions, v1alpha1.ConditionReady); c.Reason == v1alpha1.ReasonCircuitOpen {
		t.Errorf("%+v", c)
	}
}

func TestWhoIsGoneHasNoSessions(t *testing.T) {
	w := world(reporting(session(1), session(2)))
	w.Reports[1].Replica.Status.ReportedAt = after(-30 * time.Minute)
	got := statusOf(w, plan.Next(w, now), nil, now).Status
	if got.Sessions.Active != 100 || got.Circuits.Open != 1 || len(got.Circuits.Top) != 1 || got.Reports.Stale != 1 {
		t.Errorf("sessions %+v, circuits %+v, want those of the fresh report", got.Sessions, got.Circuits)
	}
	w.Reports = w.Reports[:1]
	if got = statusOf(w, plan.Next(w, now), nil, now).Status; got.Sessions.Active != 100 || got.Reports.Stale != 0 {
		t.Errorf("sessions %+v, want those of the pod that is left", got.Sessions)
	}
}

func TestCircuitsOfSessionsAreToldInOneEvent(t *testing.T) {
	told := func(w plan.World) (reasons []string) {
		p := plan.Next(w, now)
		for _, e := range eventsOf(w, p, statusOf(w, p, nil, now), nil) {
			if e.Reason == v1alpha1.EventCircuitOpened || e.Reason == v1alpha1.EventCircuitClosed {
				reasons = append(reasons, e.Reason)
				if e.Warning || e.Topic == "" || strings.Contains(e.Note, session(1).Key) {
					t.Errorf("an event that names a session, or is none of many: %+v", e)
				}
			}
		}
		return reasons
	}
	quiet, one, many := world(reporting()), world(reporting(session(1))), world(reporting(session(1), session(2), session(3)))
	settle := func(w plan.World, before plan.World) plan.World {
		w.Policy = statusOf(before, plan.Next(before, now), nil, now)
		return w
	}
	silent := world(reporting())
	silent.Reports[0].Replica.Status.ReportedAt = nil
	for name, tc := range map[string]struct {
		before, after plan.World
		want          []string
	}{
		"the first one opens":        {quiet, many, []string{v1alpha1.EventCircuitOpened}},
		"more of them open":          {one, many, nil},
		"some of them close":         {many, one, nil},
		"the last one closes":        {one, quiet, []string{v1alpha1.EventCircuitClosed}},
		"nothing changes":            {many, many, nil},
		"who had it does not report": {one, silent, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, told(settle(tc.after, tc.before))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnAnnotationThatCannotBeUsedIsAWarning(t *testing.T) {
	w := world(func(w *plan.World) {
		w.Policy.Spec.Clients = v1alpha1.Clients{KeysSecretRef: &v1alpha1.LocalObjectReference{Name: "clients"}}
		w.Policy.Spec.Replicas = new(int32)
		w.Policy.Annotations = map[string]string{v1alpha1.AnnotationResetCircuits: "right now, please"}
	})
	got := statusOf(w, plan.Next(w, now), nil, now).Status.Conditions
	c := conditions.Find(got, v1alpha1.ConditionWarning)
	if c == nil || c.Reason != v1alpha1.ReasonInvalidAnnotation || !strings.Contains(c.Message, v1alpha1.AnnotationResetCircuits) ||
		strings.Contains(c.Message, "please") {
		t.Errorf("got %+v, want a warning that names the annotation and not its value", c)
	}
	if a := conditions.Find(got, v1alpha1.ConditionAccepted); a.Status != metav1.ConditionTrue {
		t.Errorf("the policy is not accepted: %+v", a)
	}
}

func TestARouteIsNoSession(t *testing.T) {
	route := v1alpha1.CircuitState{Scope: v1alpha1.CircuitScopeRoute, Key: "ffffffffffff", Name: "chatgpt.com/codex-responses/http",
		State: v1alpha1.CircuitOpen, Until: after(time.Minute)}
	told := func(before, after plan.World) (events []string) {
		after.Policy = statusOf(before, plan.Next(before, now), nil, now)
		p := plan.Next(after, now)
		for _, e := range eventsOf(after, p, statusOf(after, p, nil, now), nil) {
			if e.Reason == v1alpha1.EventCircuitOpened || e.Reason == v1alpha1.EventCircuitClosed {
				events = append(events, e.Reason+" "+e.Topic+" "+e.Note)
			}
		}
		return events
	}
	quiet, onlyRoute, both := world(reporting()), world(reporting(route)), world(reporting(route, session(1)))
	if got := told(quiet, onlyRoute); len(got) != 1 || !strings.Contains(got[0], "whole route") {
		t.Errorf("a route opens: %q", got)
	}
	if got := told(onlyRoute, both); len(got) != 1 || !strings.Contains(got[0], "sessions 1 retry circuits") {
		t.Errorf("a session opens beside it: %q", got)
	}
	if got := told(both, onlyRoute); len(got) != 1 || !strings.Contains(got[0], "All retry circuits of sessions are closed") {
		t.Errorf("the session closes: %q", got)
	}
}
