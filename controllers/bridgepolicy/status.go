package bridgepolicy

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	s.Slots = slotsOf(p)
	s.Activation = activationOf(s.Activation, p.Rollout.Activation, now)
	s.Rollout = rolloutStatus(p.Rollout)
	s.History = historyOf(s.History, p.Rollout)
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
func slotsOf(p plan.Plan) []v1alpha1.SlotStatus {
	var list []v1alpha1.SlotStatus
	for _, slot := range p.Rollout.Slots {
		s := v1alpha1.SlotStatus{
			Name: slot.Name, Role: slot.Role, Revision: slot.Revision, Image: slot.Image,
			Replicas: slot.Replicas, Ready: slot.Ready, Sessions: p.Reports.SlotSessions[slot.Name],
		}
		if slot.Agree {
			s.ConfigHash = p.ConfigHash()
		}
		list = append(list, s)
	}
	return list
}

// activationOf says who has authority. Since is when its slot got it, as far as
// a status that was written before tells.
func activationOf(before *v1alpha1.ActivationStatus, a plan.Activation, now time.Time) *v1alpha1.ActivationStatus {
	if !a.Exists {
		return nil
	}
	after := &v1alpha1.ActivationStatus{Slot: a.Slot, Epoch: a.Epoch, Holder: a.Holder}
	switch {
	case a.Slot == "":
	case before != nil && before.Slot == a.Slot && before.Since != nil:
		after.Since = before.Since
	default:
		at := metav1.NewTime(now.Truncate(time.Second))
		after.Since = &at
	}
	return after
}

func rolloutStatus(r plan.Rollout) *v1alpha1.RolloutStatus {
	return &v1alpha1.RolloutStatus{
		Step: r.Step, CandidateRevision: r.Candidate, LastFailedRevision: r.Failed,
		StartedAt: timeOf(r.StartedAt), DeadlineAt: timeOf(r.DeadlineAt),
	}
}

func timeOf(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	t := metav1.NewTime(at)
	return &t
}

// historyOf adds the last promotion to those that were reported before. Nothing
// is decided by it.
func historyOf(before []v1alpha1.Promoted, r plan.Rollout) []v1alpha1.Promoted {
	if r.PromotedAt.IsZero() || len(before) > 0 && !before[0].PromotedAt.Time.Before(r.PromotedAt) {
		return before
	}
	latest := v1alpha1.Promoted{Revision: r.Slots[0].Revision, Image: r.Slots[0].Image, PromotedAt: metav1.NewTime(r.PromotedAt)}
	after := append([]v1alpha1.Promoted{latest}, before...)
	return after[:min(len(after), v1alpha1.MaxPromotions)]
}

// omitted counts the proxies whose numbers are in metrics only.
func omitted(policy *v1alpha1.BridgePolicy, fresh int32) int32 {
	if r := policy.Spec.Reporting; r != nil && r.Mode == v1alpha1.ReportingMetrics {
		return fresh
	}
	return 0
}

// wantedReplicas is what the active slot is scaled to; until it exists, what it
// will be.
func wantedReplicas(w plan.World, p plan.Plan) int32 {
	if d := w.Slots[p.Active]; p.Fleet.Autoscaled && d != nil && d.Spec.Replicas != nil {
		return *d.Spec.Replicas
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
