package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// keeperTest is a running keeper in front of a scripted memory, in a bubble.
type keeperTest struct {
	*Keeper
	store *scripted
	// boot is the keeper's clock: that of the bubble, and the time it was suspended.
	suspended atomic.Int64 // nanoseconds
	mu        sync.Mutex   // guards lost
	lost      map[Key]error
}

// causes is a copy of lost.
func (k *keeperTest) causes() map[Key]error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.lost)
}

func keep(t *testing.T, test func(t *testing.T, k *keeperTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		k := &keeperTest{store: &scripted{Store: NewMemory(time.Now)}, lost: map[Key]error{}}
		k.Keeper = NewKeeper(k.store, KeeperOptions{
			Now: func() time.Duration { return time.Since(begun) + time.Duration(k.suspended.Load()) },
			Lost: func(h Held, cause error) {
				k.mu.Lock()
				defer k.mu.Unlock()
				if k.lost[h.Key] != nil {
					t.Errorf("%s was lost twice", h.Key)
				}
				k.lost[h.Key] = cause
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Run(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		test(t, k)
	})
}

func (k *keeperTest) claim(t *testing.T, key Key) *Lease {
	t.Helper()
	started := k.Now()
	c, err := k.store.Claim(t.Context(), key, podA, 0, k.Lease())
	if err != nil {
		t.Fatal(err)
	}
	return k.Hold(c, started)
}

func TestScenario93_ALeaseIsRenewedForAsLongAsATurnLasts(t *testing.T) {
	keep(t, func(t *testing.T, k *keeperTest) {
		l := k.claim(t, "a")
		for range 40 * 60 {
			<-time.After(time.Second)
			synctest.Wait()
			_, err := k.store.Claim(t.Context(), "a", podB, 0, lease)
			if f := new(Fenced); !errors.As(err, &f) || !l.Valid() {
				t.Fatalf("claimed by another: %v, valid %t", err, l.Valid())
			}
		}
		if calls := k.store.calls(); len(calls) < 239 || len(calls) > 240 { // the last is due in this instant
			t.Fatalf("%d renewals in 40 minutes", len(calls))
		}
	})
}

func TestScenario94_ALeaseEndsWhenTheStoreIsAwayTooLong(t *testing.T) {
	for name, down := range map[string]func(context.Context, string) error{"refused": away, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			keep(t, func(t *testing.T, k *keeperTest) {
				l := k.claim(t, "a")
				<-time.After(15 * time.Second) // renewed after 10 s
				k.store.script(down, nil)
				<-time.After(lease - 5*time.Second - time.Millisecond)
				synctest.Wait()
				if !l.Valid() || len(k.causes()) != 0 {
					t.Fatalf("over too early: %v", k.causes())
				}
				if tries := len(k.store.calls()); tries < 10 || tries > 25 {
					t.Fatalf("%d renewals", tries)
				}
				<-time.After(time.Millisecond)
				synctest.Wait()
				if l.Valid() {
					t.Fatal("valid after 30 s without an answer")
				}
				<-time.After(3 * time.Second)
				synctest.Wait()
				if !errors.Is(k.causes()["a"], ErrLapsed) || k.Len() != 0 {
					t.Fatalf("lost: %v, held %d", k.causes(), k.Len())
				}
				k.store.calls()
				k.store.script(nil, nil)
				<-time.After(time.Minute)
				synctest.Wait()
				if l.Valid() || len(k.store.calls()) != 0 {
					t.Fatal("what was lost came back")
				}
				if l = k.claim(t, "a"); !l.Valid() { // the session claims again
					t.Fatal("not valid")
				}
			})
		})
	}
}

func TestALeaseSurvivesAnOutageThatIsShorter(t *testing.T) {
	keep(t, func(t *testing.T, k *keeperTest) {
		l := k.claim(t, "a")
		k.store.script(silent, nil)
		<-time.After(27500 * time.Millisecond)
		synctest.Wait()
		k.store.script(nil, nil)
		<-time.After(4 * time.Second)
		synctest.Wait()
		if !l.Valid() || len(k.causes()) != 0 {
			t.Fatalf("lost: %v", k.causes())
		}
	})
}

func TestALeaseIsCountedFromBeforeItsClaimAndItsRenewals(t *testing.T) {
	keep(t, func(t *testing.T, k *keeperTest) {
		started := k.Now()
		c, err := k.store.Claim(t.Context(), "a", podA, 0, lease)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(4 * time.Second) // the answer was slow
		l := k.Hold(c, started)
		k.store.script(silent, nil)
		<-time.After(26*time.Second - time.Millisecond)
		synctest.Wait()
		if !l.Valid() {
			t.Fatal("over too early")
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
		if l.Valid() {
			t.Fatal("counted from the answer of the claim")
		}
		k.store.script(nil, nil)
		<-time.After(4 * time.Second) // four seconds behind the beat of renewals
		l = k.claim(t, "b")
		k.store.script(func(context.Context, string) error { <-time.After(900 * time.Millisecond); return nil }, nil)
		<-time.After(7 * time.Second) // renewed after 6 s, answered after 6.9 s
		k.store.script(silent, nil)
		<-time.After(29*time.Second - time.Millisecond) // 36 s after the claim
		synctest.Wait()
		if !l.Valid() {
			t.Fatal("over too early")
		}
		<-time.After(time.Millisecond)
		synctest.Wait()
		if l.Valid() {
			t.Fatal("counted from the answer")
		}
	})
}

func TestB31_AProcessThatWasStoppedHasLostItsKeys(t *testing.T) {
	keep(t, func(t *testing.T, k *keeperTest) {
		l := k.claim(t, "a")
		<-time.After(5 * time.Second)
		synctest.Wait()
		k.suspended.Store(int64(2 * lease)) // timers did not run
		if l.Valid() {
			t.Fatal("valid after twice the lease")
		}
		<-time.After(6 * time.Second)
		synctest.Wait()
		if !errors.Is(k.causes()["a"], ErrLapsed) || len(k.store.calls()) != 0 {
			t.Fatalf("lost %v", k.causes())
		}
	})
}

func TestAFencedKeyIsLostAtOnceAndTheOthersStay(t *testing.T) {
	keep(t, func(t *testing.T, k *keeperTest) {
		a, b := k.claim(t, "a"), k.claim(t, "b")
		if _, err := k.store.Claim(t.Context(), "a", podAAgain, 0, lease); err != nil {
			t.Fatal(err)
		}
		<-time.After(11 * time.Second)
		synctest.Wait()
		var f *Fenced
		if !errors.As(k.causes()["a"], &f) || f.Current.Holder != podAAgain || a.Valid() || !b.Valid() || k.Len() != 1 {
			t.Fatalf("lost %v", k.causes())
		}
		// A server that came back without its data knows nobody.
		k.store.forget()
		<-time.After(10 * time.Second)
		synctest.Wait()
		if !errors.As(k.causes()["b"], &f) || f.Current.Holder != (Holder{}) || b.Valid() {
			t.Fatalf("lost %v", k.causes())
		}
	})
}

func TestALeaseThatWasLetGoIsNotRenewed(t *testing.T) {
	keep(t, func(t *testing.T, k *keeperTest) {
		l := k.claim(t, "a")
		l.Let()
		l.Let()
		<-time.After(15 * time.Second)
		synctest.Wait()
		if l.Valid() || len(k.store.calls()) != 0 || k.Len() != 0 {
			t.Fatal("still held")
		}
		late := k.claim(t, "b")
		k.store.script(func(context.Context, string) error { <-time.After(500 * time.Millisecond); return nil }, nil)
		<-time.After(5*time.Second + 100*time.Millisecond) // its renewal is on its way
		late.Let()
		<-time.After(time.Second)
		synctest.Wait()
		if calls := k.store.calls(); late.Valid() || len(calls) != 1 {
			t.Fatalf("revived by %v", calls)
		}
		gone := k.claim(t, "c")
		k.store.script(away, nil)
		<-time.After(12 * time.Second) // it is tried again and again
		gone.Let()
		<-time.After(time.Minute)
		synctest.Wait()
		if len(k.causes()) != 0 {
			t.Fatalf("told of %v", k.causes())
		}
	})
}

func TestRenewalsGoInBatches(t *testing.T) {
	keep(t, func(t *testing.T, k *keeperTest) {
		leases := make([]*Lease, 1_200)
		for i := range leases {
			leases[i] = k.claim(t, Key(fmt.Sprint("k", i)))
		}
		<-time.After(11 * time.Second)
		synctest.Wait()
		equal(t, k.store.calls(), []string{"renew 500", "renew 500", "renew 200"})

		// A store that is silent costs one timeout a round, not one a batch; a part
		// of it that is silent does not keep the others from their renewal.
		k.store.script(silent, nil)
		<-time.After(14500 * time.Millisecond) // from 11 s to 25.5 s
		synctest.Wait()
		if calls := k.store.calls(); len(calls) != 3 {
			t.Fatalf("%v", calls)
		}
		k.store.script(nil, nil)
		<-time.After(20 * time.Second)
		synctest.Wait()
		for i, l := range leases {
			if !l.Valid() {
				t.Fatalf("lease %d is over", i)
			}
		}
	})
}

// halfAway is a store of which the keys with an x are away.
type halfAway struct{ *scripted }

func (s halfAway) Renew(ctx context.Context, keys []Held, lease time.Duration) []error {
	errs := s.scripted.Renew(ctx, keys, lease)
	for i, h := range keys {
		if strings.Contains(string(h.Key), "x") {
			errs[i] = ErrUnavailable
		}
	}
	return errs
}

func TestAPartOfTheStoreThatIsAwayDoesNotTakeTheOthers(t *testing.T) {
	keep(t, func(t *testing.T, k *keeperTest) {
		k.Keeper.store = halfAway{k.store}
		var good []*Lease
		for i := range 600 {
			k.claim(t, Key(fmt.Sprint("x", i)))
			good = append(good, k.claim(t, Key(fmt.Sprint("k", i))))
		}
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if len(k.causes()) != 600 || k.Len() != 600 || slices.ContainsFunc(good, func(l *Lease) bool { return !l.Valid() }) {
			t.Fatalf("%d lost, %d held", len(k.causes()), k.Len())
		}
	})
}

func TestTheClockOfLeasesGoesForward(t *testing.T) {
	k := NewKeeper(NewMemory(time.Now), KeeperOptions{})
	first := k.Now()
	if second := k.Now(); first <= 0 || second < first {
		t.Fatalf("%s, then %s", first, second)
	}
}

func BenchmarkLeaseValid(b *testing.B) {
	k := NewKeeper(NewMemory(time.Now), KeeperOptions{})
	l := k.Hold(Claimed{}, k.Now())
	for b.Loop() {
		l.Valid()
	}
}
