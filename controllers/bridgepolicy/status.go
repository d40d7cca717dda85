package bridgepolicy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
)

// statusOf returns the policy with the status that world and plan amount to.
// It is pure.
func statusOf(w plan.World, p plan.Plan, applyErr error, now time.Time) *v1alpha1.BridgePolicy {
	policy := w.Policy.DeepCopy()
	s := &policy.Status
	m := p.Reports
	slot := effective.Slot{Fleet: p.Fleet, Slot: p.Active}
	pods := podsOf(w, p.Active)
	wanted, ready := wantedReplicas(w, p), readyPods(w, p.Active)

	s.Conditions = conditionsOf(w, p, applyErr, now)
	s.ObservedGeneration = policy.Generation
	s.EffectiveHash = effective.PolicyHash(policy, p.Fleet)
	s.ConfigHash = p.ConfigHash()
	s.ActiveSlot = p.Active
	s.Slots = slotsOf(w, p, wanted, ready)
	s.Sessions = &v1alpha1.SessionTotals{
		Active: m.Sessions.Active, Draining: m.Sessions.Draining, Quarantined: m.Sessions.Quarantined,
	}
	s.Circuits = &v1alpha1.CircuitSummary{
		Open: m.Open, HalfOpen: m.HalfOpen, Top: m.Circuits[:min(len(m.Circuits), v1alpha1.MaxTopCircuits)],
	}
	s.Reports = &v1alpha1.ReportTotals{Fresh: m.Fresh, Stale: m.Stale, Omitted: omitted(policy, m.Fresh)}
	s.ReplicaSummary = fmt.Sprintf("%d/%d", ready, wanted)
	s.Replicas = &pods
	s.Selector = labels.SelectorFromSet(slot.Selector()).String()
	return policy
}

// slotsOf lists the slots that exist.
func slotsOf(w plan.World, p plan.Plan, wanted, ready int32) []v1alpha1.SlotStatus {
	if w.Deployment == nil {
		return nil
	}
	slot := v1alpha1.SlotStatus{
		Name: p.Active, Role: v1alpha1.SlotRoleActive,
		Revision: w.Deployment.Annotations[v1alpha1.AnnotationRevision],
		Replicas: wanted, Ready: ready,
		Sessions: p.Reports.SlotSessions[p.Active],
	}
	for _, c := range w.Deployment.Spec.Template.Spec.Containers[:min(1, len(w.Deployment.Spec.Template.Spec.Containers))] {
		slot.Image = c.Image
	}
	if p.Programmed.Reason == v1alpha1.ReasonConfigAcknowledged && p.Programmed.Until.IsZero() {
		slot.ConfigHash = p.ConfigHash()
	}
	return []v1alpha1.SlotStatus{slot}
}

// omitted counts the proxies whose numbers are in metrics only.
func omitted(policy *v1alpha1.BridgePolicy, fresh int32) int32 {
	if r := policy.Spec.Reporting; r != nil && r.Mode == v1alpha1.ReportingMetrics {
		return fresh
	}
	return 0
}

// wantedReplicas is what the slot is scaled to; until it exists, what it will be.
func wantedReplicas(w plan.World, p plan.Plan) int32 {
	if p.Fleet.Autoscaled && w.Deployment != nil && w.Deployment.Spec.Replicas != nil {
		return *w.Deployment.Spec.Replicas
	}
	return p.Fleet.Replicas
}

func podsOf(w plan.World, slot v1alpha1.SlotName) (n int32) {
	for _, r := range w.Reports {
		if r.Slot() == slot {
			n++
		}
	}
	return n
}

func readyPods(w plan.World, slot v1alpha1.SlotName) (n int32) {
	for _, r := range w.Reports {
		if r.Slot() == slot && r.Ready() {
			n++
		}
	}
	return n
}
