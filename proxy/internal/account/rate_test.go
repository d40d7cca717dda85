package account

import (
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	var none bucket
	none.spend(1e9, noon)
	if !none.readyAt(1, noon).Equal(noon) {
		t.Error("no limit is a limit")
	}
	var b bucket
	b.setLimit(60, noon)
	for i := range 10 {
		if !b.readyAt(1, noon).Equal(noon) {
			t.Fatalf("turn %d of the first ten seconds' worth has to wait", i+1)
		}
		b.spend(1, noon)
	}
	if at := b.readyAt(1, noon); !at.Equal(noon.Add(time.Second)) {
		t.Errorf("the next comes after %s", at.Sub(noon))
	}
	if at := b.readyAt(1, noon.Add(time.Second)); !at.Equal(noon.Add(time.Second)) {
		t.Error("when its time has come it may not go")
	}
}

func TestBucketIsBoundedPerMinute(t *testing.T) {
	for _, limit := range []int64{1, 3, 6, 60, 1000} {
		var b bucket
		b.setLimit(limit, noon)
		count, now := 0, noon.Add(time.Hour) // idle for long
		for end := now.Add(time.Minute); now.Before(end); {
			if at := b.readyAt(1, now); at.After(now) {
				now = at
				continue
			}
			b.spend(1, now)
			count++
		}
		if most := float64(limit)*7/6 + 1; float64(count) > most || int64(count) < limit {
			t.Errorf("limit %d: %d turns within a minute", limit, count)
		}
	}
}

func TestBucketDebt(t *testing.T) {
	var b bucket
	b.setLimit(6000, noon)
	b.spend(13000, noon) // 1000 were there
	if at := b.readyAt(tiny, noon); at.Sub(noon) < 119*time.Second || at.Sub(noon) > 121*time.Second {
		t.Errorf("a debt of two minutes is paid after %s", at.Sub(noon))
	}
	b.spend(1e12, noon)
	b.spend(1e300, noon)
	if at := b.readyAt(tiny, noon); at.Sub(noon).Round(time.Second) != maxDebt || b.readyAt(1, at.Add(time.Second)).After(at.Add(time.Second)) {
		t.Errorf("a mistaken count blocks for %s", at.Sub(noon))
	}
}

func TestBucketChangesItsLimit(t *testing.T) {
	var b bucket
	b.setLimit(60, noon)
	b.spend(10, noon)
	b.setLimit(120, noon)
	if b.level != 10 {
		t.Errorf("a limit raised by ten for the burst leaves %g", b.level)
	}
	b.setLimit(6, noon)
	if b.level != 1 {
		t.Errorf("a lowered limit leaves %g", b.level)
	}
	b.setLimit(0, noon)
	if !b.readyAt(1, noon).Equal(noon) {
		t.Error("a limit that was taken away holds")
	}
	b.fill(noon.Add(-time.Hour))
	if b.at != noon {
		t.Error("a clock that goes back fills the bucket later")
	}
}
