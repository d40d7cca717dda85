package plan

import (
	"fmt"
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// Rollout is what a status says about the slots.
type Rollout struct {
	Step v1alpha1.RolloutStep
	// Candidate is the revision that shall take over, empty when there is none.
	Candidate             string
	StartedAt, DeadlineAt time.Time
	// Waiting says that a change waits for the other slot to drain.
	Waiting bool
	// Failed is a revision that is not tried again, and FailedReason why.
	Failed, FailedReason string
	UpToDate             Verdict
	Activation           Activation
	// Slots that exist, the active one first.
	Slots []SlotFacts
	// Told is what the rollout came to in this plan.
	Told []Transition
	// PromotedAt is when the active slot became active, as it is stored.
	PromotedAt time.Time
}

// ByUser says whether a human decided that the failed revision is not tried again.
func (r Rollout) ByUser() bool {
	return r.FailedReason == failedAborted || r.FailedReason == failedRollback
}

// SlotFacts are about one slot.
type SlotFacts struct {
	Name            v1alpha1.SlotName
	Role            v1alpha1.SlotRole
	Revision, Image string
	Replicas, Ready int32
	// Agree says that all its ready proxies serve the wanted configuration.
	Agree bool
}

// Activation is what the Lease says.
type Activation struct {
	Exists  bool
	Slot    v1alpha1.SlotName
	Holder  string
	Epoch   int64
	Verdict Verdict
}

// report says how far the rollout is. paused says that nothing is done about it.
func (r *rollout) report(paused bool) Rollout {
	out := Rollout{
		Waiting: r.waiting, Told: r.told, PromotedAt: r.active.noted.PromotedAt,
		Activation: r.activation(),
	}
	out.Step, out.StartedAt, out.DeadlineAt = r.where()
	if r.other.candidate() {
		out.Candidate = r.other.revision
	} else if r.waiting {
		out.Candidate = r.target()
	}
	for _, s := range []*slot{r.other, r.active} {
		if s.marks.Failed != "" {
			out.Failed, out.FailedReason = s.marks.Failed, s.marks.FailedReason
		}
	}
	out.UpToDate = r.upToDate(paused, out)
	for _, s := range []*slot{r.active, r.other} {
		if s.exists {
			out.Slots = append(out.Slots, SlotFacts{Name: s.name, Role: r.role(s), Revision: s.revision, Image: s.image,
				Replicas: s.replicas, Ready: s.ready(), Agree: r.agree(s)})
		}
	}
	return out
}

// where is the step, when it began and when it is given up.
func (r *rollout) where() (step v1alpha1.RolloutStep, since, deadline time.Time) {
	m, progress := r.other.marks, seconds(r.settings.ProgressSeconds)
	switch o := r.other; {
	case o.handingOver():
		return v1alpha1.StepHandover, m.HandoverAt, m.HandoverAt.Add(progress)
	case o.candidate() && !m.ReadyAt.IsZero():
		return v1alpha1.StepGate, m.ReadyAt, time.Time{}
	case o.candidate():
		if _, ready := r.candidateReady(); ready {
			return v1alpha1.StepReady, m.StartedAt, time.Time{}
		}
		return v1alpha1.StepPreparing, m.StartedAt, m.StartedAt.Add(progress)
	case r.switching():
		since := r.active.marks.PromotedAt
		return v1alpha1.StepSwitching, since, since.Add(seconds(r.settings.OverlapSeconds) + switchLimit)
	case !o.live() || !m.EmptiedAt.IsZero() || m.DrainingAt.IsZero():
		return v1alpha1.StepIdle, time.Time{}, time.Time{}
	case m.DrainedAt.IsZero():
		return v1alpha1.StepDraining, m.DrainingAt, m.DrainingAt.Add(seconds(r.settings.DrainDeadline))
	default:
		return v1alpha1.StepRetained, m.DrainedAt, m.DrainedAt.Add(seconds(r.settings.RetainSeconds))
	}
}

func (r *rollout) role(s *slot) v1alpha1.SlotRole {
	if s == r.active {
		return v1alpha1.SlotRoleActive
	}
	switch step, _, _ := r.where(); step {
	case v1alpha1.StepPreparing, v1alpha1.StepReady, v1alpha1.StepGate, v1alpha1.StepHandover:
		return v1alpha1.SlotRoleCandidate
	case v1alpha1.StepSwitching, v1alpha1.StepDraining:
		return v1alpha1.SlotRoleDraining
	case v1alpha1.StepRetained:
		return v1alpha1.SlotRoleRetained
	default:
		return v1alpha1.SlotRoleIdle
	}
}

func (r *rollout) agree(s *slot) bool {
	agree := false
	for _, p := range s.pods {
		if p.Ready() {
			if !r.acknowledged(p) {
				return false
			}
			agree = true
		}
	}
	return agree
}

// failures word why a revision is not tried again.
var failures = map[string]string{
	failedDeadline: "did not become ready in time",
	failedHandover: "did not take over in time",
	failedAborted:  "was aborted",
	failedRollback: "was rolled back",
	failedTurns:    "failed turns that the revision before did not",
}

// upToDate says whether the active slot is what the spec wants.
func (r *rollout) upToDate(paused bool, out Rollout) Verdict {
	a := r.active
	no := func(reason, message string) Verdict { return Verdict{Reason: reason, Message: message} }
	switch {
	case !a.exists:
		return no(v1alpha1.ReasonRolloutInProgress, "The slot does not exist yet.")
	case out.Failed == r.fleet.Revision && a.revision != r.fleet.Revision:
		return no(v1alpha1.ReasonRolloutFailed,
			fmt.Sprintf("Revision %s %s and is not tried again until the spec changes.", out.Failed, failures[out.FailedReason]))
	case a.revision != r.fleet.Revision && paused:
		return no(v1alpha1.ReasonPaused, "The spec has moved on while spec.management is Paused.")
	case out.Step == v1alpha1.StepGate && r.gated():
		return no(v1alpha1.ReasonPromotionPending, fmt.Sprintf(
			"Revision %s is ready and waits for the annotation %s=%s.", out.Candidate, v1alpha1.AnnotationPromote, out.Candidate))
	case r.waiting:
		return no(v1alpha1.ReasonRolloutInProgress, fmt.Sprintf(
			"Revision %s waits until slot %s has drained; %s=%s cuts that short.",
			out.Candidate, r.other.name, v1alpha1.AnnotationCutDrain, r.other.revision))
	case r.other.candidate():
		return no(v1alpha1.ReasonRolloutInProgress, fmt.Sprintf("Revision %s is on its way to take over.", out.Candidate))
	case a.revision != r.fleet.Revision:
		return no(v1alpha1.ReasonRolloutInProgress, "The slot does not have the wanted revision yet.")
	default:
		return Verdict{OK: true, Reason: v1alpha1.ReasonActiveSlotIsWanted, Message: "The active slot has the wanted revision."}
	}
}

// handoverGrace is how long a hand-over may take before it is worth a word: turns
// are held meanwhile.
const handoverGrace = 10 * time.Second

// activation says whether the active slot has authority.
func (r *rollout) activation() Activation {
	a, l := r.active, r.lease
	out := Activation{Exists: l.exists, Slot: v1alpha1.SlotName(l.holder.Slot), Holder: l.holder.Pod, Epoch: l.epoch}
	yes := func(reason, message string) Verdict { return Verdict{OK: true, Reason: reason, Message: message} }
	no := func(reason, message string) Verdict { return Verdict{Reason: reason, Message: message} }
	switch {
	case !r.blueGreen():
		out.Verdict = yes(v1alpha1.ReasonNotApplicable, "With spec.rollout.type RollingUpdate there is one slot and nothing to hand over.")
	case r.fleet.Replicas == 0 && !r.fleet.Autoscaled:
		out.Verdict = yes(v1alpha1.ReasonNotApplicable, "No proxy is wanted, so nobody has authority.")
	case l.foreign:
		out.Verdict = no(v1alpha1.ReasonFenceViolation, "Somebody else wrote the holder of the Lease; it is free once it is not renewed.")
	case l.exists && l.epoch < r.highestEpoch():
		out.Verdict = no(v1alpha1.ReasonFenceViolation, "The epoch of the Lease is lower than one that proxies have seen.")
	case r.other.handingOver() && !r.passed(r.other.marks.HandoverAt, handoverGrace):
		out.Verdict = yes(v1alpha1.ReasonSlotHoldsLease, "A hand-over is under way.")
	case r.other.handingOver():
		out.Verdict = no(v1alpha1.ReasonWaitingForRelease, fmt.Sprintf("Slot %s has not taken over from %s yet.", r.other.name, a.name))
	case l.holder.Slot == string(a.name):
		out.Verdict = yes(v1alpha1.ReasonSlotHoldsLease, "The active slot holds the Lease.")
	case l.holder.Slot == "" && r.unaware():
		out.Verdict = yes(v1alpha1.ReasonNotApplicable, "The proxies are of a version that takes no Lease.")
	default:
		out.Verdict = no(v1alpha1.ReasonNoHolder, "The active slot does not hold the Lease.")
	}
	return out
}

// unaware says whether proxies serve that know nothing of the Lease, of a version
// before it.
func (r *rollout) unaware() bool {
	for _, p := range r.active.pods {
		if s := p.Replica; p.Ready() && s != nil && s.Status.Role == v1alpha1.RoleServing && s.Status.Epoch == 0 {
			return true
		}
	}
	return false
}
