package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

func TestScenario90_TwoReplicasOneOwner(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", chatGPT), newReplica(t, shared, "two", "1", chatGPT)
		defer one.quit()
		defer two.quit()
		one.anchored("t")
		a := two.ask("t", conversation(1))
		if got := a.elsewhere(); got != "one:8081" {
			t.Fatalf("sent to %q", got)
		}
		if two.dialer.count() != 0 {
			t.Fatal("Scenario 77: the loser dispatched")
		}
		one.ask("t", conversation(1))
		if f := lastFrame(one.bench); !hasAnchor(f, "r0") {
			t.Fatalf("the owner goes on: %s", f)
		}
	})
}

func TestScenario89_ASuccessorContinues(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		one.anchored("t")
		one.quit()
		two := newReplica(t, shared, "two", "1", chatGPT)
		defer two.quit()
		two.ask("t", toolOutput)
		if f := lastFrame(two.bench); !hasAnchor(f, "r0") {
			t.Fatalf("the anchor of the account did not move: %s", f)
		}
	})
}

func TestB23_AnAnchorOfASocketDoesNotMove(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		platform := chatGPT
		platform.provider = bundle.ProviderOpenAIPlatform
		one := newReplica(t, shared, "one", "1", platform)
		one.anchored("t")
		one.quit()
		two := newReplica(t, shared, "two", "1", platform)
		defer two.quit()
		if code := two.ask("t", toolOutput).code(); code != "previous_response_not_found" {
			t.Fatalf("Scenario 108: a delta on the anchor of another process' socket: %q", code)
		}
		if two.sent() != 0 {
			t.Fatal("it went out")
		}
		two.ask("t", conversation(1))
		if f := lastFrame(two.bench); strings.Contains(f, "previous_response_id") {
			t.Fatal(f)
		}
	})
}

func TestScenario91_ALiveOwnerIsNotRobbed(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", chatGPT), newReplica(t, shared, "two", "1", chatGPT)
		defer two.quit()
		one.anchored("t")
		running := one.ask("t", toolOutput)
		go one.registry.Close(context.Background()) // drains: the turn may end
		synctest.Wait()
		delta := two.askStay("t", toolOutput+" ")
		if _, ended, _ := delta.take(); !ended || two.sent() != 0 {
			t.Fatal("B30: a live, draining owner was robbed")
		}
		one.in(answer(1)...)
		if code := running.code(); code != "" {
			t.Fatalf("Scenario 109: the running turn ended %q", code)
		}
		pass(time.Second)
		two.ask("t", toolOutput+"  ")
		if f := lastFrame(two.bench); !hasAnchor(f, "r1") {
			t.Fatalf("after the release: %s", f)
		}
		one.quit()
	})
}

// askStay asks for a turn that cannot go elsewhere.
func (b *bench) askStay(thread, body string) *asked { return b.askWith(thread, body, true) }

func TestScenario93_ALongTurnKeepsItsKey(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", chatGPT), newReplica(t, shared, "two", "1", chatGPT)
		defer one.quit()
		defer two.quit()
		a := one.ask("t", conversation(0))
		one.in(created("r0"))
		for range 40 {
			pass(time.Minute)
			one.in(delta("x"))
			if got := two.ask("t", conversation(0)).elsewhere(); got != "one:8081" {
				t.Fatalf("H6: the key moved to %q during a turn", got)
			}
		}
		one.in(completed("r0"))
		if code := a.code(); code != "" {
			t.Fatal(code)
		}
	})
}

