package session

import (
	"testing"
	"time"
)

func TestB22_ASecondWedgeKillsTheAnchor(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := Record{Anchor: &Anchor{ResponseID: "r1", Account: "a"}}
	r = Apply(r, Event{Wedged: &Wedged{Anchor: "r1", Generation: 5}}, now)
	if r.Anchor.Status != AnchorSuspect || r.Anchor.Cause != CauseWedged || r.Health.MinGeneration != 6 {
		t.Fatalf("after one: %+v, generation %d", r.Anchor, r.Health.MinGeneration)
	}
	// A sibling on the same socket proves nothing new.
	same := Apply(r, Event{Wedged: &Wedged{Anchor: "r1", Generation: 5}}, now)
	if same.Anchor.Status != AnchorSuspect || same.Version != r.Version {
		t.Fatalf("after a sibling: %+v", same.Anchor)
	}
	other := Apply(r, Event{Wedged: &Wedged{Anchor: "r0", Generation: 6}}, now)
	if other.Anchor.Status != AnchorSuspect {
		t.Fatalf("after another anchor: %+v", other.Anchor)
	}
	r = Apply(r, Event{Wedged: &Wedged{Anchor: "r1", Generation: 6}}, now)
	if r.Anchor.Status != AnchorDead || r.Anchor.Cause != CauseConfirmed {
		t.Fatalf("after another socket: %+v", r.Anchor)
	}
}
