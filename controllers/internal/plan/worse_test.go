package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// What blames the new revision, and what does not. Two pods of each slot report.
func TestT57_WhoIsToBlame(t *testing.T) {
	turns := func(ended, failed, internal int32) *v1alpha1.ReplicaTurns {
		return &v1alpha1.ReplicaTurns{Ended: ended, Failed: failed, Internal: internal}
	}
	for name, c := range map[string]struct {
		now, before *v1alpha1.ReplicaTurns
		change      func(*story)
		back        bool
	}{
		"fails, the one before does not": {turns(20, 10, 0), turns(3, 0, 0), nil, true},
		"fails by its own fault":         {turns(20, 10, 5), nil, nil, true},
		"nobody to compare with":         {turns(20, 10, 0), nil, nil, false},
		"too few to compare with":        {turns(20, 10, 0), turns(2, 0, 0), nil, false},
		"both fail":                      {turns(20, 20, 0), turns(10, 2, 0), nil, false},
		"most go well":                   {turns(20, 9, 9), turns(10, 0, 0), nil, false},
		"too few turns":                  {turns(19, 19, 19), turns(10, 0, 0), nil, false},
		"by one proxy of two": {turns(20, 20, 20), turns(9, 0, 0), func(s *story) {
			s.of("green")[0].replica.Status.Turns = turns(200, 0, 0)
		}, false},
		"by one proxy of two, and the other has not said": {turns(20, 20, 20), turns(9, 0, 0), func(s *story) {
			s.of("green")[0].replica.Status.Turns = nil
		}, false},
		"nothing is known": {nil, nil, nil, false},
		"it was long ago":  {turns(20, 19, 19), turns(9, 0, 0), func(s *story) { s.dated(s.now.Add(-turnsFresh)) }, false},
		"it was before it took over": {turns(20, 19, 19), turns(9, 0, 0), func(s *story) {
			s.dated(readMarks(s.w.Slots["green"].Annotations).PromotedAt)
		}, false},
		"its proof is of the time before": {turns(20, 19, 0), turns(90, 0, 0), func(s *story) {
			s.datedOf("blue", readMarks(s.w.Slots["green"].Annotations).PromotedAt.Add(time.Second))
		}, false},
		"its proof is older than the failures": {turns(20, 19, 0), turns(90, 0, 0), func(s *story) { s.datedOf("blue", s.now.Add(-turnsApart-time.Second)) }, false},
		"its proof is hardly older":            {turns(20, 19, 0), turns(90, 0, 0), func(s *story) { s.datedOf("blue", s.now.Add(-turnsApart)) }, true},
		"the one before was given up": {turns(20, 19, 19), turns(9, 0, 0), func(s *story) {
			s.w.Slots["blue"].Annotations[v1alpha1.AnnotationEmptiedAt] = formatTime(s.now)
		}, false},
		"the spec has moved on": {turns(20, 19, 19), turns(9, 0, 0), func(s *story) { s.image("localhost/causeway-proxy:3") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			s.draining()
			s.settle(5 * time.Minute)
			for _, p := range s.proxies {
				p.turns = map[v1alpha1.SlotName]*v1alpha1.ReplicaTurns{"blue": c.before, "green": c.now}[p.slot]
				s.report(p)
			}
			if c.change != nil {
				c.change(s)
			}
			p := s.reconciled()
			if back := p.Rollout.Failed != "" && p.Rollout.FailedReason == failedTurns; back != c.back {
				t.Errorf("rolled back: %v, want %v (%+v)", back, c.back, p.Rollout)
			}
		})
	}
}

// dated dates all reports, datedOf those of a slot.
func (s *story) dated(at time.Time) {
	s.datedOf("blue", at)
	s.datedOf("green", at)
}

func (s *story) datedOf(slot v1alpha1.SlotName, at time.Time) {
	for _, p := range s.of(slot) {
		p.replica.Status.ReportedAt = &metav1.Time{Time: at}
	}
}
