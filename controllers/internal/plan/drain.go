package plan

import (
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// retire brings a slot that lost authority, or never had it, to its rest.
func (r *rollout) retire() bool {
	o := r.other
	switch {
	case !o.marks.EmptiedAt.IsZero():
		return false // its pods are on their way out
	case r.comeBack():
		return true
	case !o.served() && o.marks.DrainingAt.IsZero():
		return r.stray()
	case r.cut():
		o.marks.FollowedCut = o.revision
		return r.empty()
	case o.marks.DrainingAt.IsZero():
		return r.switched()
	case o.marks.DrainedAt.IsZero():
		return r.drain()
	default:
		return r.retain()
	}
}

// stray is a slot with pods that was never active: what is left of a rollout
// whose first note was lost, or that somebody scaled by hand.
func (r *rollout) stray() bool {
	o := r.other
	if !r.inPlace() && o.revision == r.target() && o.revision != r.active.revision {
		o.marks = o.marks.kept()
		o.marks.StartedAt = r.now
		return true
	}
	return r.empty()
}

// comeBack makes a slot that still runs the candidate when its revision is
// wanted again: by the spec, or by the wish of a user.
func (r *rollout) comeBack() bool {
	a, o := r.active, r.other
	switch {
	case r.rollbackWished():
		a.marks.Failed, a.marks.FailedReason = a.revision, failedRollback
	case r.mayGoBack() && r.worse():
		a.marks.Failed, a.marks.FailedReason = a.revision, failedTurns
		r.tell(v1alpha1.EventRolledBack, a, r.compare().String())
	}
	if r.inPlace() || !o.served() || o.replicas == 0 || o.revision == a.revision || r.target() != o.revision {
		return false
	}
	o.marks.StartedAt = r.now
	return true
}

// rollbackWished says whether the annotation names the slot that is kept for it.
// A wish that was followed means nothing any more, however long it stays.
func (r *rollout) rollbackWished() bool {
	a, o := r.active, r.other
	wish := r.wishes[v1alpha1.AnnotationRollbackTo]
	return wish != "" && wish == o.revision && r.mayGoBack() &&
		a.marks.FollowedRollback != wish && o.marks.FollowedRollback != wish
}

// mayGoBack says whether the slot before could take over again, and was not given up
// for good reasons.
func (r *rollout) mayGoBack() bool {
	a, o := r.active, r.other
	return o.revision != a.revision && o.served() && o.replicas > 0 && !r.inPlace() &&
		a.revision == r.fleet.Revision && !a.failed() && !o.failed()
}

// cut says whether the user wants the streams of the slot ended now. Nobody wants
// the last ready pods ended.
func (r *rollout) cut() bool {
	wish := r.wishes[v1alpha1.AnnotationCutDrain]
	return wish != "" && wish == r.other.revision && !r.switching() && r.active.ready() > 0 &&
		r.active.marks.FollowedCut != wish && r.other.marks.FollowedCut != wish
}

// switching says whether both slots shall get traffic.
func (r *rollout) switching() bool {
	o := r.other
	return o.live() && o.served() && !o.candidate() && o.marks.DrainingAt.IsZero() && o.marks.EmptiedAt.IsZero()
}

// switchLimit is how long a slot that took over may have no ready pod, beyond the
// overlap. The one before is still there and ready.
const switchLimit = time.Minute

// switched ends the overlap of the two slots, once the new one can take all.
func (r *rollout) switched() bool {
	a, o := r.active, r.other
	r.waiting = r.changeWaits()
	if !r.passed(a.marks.PromotedAt, seconds(r.settings.OverlapSeconds)) {
		return false
	}
	if a.ready() == 0 && o.ready() > 0 {
		if !r.blueGreen() || a.failed() || !r.passed(a.marks.PromotedAt, seconds(r.settings.OverlapSeconds)+switchLimit) {
			return false
		}
		if a.revision != r.fleet.Revision {
			return false // what comes next is not what failed
		}
		a.marks.Failed, a.marks.FailedReason = a.revision, failedDeadline
		return true
	}
	o.marks.DrainingAt = r.now
	r.tell(v1alpha1.EventDrainStarted, o, "")
	return true
}

// drain waits for the last stream of the slot.
func (r *rollout) drain() bool {
	o := r.other
	r.waiting = r.changeWaits()
	switch {
	case r.idle(o):
		r.tell(v1alpha1.EventDrainCompleted, o, "")
	case r.passed(o.marks.DrainingAt, seconds(r.settings.DrainDeadline)):
		r.tell(v1alpha1.EventDrainDeadlineReached, o, "")
	default:
		return false
	}
	o.marks.DrainedAt = r.now
	return true
}

// retain keeps the slot for a roll-back. Streams that began there since are not
// cut before the deadline either.
func (r *rollout) retain() bool {
	o := r.other
	if !r.idle(o) && !r.passed(o.marks.DrainingAt, seconds(r.settings.DrainDeadline)) {
		r.waiting = r.changeWaits()
		return false
	}
	if o.failed() || r.changeWaits() || r.passed(o.marks.DrainedAt, seconds(r.settings.RetainSeconds)) {
		return r.empty()
	}
	return false
}

// changeWaits says whether the slot is needed for another revision.
func (r *rollout) changeWaits() bool {
	target := r.target()
	return !r.inPlace() && target != r.active.revision && target != r.other.revision
}

func (r *rollout) empty() bool {
	o := r.other
	m := o.marks.kept()
	m.PromotedAt, m.DrainingAt, m.DrainedAt = o.marks.PromotedAt, o.marks.DrainingAt, o.marks.DrainedAt
	m.EmptiedAt = r.now
	o.marks = m
	return true
}

// idle says whether the slot is not needed: it has no authority and will get none,
// clients find another one, and every pod reports that it has nothing left to do.
func (r *rollout) idle(s *slot) bool {
	if r.blueGreen() && (r.lease.asked == s.name || r.lease.holder.Slot != string(r.active.name) && !r.unaware()) {
		return false
	}
	if r.active.ready() == 0 && s.ready() > 0 {
		return false
	}
	for _, p := range s.pods {
		if !r.quiet(p, s.marks.DrainingAt) {
			return false
		}
	}
	return true
}

// quiet judges one pod. A report that knows of the present epoch was written
// after authority was lost, whatever the clocks say; those of proxies that know
// of no epoch count from when they got no more traffic.
func (r *rollout) quiet(p reports.Report, since time.Time) bool {
	if p.Replica == nil || p.Replica.Status.ReportedAt == nil {
		return p.Ended()
	}
	s := p.Replica.Status
	if p.Ended() {
		return true
	}
	if s.Sessions != nil && s.Sessions.Active+s.Sessions.Draining > 0 || !r.now.Before(s.ReportedAt.Add(reports.StaleAfter)) {
		return false
	}
	if s.Role == v1alpha1.RoleStandby && s.Epoch > 0 && s.Epoch >= r.lease.epoch {
		return true
	}
	unaware := s.Epoch == 0 || !r.blueGreen()
	return unaware && s.Sessions != nil && !since.IsZero() && !s.ReportedAt.Time.Before(since)
}

// held says whether the pods of the other slot must not be evicted: their
// streams go on, and their time is not up.
func (r *rollout) held() bool {
	o := r.other
	lost := o.served() || !o.marks.DrainingAt.IsZero()
	done := !o.marks.DrainedAt.IsZero() || !o.marks.EmptiedAt.IsZero()
	if !o.live() || o.candidate() || !lost || done || r.idle(o) {
		return false
	}
	since := o.marks.DrainingAt
	if since.IsZero() {
		since = r.active.marks.PromotedAt
	}
	return !r.passed(since, seconds(r.settings.DrainDeadline))
}

// remindEvery is how often it is told that pods are kept from eviction.
const remindEvery = 30 * time.Minute

// remind tells now and then that a drain holds up whoever removes nodes.
func (r *rollout) remind() {
	since := r.other.marks.DrainingAt
	if since.IsZero() || !r.held() {
		return
	}
	gone := r.now.Sub(since)
	if gone >= remindEvery && gone%remindEvery < time.Minute {
		r.tell(v1alpha1.EventDrainBlocksEviction, r.other, "")
	}
	r.again = append(r.again, r.now.Add(remindEvery-gone%remindEvery))
}
