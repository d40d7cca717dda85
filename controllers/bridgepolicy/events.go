package bridgepolicy

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// eventsOf lists what a human did or must do, from the change between two
// statuses. It is pure.
func eventsOf(w plan.World, p plan.Plan, after *v1alpha1.BridgePolicy, applyErr error) []notify.Event {
	before := w.Policy.Status.Conditions
	var list []notify.Event
	if applyErr == nil {
		list = append(created(w, p), rolloutEvents(p)...)
	}
	list = append(list, activationEvents(w.Policy.Status.Activation, p)...)
	for _, rule := range rules {
		was, is := conditions.Find(before, rule.condition), conditions.Find(after.Status.Conditions, rule.condition)
		if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
			continue
		}
		if event := rule.event(was, is); event.Reason != "" {
			event.Note = is.Message
			list = append(list, event)
		}
	}
	return append(list, circuitEvents(w.Policy.Status.Circuits, p.Reports)...)
}

// topicSessions is what the events about circuits of sessions are about, however
// many there are.
const topicSessions = "sessions"

// circuitEvents tells of the first retry circuit that opens and of the last one
// that closes. Circuits of whole routes have a condition of their own.
func circuitEvents(before *v1alpha1.CircuitSummary, m reports.Merged) []notify.Event {
	var was int32
	if before != nil {
		was = before.Open + before.HalfOpen - routes(before.Top)
	}
	is := m.Open + m.HalfOpen - routes(m.Circuits)
	switch {
	case was == 0 && is > 0:
		return []notify.Event{{Reason: v1alpha1.EventCircuitOpened, Action: v1alpha1.ActionReconcile, Topic: topicSessions,
			Note: fmt.Sprintf("%d retry circuits of sessions are not closed; status.circuits.top says which, why and until when", is)}}
	case was > 0 && is == 0 && m.Fresh > 0 && m.Stale == 0:
		return []notify.Event{{Reason: v1alpha1.EventCircuitClosed, Action: v1alpha1.ActionReconcile, Topic: topicSessions,
			Note: "All retry circuits of sessions are closed"}}
	}
	return nil
}

// routes counts the circuits that are not of a session. They come first in a
// list and are few, so that none of them is among those that did not fit.
func routes(list []v1alpha1.CircuitState) (n int32) {
	for _, c := range list {
		if c.Scope != v1alpha1.CircuitScopeSession {
			n++
		}
	}
	return n
}

// rules turn changed conditions into events. was may be nil.
var rules = []struct {
	condition string
	event     func(was, is *metav1.Condition) notify.Event
}{
	{v1alpha1.ConditionAccepted, func(_, is *metav1.Condition) notify.Event {
		return warnIf(is.Status == metav1.ConditionFalse, v1alpha1.EventSpecNotAccepted, v1alpha1.ActionReconcile)
	}},
	{v1alpha1.ConditionResolvedRefs, func(_, is *metav1.Condition) notify.Event {
		return warnIf(is.Status == metav1.ConditionFalse, v1alpha1.EventRefsNotResolved, v1alpha1.ActionResolve)
	}},
	{v1alpha1.ConditionProgrammed, func(was, is *metav1.Condition) notify.Event {
		if is.Status == metav1.ConditionTrue && (was == nil || was.Status != metav1.ConditionTrue) {
			return notify.Event{Reason: v1alpha1.EventConfigProgrammed, Action: v1alpha1.ActionConfig}
		}
		refused := is.Reason == v1alpha1.ReasonConfigRejected || is.Reason == v1alpha1.ReasonVersionSkew
		return warnIf(refused, v1alpha1.EventConfigRejected, v1alpha1.ActionConfig)
	}},
	{v1alpha1.ConditionStalled, func(_, is *metav1.Condition) notify.Event {
		switch is.Reason {
		case v1alpha1.ReasonAdoptionRefused:
			return warnIf(true, v1alpha1.EventAdoptionRefused, v1alpha1.ActionReconcile)
		case v1alpha1.ReasonForbidden:
			return warnIf(true, v1alpha1.ReasonForbidden, v1alpha1.ActionReconcile)
		case v1alpha1.ReasonProgressDeadlineExceeded:
			return warnIf(true, v1alpha1.EventRolloutStalled, v1alpha1.ActionRollout)
		default:
			return notify.Event{} // told by another condition
		}
	}},
	{v1alpha1.ConditionUpstreamHealthy, func(was, is *metav1.Condition) notify.Event {
		if is.Reason == v1alpha1.ReasonCircuitOpen {
			return warnIf(true, v1alpha1.EventCircuitOpened, v1alpha1.ActionReconcile)
		}
		if was != nil && was.Reason == v1alpha1.ReasonCircuitOpen && is.Status == metav1.ConditionTrue {
			return notify.Event{Reason: v1alpha1.EventCircuitClosed, Action: v1alpha1.ActionReconcile}
		}
		return notify.Event{}
	}},
}

func warnIf(condition bool, reason, action string) notify.Event {
	if !condition {
		return notify.Event{}
	}
	return notify.Event{Warning: true, Reason: reason, Action: action}
}