func TestScenario94_NothingIsBuiltOnALapsedLease(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		defer one.quit()
		one.anchored("t")
		running := one.ask("t", conversation(1))
		one.in(created("r1"))
		one.store.setCut(true)
		pass(31 * time.Second)
		one.in(completed("r1"))
		if code := running.code(); code != "" {
			t.Fatalf("a running stream did not end well: %q", code)
		}
		if d := one.detail("t"); d.Owned || d.Anchor == "good" && lastAnchor(one) == "r1" {
			t.Fatalf("published without the key: %+v", d.View)
		}
		before := one.sent()
		deltaTurn := one.ask("t", toolOutput)
		if _, ended, _ := deltaTurn.take(); ended || one.sent() != before {
			t.Fatal("a delta goes out on a lapsed lease")
		}
		a := one.ask("u", conversation(0)) // whole payloads go on from memory
		pass(claimWait)
		one.in(answer(0)...)
		if code := a.code(); code != "" {
			t.Fatalf("Scenario 35: a whole payload failed while the store was away: %q", code)
		}
		pass(31 * time.Second)
		if code := deltaTurn.code(); code != "store_unavailable" {
			t.Fatalf("%q", code)
		}
		one.store.setCut(false)
		pass(3 * time.Second)
		again := one.ask("t", conversation(1))
		one.in(answer(1)...)
		if code := again.code(); code != "" || !one.detail("t").Owned {
			t.Fatalf("after the outage: %q %+v", code, one.detail("t").View)
		}
	})
}

func lastAnchor(r *replica) string {
	key := affinity.Derive(affinity.Source{Header: map[string][]string{"Thread-Id": {"t"}}})
	e, err := r.store.Look(context.Background(), store.Key(key.Name()))
	if err != nil || len(e.Value) == 0 {
		return ""
	}
	rec, err := DecodeRecord(e.Value, time.Now())
	if err != nil || rec.Anchor == nil {
		return ""
	}
	return rec.Anchor.ResponseID
}

func TestScenario95_AnOutcomeNobodyKnows(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		one.anchored("t")
		one.ask("t", toolOutput)
		one.kill() // after the record was written, before any event
		pass(31 * time.Second)
		two := newReplica(t, shared, "two", "1", chatGPT)
		defer two.quit()
		if code := two.ask("t", toolOutput).code(); code != "upstream_operation_status_unknown" || two.sent() != 0 {
			t.Fatalf("%q, %d frames", code, two.sent())
		}
		pass(30 * time.Second)
		if code := two.ask("t", toolOutput).code(); code != "previous_response_not_found" || two.sent() != 0 {
			t.Fatalf("Scenario 101: %q, %d frames", code, two.sent())
		}
		a := two.ask("t", conversation(1))
		two.in(answer(1)...)
		if code := a.code(); code != "" {
			t.Fatal(code)
		}
	})
}

func TestB28_ARestartedPodTakesItsOwnKeysAtOnce(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		for i := range 100 {
			one.anchored("t" + string(rune('a'+i%26)) + string(rune('a'+i/26)))
		}
		one.kill()
		again := newReplica(t, shared, "one", "2", chatGPT)
		defer again.quit()
		begun := time.Now()
		for i := range 100 {
			a := again.ask("t"+string(rune('a'+i%26))+string(rune('a'+i/26)), conversation(1))
			again.in(answer(1)...)
			if code := a.code(); code != "" {
				t.Fatal(code)
			}
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Fatalf("%v", took)
		}
	})
}

func TestB31_APausedOwnerIsFenced(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", chatGPT), newReplica(t, shared, "two", "1", chatGPT)
		defer one.quit()
		defer two.quit()
		one.anchored("t")
		stale := one.ask("t", conversation(1))
		one.in(created("rs"))
		one.store.setCut(true) // as if it were stopped: nothing of it reaches the store
		pass(61 * time.Second)
		a := two.ask("t", conversation(1))
		two.in(answer(1)...)
		if code := a.code(); code != "" {
			t.Fatal(code)
		}
		one.in(completed("rs"))
		one.store.setCut(false)
		pass(10 * time.Second)
		if got := lastAnchor(two); got != "r1" {
			t.Fatalf("the anchor is %q", got)
		}
		if code := stale.code(); code != "" {
			t.Fatalf("its stream ended %q", code)
		}
		if got := one.ask("t", conversation(2)).elsewhere(); got != "two:8081" {
			t.Fatalf("the old owner's next turn went to %q", got)
		}
	})
}

