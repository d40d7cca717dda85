package faults

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

func TestTheStoreLosesItsData(t *testing.T) {
	t.Parallel()
	w := platform(t)
	w.begin(t, false)
	w.redis.Forget()
	failed := w.goOn(t, 0, 1, 2)
	written() // or refused: the keys are gone, and claimed again with the next turn
	w.builtUpon(t, 0, 1, 2)
	w.redis.Forget()
	<-time.After(12 * time.Second) // replicas learn of it as they renew their leases
	failed += w.goOn(t, 0, 1, 2)
	w.builtUpon(t, 0, 1, 2)
	t.Logf("| Redis restarts without its data, twice | %d turns failed |", failed)
	if failed > 0 {
		t.Error("turns failed")
	}
}

func TestScenario94_TheStoreIsPausedFor40Seconds(t *testing.T) {
	t.Parallel()
	w := chatGPT(t)
	w.begin(t, false)
	w.redis.Signal(syscall.SIGSTOP)
	begun := time.Now()
	var slowest time.Duration
	turns := 0
	note := func(took time.Duration) {
		turns++
		slowest = max(slowest, took)
	}
	for time.Since(begun) < 40*time.Second {
		for i, c := range w.talks {
			note(c.must(t, i%3, "still there?").took)
		}
		fresh := w.talk(fmt.Sprint("fresh", turns))
		note(fresh.must(t, turns%3, "hello").took)
		<-time.After(time.Second)
	}
	w.redis.Signal(syscall.SIGCONT)
	failed := w.goOn(t, 0, 1, 2)
	recognised()
	w.builtUpon(t, 0, 1, 2)
	t.Logf("| Redis is paused for 40 s | %d turns meanwhile, the slowest took %v; %d turns failed after it |", turns, slowest.Round(time.Millisecond), failed)
	// Less than a try at the store takes until it counts as failed.
	if slowest > 800*time.Millisecond {
		t.Errorf("a turn took %v: clients wait for the store", slowest)
	}
	if failed > 0 {
		t.Error("turns failed")
	}
}
