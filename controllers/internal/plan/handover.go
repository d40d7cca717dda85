package plan

import (
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

const (
	// reportGrace is how long a new holder may take to report that it serves; then
	// the Lease alone says so. Reports may be slow, and the API server may hold them up.
	reportGrace = 15 * time.Second
	// vacancyLimit is how long nobody may have authority. Until then turns are held
	// by the slot before, which takes authority back afterwards.
	vacancyLimit = 30 * time.Second
)

// handOver judges a hand-over under way: authority was asked for the other slot.
func (r *rollout) handOver() bool {
	a, o := r.active, r.other
	switch {
	case r.acquired():
		return r.promote()
	case !r.blueGreen():
		return r.takeBack("")
	case r.wishes[v1alpha1.AnnotationAbort] == o.revision:
		return r.takeBack(failedAborted)
	case r.holderLives(), r.lease.asked != o.name: // the latter when the Lease was made anew
		return r.unreleased()
	case o.marks.VacantAt.IsZero():
		o.marks.VacantAt = r.now
		return true
	}
	r.forced = a.replicas == 0 // it is not brought back before the other one has had its time
	limit := vacancyLimit
	if r.lease.holder.Slot == string(a.name) {
		limit += seconds(r.settings.LeaseSeconds) // its captain is gone; the Lease runs out first
	}
	return r.passed(o.marks.VacantAt, limit) && r.takeBack(failedHandover)
}

// holderLives says whether the active slot holds, by a pod that is still there.
func (r *rollout) holderLives() bool {
	h := r.lease.holder
	if h.Slot != string(r.active.name) {
		return false
	}
	for _, p := range r.active.pods {
		if h.UID == string(p.Pod.UID) {
			return true
		}
	}
	return h.Pod == "" && r.active.ready() > 0
}

// unreleased waits for the active slot to let go. One that does not is scaled to
// zero, which is the only way to stop a live holder.
func (r *rollout) unreleased() bool {
	m := &r.other.marks
	if !m.VacantAt.IsZero() {
		m.VacantAt = time.Time{} // it took authority again
		return true
	}
	if r.passed(m.HandoverAt, seconds(r.settings.ProgressSeconds)) {
		return r.takeBack(failedHandover)
	}
	r.forced = r.holderLives() && r.passed(m.HandoverAt, seconds(r.settings.ForceAfterSeconds)) && r.other.ready() > 0
	return false
}

// acquired says whether the other slot has authority and uses it.
func (r *rollout) acquired() bool {
	o := r.other
	if r.lease.holder.Slot != string(o.name) {
		return false
	}
	denies := false
	for _, p := range o.pods {
		if p.Replica == nil || p.Replica.Status.Epoch < r.lease.epoch {
			continue // it does not know yet
		}
		if p.Replica.Status.Role == v1alpha1.RoleServing {
			return true
		}
		denies = true
	}
	return !denies && r.passed(o.marks.HandoverAt, reportGrace)
}

// promote makes the other slot the active one. Promotions are ordered by their
// times, whatever the clocks of two operators say.
func (r *rollout) promote() bool {
	a, o := r.active, r.other
	at := r.now
	if !at.After(a.marks.PromotedAt) {
		at = a.marks.PromotedAt.Add(time.Second)
	}
	m := o.marks.kept()
	m.PromotedAt = at
	if r.wishes[v1alpha1.AnnotationRollbackTo] == o.revision && o.served() {
		m.FollowedRollback = o.revision
	}
	o.marks = m
	r.tell(v1alpha1.EventPromoted, o, "")
	r.active, r.other = o, a
	return true
}

// takeBack gives authority back to the active slot. The other one may have had
// it for a moment, so that it drains.
func (r *rollout) takeBack(reason string) bool {
	o := r.other
	m := o.marks.kept()
	if reason != "" {
		m.Failed, m.FailedReason = o.revision, reason
	}
	m.PromotedAt = o.marks.PromotedAt
	m.DrainingAt = r.now
	if o.served() {
		r.unwanted(&m)
	}
	o.marks = m
	if reason == failedAborted {
		r.tell(v1alpha1.EventRolloutAborted, o, "")
	}
	return true
}
