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
// makes no revision worse; nor does the trouble of a few proxies, such as those of one
// node.
func (r *rollout) worse() bool {
	c := r.compare()
	switch {
	case 2*c.failing <= len(r.active.pods):
		return false
	case 2*c.now.Internal >= c.now.Failed:
		return true
	}
	return c.before.Ended >= provenTurns && 10*c.before.Failed <= c.before.Ended
}

// comparison is what the reports say of the two slots.
type comparison struct {
	failing int // proxies of the active slot that fail turns
	// now are the turns of those proxies; before, those of the slot before, of about the
	// same time.
	now, before v1alpha1.ReplicaTurns
}

// compare looks at the turns of the active slot since it took over, and at those of the
// slot before that ended since then, and not before the newest that failed.
func (r *rollout) compare() (c comparison) {
	promoted := r.active.marks.PromotedAt
	var failed time.Time
	for _, p := range r.active.pods {
		if t, at, ok := r.recent(p); ok && at.After(promoted) && t.Failing() {
			c.failing++
			c.now = c.now.Plus(t)
			if at.After(failed) {
				failed = at
			}
		}
	}
	for _, p := range r.other.pods {
		t, at, ok := r.recent(p)
		if ok && !at.Add(-turnsWindow).Before(promoted) && !at.Before(failed.Add(-turnsApart)) {
			c.before = c.before.Plus(t)
		}
	}
	return c
}

// recent are the turns that a proxy reported of late, and when.
func (r *rollout) recent(p reports.Report) (v1alpha1.ReplicaTurns, time.Time, bool) {
	if p.Replica == nil || p.Replica.Status.Turns == nil || p.Replica.Status.ReportedAt == nil {
		return v1alpha1.ReplicaTurns{}, time.Time{}, false
	}
	at := p.Replica.Status.ReportedAt.Time
	return *p.Replica.Status.Turns, at, r.now.Before(at.Add(turnsFresh))
}

// String words what was found.
func (c comparison) String() string {
	return fmt.Sprintf("%d of %d turns failed in a minute on %d proxies, %d by their own fault; in the slot before %d of %d",
		c.now.Failed, c.now.Ended, c.failing, c.now.Internal, c.before.Failed, c.before.Ended)
}
