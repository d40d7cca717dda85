package plan

import (
	"fmt"
	"time"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

const (
	// turnsFresh is how old a report may be whose turns still speak of now. While turns
	// fail, proxies write one a minute at least.
	turnsFresh = 2 * time.Minute
	// turnsWindow is the time that a report speaks of, and turnsApart how much earlier than
	// a failure the proof may end that the upstream is not to blame: it must have seen the
	// same upstream.
	turnsWindow = time.Minute
	turnsApart  = 30 * time.Second
	// provenTurns is how many turns of the slot before have to end in a minute, nearly all
	// of them well, to prove that the upstream is not to blame.
	provenTurns = 5
)

// worse says whether the active slot fails turns by a fault of its revision: by what
// its proxies say is their own, or by what the slot before, which still finishes its
// streams, does not see. An upstream that fails both, or that nobody can compare,
// makes no revision worse.
func (r *rollout) worse() bool {
	now, before := r.compared()
	switch {
	case !now.Failing():
		return false
	case 2*now.Internal >= now.Failed:
		return true
	}
	return before.Ended >= provenTurns && 10*before.Failed <= before.Ended
}

// compared are the turns of the active slot since it took over, and those of the slot
// before which ended since then, and not before the newest that failed.
func (r *rollout) compared() (now, before v1alpha1.ReplicaTurns) {
	promoted := r.active.marks.PromotedAt
	var failed time.Time
	for _, p := range r.active.pods {
		if t, at, ok := r.recent(p); ok && at.After(promoted) {
			now = now.Plus(t)
			if t.Failed > 0 && at.After(failed) {
				failed = at
			}
		}
	}
	for _, p := range r.other.pods {
		t, at, ok := r.recent(p)
		if ok && !at.Add(-turnsWindow).Before(promoted) && !at.Before(failed.Add(-turnsApart)) {
			before = before.Plus(t)
		}
	}
	return now, before
}

// recent are the turns that a proxy reported of late, and when.
func (r *rollout) recent(p reports.Report) (v1alpha1.ReplicaTurns, time.Time, bool) {
	if p.Replica == nil || p.Replica.Status.Turns == nil || p.Replica.Status.ReportedAt == nil {
		return v1alpha1.ReplicaTurns{}, time.Time{}, false
	}
	at := p.Replica.Status.ReportedAt.Time
	return *p.Replica.Status.Turns, at, r.now.Before(at.Add(turnsFresh))
}

// comparison words what was found.
func (r *rollout) comparison() string {
	now, before := r.compared()
	return fmt.Sprintf("%d of its %d turns failed in a minute, %d by its own fault; of slot %s %d of %d",
		now.Failed, now.Ended, now.Internal, r.other.name, before.Failed, before.Ended)
}
