package account

import (
	"testing"
	"time"
)

func TestB81_SharesAddUp(t *testing.T) {
	for limit := int64(1); limit <= 40; limit++ {
		for replicas := 1; replicas <= 12; replicas++ {
			sum := int64(0)
			for rank := range replicas {
				part := Share{replicas, rank}.Of(limit)
				if part < 1 {
					t.Fatalf("%d of %d has nothing of %d", rank, replicas, limit)
				}
				if rank > 0 && part > (Share{replicas, rank - 1}).Of(limit) {
					t.Fatalf("the share of %d grows with the rank", limit)
				}
				if part > (Share{max(replicas-1, rank+1), rank}).Of(limit) {
					t.Fatalf("the share of %d grows with the replicas", limit)
				}
				sum += part
			}
			if want := max(limit, int64(replicas)); sum != want {
				t.Errorf("%d over %d replicas: %d in sum, want %d", limit, replicas, sum, want)
			}
		}
	}
	if (Share{3, 1}).Of(0) != 0 || (Share{}).Of(7) != 7 || (Share{1, 0}).Of(7) != 7 {
		t.Error("no limit, or no division")
	}
}

func TestShareGrowsAfterAMinute(t *testing.T) {
	var s shares
	for _, step := range []struct {
		at   time.Duration
		seen Share
		want Share
	}{
		{0, Share{3, 1}, Share{3, 1}},
		{time.Second, Share{4, 2}, Share{4, 2}},        // smaller: at once
		{2 * time.Second, Share{3, 1}, Share{4, 2}},    // larger: later
		{30 * time.Second, Share{2, 1}, Share{4, 2}},   // and from the last change
		{62 * time.Second, Share{2, 1}, Share{4, 2}},   //
		{89 * time.Second, Share{2, 1}, Share{4, 2}},   //
		{90 * time.Second, Share{2, 1}, Share{2, 1}},   //
		{91 * time.Second, Share{2, 0}, Share{2, 1}},   // a better rank is growth
		{100 * time.Second, Share{3, 0}, Share{3, 1}},  // of both the smaller
		{160 * time.Second, Share{3, 0}, Share{3, 0}},  //
		{161 * time.Second, Share{3, 0}, Share{3, 0}},  //
		{200 * time.Second, Share{1, 0}, Share{3, 0}},  //
		{201 * time.Second, Share{3, 0}, Share{3, 0}},  // a replica that restarts
		{1000 * time.Second, Share{1, 0}, Share{3, 0}}, //
		{1060 * time.Second, Share{1, 0}, Share{1, 0}}, //
	} {
		if s.observe(step.seen, noon.Add(step.at)); s.now != step.want {
			t.Fatalf("after %s: %+v, want %+v", step.at, s.now, step.want)
		}
	}
}
