package plan

import (
	"fmt"
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

const (
	// turnsFresh is how old a report may be whose turns still speak of now. While turns
	// fail, proxies write one a minute at least.
	turnsFresh = 2 * time.Minute
	// provenTurns is how many turns of the slot before have to end in a minute, nearly all
	// of them well, to prove that the upstream is not to blame.
	provenTurns = 5
)

// worse says whether the active slot fails turns by a fault of its revision: by what
// its proxies say is their own, or by what the slot before, which still finishes its
// streams, does not see. An upstream that fails both, or that nobody can compare,
// makes no revision worse.
func (r *rollout) worse() bool {
	now, before := r.turns(r.active), r.turns(r.other)
	switch {
	case !now.Failing():
		return false
	case 2*now.Internal >= now.Failed:
		return true
	}
	return before.Ended >= provenTurns && 10*before.Failed <= before.Ended
}

// turns are those of a slot's proxies since the active slot took over.
func (r *rollout) turns(s *slot) (sum v1alpha1.ReplicaTurns) {
	for _, p := range s.pods {
		if p.Replica == nil || p.Replica.Status.Turns == nil || p.Replica.Status.ReportedAt == nil {
			continue
		}
		at := p.Replica.Status.ReportedAt.Time
		if at.After(r.active.marks.PromotedAt) && r.now.Before(at.Add(turnsFresh)) {
			sum = sum.Plus(*p.Replica.Status.Turns)
		}
	}
	return sum
}

// comparison words what was found.
func (r *rollout) comparison() string {
	now, before := r.turns(r.active), r.turns(r.other)
	return fmt.Sprintf("%d of its %d turns failed in a minute, %d by its own fault; of slot %s %d of %d",
		now.Failed, now.Ended, now.Internal, r.other.name, before.Failed, before.Ended)
}
