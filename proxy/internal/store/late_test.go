package store

import (
	"testing"
	"time"
)

func TestLateIsCountedFromTheRenewalThatIsMissing(t *testing.T) {
	now := 100 * time.Second
	k := NewKeeper(nil, KeeperOptions{Lease: 30 * time.Second, Every: 10 * time.Second, Now: func() time.Duration { return now }})
	want := func(what string, late time.Duration) {
		t.Helper()
		if got := k.Late(); got != late {
			t.Errorf("%s: late by %s, want %s", what, got, late)
		}
	}
	want("no lease", 0)
	early := k.Hold(Claimed{}, now-4*time.Second)
	k.Hold(Claimed{}, now)
	want("two new leases", 0)
	now += 6 * time.Second
	want("the first is due", 0)
	now += 7 * time.Second
	want("both are overdue", 7*time.Second)
	early.until.Store(int64(now + 30*time.Second)) // renewed
	want("the first is renewed", 3*time.Second)
	early.Let()
	now += 100 * time.Second
	want("one is left", 103*time.Second)
}
