package faults

import (
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// B28: nobody waits for the leases of the dead.
func TestScenario95_B28_AReplicaIsKilled(t *testing.T) {
	t.Parallel()
	w := chatGPT(t)
	w.begin(t, false)
	answers := w.during(t, func() {
		w.Signal(1, syscall.SIGKILL)
		w.Ready(0, 2)
	}, 0, 1, 2)
	killed := time.Now()
	lost := w.again(t, answers, 0, 2)
	failed := w.goOn(t, 0, 2)
	w.Start(1)
	w.Ready(0, 1, 2)
	failed += w.goOn(t, 0, 1, 2)
	leaseOver(killed)
	w.builtUpon(t, 0, 1, 2)
	t.Logf("| kill -9 | %d of %d live turns lost once, %d turns failed after it |", lost, len(w.talks), failed)
	if failed > 0 {
		t.Error("more than the live turns were lost")
	}
}

// A delta whose outcome nobody knows is not run again: its client hears so until
// its response counts as gone, and sends the whole conversation. Where the response
// lived on a socket of the dead, it hears that at once.
func TestScenario95_DeltasOfAKilledReplica(t *testing.T) {
	t.Parallel()
	t.Run("ChatGPT", func(t *testing.T) {
		t.Parallel()
		chatGPT(t).losesDeltas(t)
	})
	t.Run("platform", func(t *testing.T) {
		t.Parallel()
		if refusals := platform(t).losesDeltas(t); refusals > 1 {
			t.Errorf("a client was refused %d times", refusals)
		}
	})
}

func (w *world) losesDeltas(t *testing.T) (refusals int) {
	t.Helper()
	w.begin(t, true)
	// Whose own replica is killed looks to the owner like one who left: it ends the
	// turn, and runs it again when it is asked to.
	answers := w.during(t, func() {
		w.Signal(1, syscall.SIGKILL)
		w.Ready(0, 2)
	}, 0, 2)
	killed := time.Now()
	lost := 0
	var insisting sync.WaitGroup
	refused := make([]int, len(w.talks))
	for i, c := range w.talks {
		if answers[i].ok() {
			continue
		}
		lost++
		insisting.Go(func() { refused[i] = c.insist(t, 0, 2) })
	}
	insisting.Wait()
	took := time.Since(killed)
	w.onceEach(t)
	failed := w.goOn(t, 0, 2)
	leaseOver(killed)
	w.builtUpon(t, 0, 2)
	refusals = slices.Max(refused)
	t.Logf("| kill -9, deltas | %d of %d live turns lost, none run twice; whole conversations after at most %d refusals in %.0f s; %d turns failed after it |",
		lost, len(w.talks), refusals, took.Seconds(), failed)
	if failed > 0 {
		t.Error("more than the live turns were lost")
	}
	return refusals
}

// A replica that is stopped for longer than its lease, and comes back in the
// middle of the turns it had: what it writes then is refused.
func TestB31_AReplicaIsStoppedPastItsLease(t *testing.T) {
	t.Parallel()
	w := chatGPT(t)
	w.begin(t, false)
	answers := w.during(t, func() {
		w.Signal(1, syscall.SIGSTOP)
		w.Ready(0, 2)
	}, 0, 1, 2)
	stopped := time.Now()
	lost := w.again(t, answers, 0, 2)
	failed := w.goOn(t, 0, 2)
	leaseOver(stopped)
	w.builtUpon(t, 0, 2)
	w.Signal(1, syscall.SIGCONT)
	recognised()
	w.recorded(t)
	w.Ready(0, 1, 2)
	again := w.goOn(t, 0, 1, 2)
	w.builtUpon(t, 0, 1, 2)
	t.Logf("| SIGSTOP past the lease, SIGCONT | %d of %d live turns lost once, %d turns failed while it was stopped, %d after it came back |",
		lost, len(w.talks), failed, again)
	if failed > 0 || again > 0 {
		t.Error("turns failed")
	}
}
