package plan

import (
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// maxTransitions is more than one plan can come to: from a look at a ready
// candidate to the drain of the slot before.
const maxTransitions = 12

// advance makes every transition that is due. One that is made is a mark that is
// written before anything that follows from it is done.
func (r *rollout) advance() {
	r.forget()
	for range maxTransitions {
		r.again, r.forced, r.waiting = nil, false, false
		if !r.step() {
			return
		}
	}
}

// step makes one transition; false = there is none to make.
func (r *rollout) step() bool {
	if r.firstPromotion() || r.editInPlace() {
		return true
	}
	switch o := r.other; {
	case o.handingOver():
		return r.handOver()
	case o.candidate():
		return r.prepare()
	case o.live():
		return r.retire()
	default:
		return r.begin()
	}
}

// forget drops marks that mean nothing any more.
func (r *rollout) forget() {
	for _, s := range r.slots {
		m := &s.marks
		if m.Failed != r.fleet.Revision {
			m.Failed, m.FailedReason = "", "" // the user has moved on
		}
		if m.FollowedRollback != r.wishes[v1alpha1.AnnotationRollbackTo] {
			m.FollowedRollback = ""
		}
		if m.FollowedCut != r.wishes[v1alpha1.AnnotationCutDrain] {
			m.FollowedCut = ""
		}
	}
	if o := r.other; r.active.failed() && (!o.live() || !o.served() || !o.marks.EmptiedAt.IsZero()) {
		r.active.marks.Failed, r.active.marks.FailedReason = "", "" // there is nothing to go back to
	}
	m := &r.active.marks
	m.Epoch = max(m.Epoch, r.lease.epoch)
	m.StartedAt, m.ReadyAt, m.HandoverAt, m.VacantAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	m.DrainingAt, m.DrainedAt, m.EmptiedAt = time.Time{}, time.Time{}, time.Time{}
}

// firstPromotion notes that the first slot serves; from then on it is not edited
// in place. Slots of a release that knew no marks are promoted this way, too.
func (r *rollout) firstPromotion() bool {
	if a := r.active; a.served() || !a.exists || a.ready() == 0 {
		return false
	}
	r.active.marks.PromotedAt = r.now
	return true
}

func (r *rollout) editInPlace() bool {
	a, want := r.active, r.fleet.Revision
	if !r.inPlace() || a.revision == want || a.exists && r.target() != want {
		return false
	}
	a.revision, a.render = want, true
	return true
}

// begin makes the empty slot the candidate, if a change waits for one.
func (r *rollout) begin() bool {
	o := r.other
	target := r.target()
	if r.inPlace() || target == r.active.revision {
		return r.rest()
	}
	o.marks = o.marks.kept()
	o.marks.StartedAt = r.now
	o.revision, o.render = target, true
	return true
}

// rest drops the marks of a slot that has nothing left to do.
func (r *rollout) rest() bool {
	o := r.other
	if o.marks == o.marks.kept() {
		return false
	}
	o.marks = o.marks.kept()
	return true
}

// prepare brings a candidate to the point where it can take over.
func (r *rollout) prepare() bool {
	o, target := r.other, r.target()
	switch {
	case r.inPlace() || target == r.active.revision:
		return r.giveUp("") // the change was taken back
	case r.wishes[v1alpha1.AnnotationAbort] == o.revision:
		return r.giveUp(failedAborted)
	case target != o.revision && o.served():
		return r.giveUp("") // it was on its way back, which nobody wants any more
	case target != o.revision:
		o.marks.StartedAt, o.marks.ReadyAt = r.now, time.Time{}
		o.revision, o.render = target, true
		return true
	}
	since, ready := r.candidateReady()
	switch {
	case !ready && !o.marks.ReadyAt.IsZero():
		// It was ready once: it has its time again, not what is left of it.
		o.marks.StartedAt, o.marks.ReadyAt = r.now, time.Time{}
		return true
	case !ready:
		return r.passed(o.marks.StartedAt, seconds(r.settings.ProgressSeconds)) && r.giveUp(failedDeadline)
	case o.served():
		return r.ask() // somebody wants it back
	case !r.passed(since, seconds(r.settings.ReadySeconds)):
		return false
	case r.gated():
		if !o.marks.ReadyAt.IsZero() {
			return false
		}
		o.marks.ReadyAt = r.now
		r.tell(v1alpha1.EventCandidateReady, o, "")
		r.tell(v1alpha1.EventPromotionPending, o, "")
		return true
	}
	return r.ask()
}

func (r *rollout) gated() bool {
	return r.settings.Promotion == v1alpha1.PromotionManual && r.wishes[v1alpha1.AnnotationPromote] != r.other.revision
}

// ask begins the hand-over.
func (r *rollout) ask() bool {
	if !r.settled() {
		return false
	}
	if o := r.other; !o.served() && o.marks.ReadyAt.IsZero() {
		r.tell(v1alpha1.EventCandidateReady, o, "")
	}
	r.other.marks.HandoverAt = r.now
	r.tell(v1alpha1.EventActivationRequested, r.other, "")
	return true
}

// giveUp ends the way of a candidate that never had authority. One that had it
// before goes on draining.
func (r *rollout) giveUp(reason string) bool {
	o := r.other
	m := o.marks.kept()
	if reason != "" {
		m.Failed, m.FailedReason = o.revision, reason
	}
	switch reason {
	case failedAborted:
		r.tell(v1alpha1.EventRolloutAborted, o, "")
	case "":
		r.tell(v1alpha1.EventRolloutAborted, o, "nobody wants it any more")
	}
	if o.served() {
		m.PromotedAt, m.DrainingAt = o.marks.PromotedAt, o.marks.DrainingAt
		m.DrainedAt = o.marks.DrainedAt
		r.unwanted(&m)
	} else {
		m.EmptiedAt = r.now
	}
	o.marks = m
	return true
}

// unwanted notes that a wish to go back was tried: it is not tried for ever.
func (r *rollout) unwanted(m *Marks) {
	if r.wishes[v1alpha1.AnnotationRollbackTo] == r.other.revision {
		m.FollowedRollback = r.other.revision
	}
	if r.active.marks.FailedReason == failedRollback || r.active.failed() {
		r.active.marks.Failed, r.active.marks.FailedReason = "", ""
	}
}
