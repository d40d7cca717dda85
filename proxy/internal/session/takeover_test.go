package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// While the lease of a dead owner runs, nobody knows what it has sent: a delta is
// not sent for not knowing it, though its response and account are known.
func TestScenario95_ADeltaWaitsForTheLeaseOfTheDead(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		one.anchored("t")
		delta := strings.Replace(toolOutput, `"input"`, `"previous_response_id":"r0","input"`, 1)
		one.ask("t", delta)
		one.kill()
		two := newReplica(t, shared, "two", "1", chatGPT)
		defer two.quit()
		for range 2 {
			if code := two.askWith("t", delta, true).code(); code != "bridge_instance_mismatch" || two.sent() != 0 {
				t.Fatalf("%q, %d frames", code, two.sent())
			}
		}
		pass(31 * time.Second)
		if code := two.askWith("t", delta, true).code(); code != "upstream_operation_status_unknown" || two.sent() != 0 {
			t.Fatalf("%q, %d frames", code, two.sent())
		}
	})
}

// A response that lived on a socket of the dead owner is gone for certain.
func TestScenario95_ADeltaUponASocketOfTheDead(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		platform := setUp{provider: bundle.ProviderOpenAIPlatform, accounts: []string{"a"}, firstEvent: 120}
		one := newReplica(t, shared, "one", "1", platform)
		one.anchored("t")
		delta := strings.Replace(toolOutput, `"input"`, `"previous_response_id":"r0","input"`, 1)
		one.ask("t", delta)
		one.kill()
		two := newReplica(t, shared, "two", "1", platform)
		defer two.quit()
		if code := two.askWith("t", delta, true).code(); code != "previous_response_not_found" || two.sent() != 0 {
			t.Fatalf("%q, %d frames", code, two.sent())
		}
	})
}

// Who has found another owner does not send a delta for having owned the key once.
func TestScenario95_ADeltaThatALaterOwnerMayHaveSent(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", chatGPT), newReplica(t, shared, "two", "1", chatGPT)
		defer one.quit()
		defer two.kill()
		one.anchored("t")
		before := one.sent()
		delta := strings.Replace(toolOutput, `"input"`, `"previous_response_id":"r0","input"`, 1)
		one.store.setCut(true)
		pass(61 * time.Second)
		two.ask("t", delta)
		if two.sent() != 1 {
			t.Fatalf("%d frames of the new owner", two.sent())
		}
		one.store.setCut(false)
		if code := one.askWith("t", delta, true).code(); code != "bridge_instance_mismatch" {
			t.Fatal(code)
		}
		one.store.setCut(true)
		a := one.askWith("t", delta, true)
		pass(5 * time.Minute)
		if code := a.code(); code != "store_unavailable" || one.sent() != before {
			t.Fatalf("%q, %d frames", code, one.sent()-before)
		}
		one.store.setCut(false)
	})
}

// A key that another replica should hold is free for it once its turn has ended.
func TestScenario108_AKeyIsGivenBack(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one, two := newReplica(t, shared, "one", "1", chatGPT), newReplica(t, shared, "two", "1", chatGPT)
		defer one.quit()
		defer two.quit()
		one.anchored("t")
		a := one.ask("t", conversation(1))
		one.registry.Yield(a.Key)
		one.in(answer(1)...)
		expect(t, a, "created output_item.done completed", true, "")
		synctest.Wait()
		two.ask("t", conversation(2))
		if f := lastFrame(two.bench); !hasAnchor(f, "r1") {
			t.Fatalf("the next owner does not go on from there: %s", f)
		}
		two.in(answer(2)...)

		two.registry.Yield(a.Key) // without a turn
		synctest.Wait()
		one.ask("t", conversation(3))
		if f := lastFrame(one.bench); !hasAnchor(f, "r2") {
			t.Fatalf("the next owner does not go on from there: %s", f)
		}
		one.in(answer(3)...)
	})
}