func TestScenario83_AClearThatIsFenced(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", chatGPT), newReplica(t, shared, "two", "1", chatGPT)
		defer one.quit()
		defer two.quit()
		one.anchored("t")
		a := one.ask("t", toolOutput)
		one.store.setCut(true)
		one.in(`{"type":"error","status":400,"error":{"code":"previous_response_not_found","message":"gone"}}`)
		if code := a.code(); code != "previous_response_not_found" {
			t.Fatalf("Scenario 8: the client waited for the store: %q", code)
		}
		if d := one.detail("t"); d.Anchor != "dead" {
			t.Fatalf("%+v", d.View)
		}
		one.store.setCut(false)
		pass(10 * time.Second) // Scenario 9: the outbox writes it later
		two.store.setCut(false)
		if e := recordOf(t, one, "t"); e.Anchor == nil || e.Anchor.Status != AnchorDead {
			t.Fatalf("%+v", e.Anchor)
		}
	})
}

func recordOf(t *testing.T, r *replica, thread string) Record {
	t.Helper()
	key := affinity.Derive(affinity.Source{Header: map[string][]string{"Thread-Id": {thread}}})
	e, err := r.store.Look(context.Background(), store.Key(key.Name()))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := DecodeRecord(e.Value, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func TestScenario4_StrikesOfTwoReplicasAddUp(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		one.anchored("t")
		one.cutTurn("t", toolOutput)
		one.quit()
		two := newReplica(t, shared, "two", "1", chatGPT)
		defer two.quit()
		two.cutTurn("t", toolOutput+" ")
		if d := two.detail("t"); d.Strikes != 2 || d.Circuit != "open" || d.Anchor != "suspect" {
			t.Fatalf("%+v", d.View)
		}
		pass(61 * time.Second) // Scenario 5: half-open, and the next full turn probes without the anchor
		probe := two.ask("t", conversation(1))
		if f := lastFrame(two.bench); strings.Contains(f, "previous_response_id") {
			t.Fatal(f)
		}
		two.in(answer(1)...)
		if code := probe.code(); code != "" {
			t.Fatal(code)
		}
	})
}

func TestScenario35_StrikesWithoutAStoreAreToldLater(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		defer one.quit()
		one.store.setCut(true)
		for range 2 {
			a := one.ask("t", body)
			pass(claimWait)
			one.in(errReset)
			if code := a.code(); code != "stream_incomplete" {
				t.Fatal(code)
			}
		}
		third := one.ask("t", body)
		pass(claimWait)
		if code := third.code(); code != "upstream_request_timeout" {
			t.Fatalf("local strikes do not count: %q", code)
		}
		one.store.setCut(false)
		pass(5 * time.Second)
		one.ask("t", body).take()
		pass(time.Second)
		if rec := recordOf(t, one, "t"); rec.Health.Strikes != 2 {
			t.Fatalf("%+v", rec.Health)
		}
	})
}

func TestScenario53_ATurnThatStaysIsWhole(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", chatGPT), newReplica(t, shared, "two", "1", chatGPT)
		defer one.quit()
		defer two.quit()
		one.anchored("t")
		one.ask("t", conversation(1))
		a := two.askStay("t", conversation(1)) // the owner could not be reached
		if f := lastFrame(two.bench); strings.Contains(f, "previous_response_id") || !strings.Contains(f, "question 0") {
			t.Fatal(f)
		}
		two.in(answer(1)...)
		if code := a.code(); code != "" {
			t.Fatal(code)
		}
		if got := lastAnchor(two); got != "r0" {
			t.Fatalf("a replica that does not own the key published %q", got)
		}
		if code := two.askStay("t", toolOutput).code(); code != "bridge_instance_mismatch" {
			t.Fatalf("a delta without its owner: %q", code)
		}
	})
}
