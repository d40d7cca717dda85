package plan

import (
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// lease is what the activation Lease says.
type lease struct {
	exists  bool
	version string
	asked   v1alpha1.SlotName // next-holder
	holder  bundle.Holder
	foreign bool // somebody else wrote the holder
	epoch   int64
	madeAt  time.Time
}

func readLease(l *coordinationv1.Lease) lease {
	if l == nil {
		return lease{}
	}
	out := lease{exists: true, version: l.ResourceVersion, asked: v1alpha1.SlotName(l.Annotations[v1alpha1.AnnotationNextHolder])}
	out.epoch, _ = strconv.ParseInt(l.Annotations[v1alpha1.AnnotationEpoch], 10, 64) // what is no number is as good as 0
	out.madeAt = parseTime(l.Annotations[v1alpha1.AnnotationStartedAt])
	if id := l.Spec.HolderIdentity; id != nil {
		holder, ours := bundle.ParseHolder(*id)
		out.holder, out.foreign = holder, !ours
	}
	return out
}

// authorize makes sure that the Lease exists and asks for the right slot.
func (r *rollout) authorize() []Action {
	if !r.blueGreen() {
		return nil
	}
	next, o := r.active.name, r.other
	if o.handingOver() && (r.lease.asked == o.name || r.lease.holder.Slot == string(o.name) || r.settled()) {
		next = o.name
	}
	switch {
	case !r.lease.exists:
		if r.serves(o) > r.serves(r.active) {
			next = o.name // it was deleted in the middle of a hand-over
		}
		return []Action{CreateLease{r.fleet, next, r.highestEpoch(), r.settings.LeaseSeconds, formatTime(r.now)}}
	case r.lease.asked != next, r.forced:
		// Before a slot is forced, this makes sure that it still holds: the write is
		// refused unless the Lease is as it was seen.
		return []Action{RequestHandover{r.fleet, next, r.lease.version}}
	default:
		return nil
	}
}

// settled says whether a hand-over may begin. Whoever held a Lease that was deleted
// knows by the time at which the new one would have run out.
func (r *rollout) settled() bool {
	return r.lease.exists &&
		(r.lease.holder.Slot == string(r.active.name) || r.passed(r.lease.madeAt, seconds(r.settings.LeaseSeconds)))
}

// serves is the newest epoch in which a pod of the slot reports that it serves.
func (r *rollout) serves(s *slot) (epoch int64) {
	for _, p := range s.pods {
		if p.Replica != nil && p.Replica.Status.Role == v1alpha1.RoleServing {
			epoch = max(epoch, p.Replica.Status.Epoch)
		}
	}
	return epoch
}

// highestEpoch is the newest epoch that anybody knows. A Lease that is made
// anew begins there: an epoch never falls.
func (r *rollout) highestEpoch() (epoch int64) {
	for _, s := range r.slots {
		epoch = max(epoch, s.marks.Epoch)
		for _, p := range s.pods {
			if p.Replica != nil {
				epoch = max(epoch, p.Replica.Status.Epoch)
			}
		}
	}
	return epoch
}
