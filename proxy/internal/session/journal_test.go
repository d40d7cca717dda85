package session

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// The table of keyed turns that came before.
func TestJudgeKeyed(t *testing.T) {
	for _, tc := range []struct {
		state    store.TurnState
		complete bool
		body     string
		live     bool
		want     Journaled
	}{
		{store.TurnCompleted, true, "b", false, JournalReplay},
		{store.TurnIncomplete, true, "b", false, JournalReplay},
		{store.TurnCompleted, false, "b", false, JournalGone},
		{store.TurnFailed, false, "b", false, JournalRun},
		{store.TurnSubmitted, false, "b", false, JournalUnknown},
		{store.TurnUnknown, false, "b", false, JournalUnknown},
		{store.TurnAcknowledged, false, "b", false, JournalUnknown},
		{store.TurnAbandoned, false, "b", false, JournalUnknown},
		{store.TurnSubmitted, false, "b", true, JournalRunning},
		{store.TurnCompleted, true, "other", false, JournalConflict},
		{store.TurnSubmitted, false, "other", true, JournalConflict},
	} {
		e := Earlier{Turn: store.Turn{State: tc.state, Complete: tc.complete, Body: "b"}, Begun: t0}
		if got := JudgeKeyed(e, tc.body, tc.live); got != tc.want {
			t.Errorf("%s, %s, live %v: %d, want %d", tc.state, tc.body, tc.live, got, tc.want)
		}
	}
}

// T21: a stream that ends before its terminal event has an unknown outcome, and the
// same key is not run again; nor after a hand-over, nor a day later.
func TestT21_AnUnknownOutcomeIsNotRunAgain(t *testing.T) {
	for name, end := range map[string][]any{
		"in the midst":       {created("r1"), text, errClean},
		"before any event":   {errReset},
		"its client is gone": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inReplicas(t, func(t *testing.T, shared store.Store) {
				one := newReplica(t, shared, "one", "1", chatGPT)
				one.idempotencyKey = "aa"
				first := one.ask("t", body)
				if end == nil {
					first.detach()
					pass(3 * time.Second)
				} else {
					one.in(end...)
				}
				if _, ended, code := first.take(); end != nil && (!ended || code != failure.StreamIncomplete) {
					t.Fatalf("%q", code)
				}
				pass(2 * time.Minute)
				if code := one.ask("t", body).code(); code != failure.JournalUnknown || one.sent() != 1 {
					t.Fatalf("%q, %d requests", code, one.sent())
				}
				one.quit()
				two := newReplica(t, shared, "two", "1", chatGPT)
				defer two.quit()
				two.idempotencyKey = "aa"
				pass(23 * time.Hour)
				a := two.ask("t", body)
				batch := a.Out.Take(nil)
				if f := batch.Failure; f == nil || f.Code != failure.JournalUnknown || f.RetryAfter != 0 || two.dialer.count() != 0 {
					t.Fatalf("after a hand-over: %+v", f)
				}
				two.idempotencyKey = "bb"
				if two.ask("t", body); two.sent() != 1 {
					t.Fatal("a new key is a new turn")
				}
			})
		})
	}
}

// T24: the same key and body many times at once: one dispatch. Later it is answered
// from what the first one got; another body under the key is refused.
func TestT24_OneKeyIsOneDispatch(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		defer one.quit()
		one.idempotencyKey = "aa"
		first := one.ask("t", body)
		for range 19 {
			if code := one.ask("t", body).code(); code != failure.JournalInProgress {
				t.Fatal(code)
			}
		}
		if code := one.ask("t", neutralBody+" ").code(); code != failure.JournalConflict {
			t.Fatalf("another body while it runs: %q", code)
		}
		one.in(created("r1"), delta("x"), completed("r1"))
		expect(t, first, "created output_text.delta completed", true, "")
		one.registry.Delivered(first.Turn)
		first.detach()
		synctest.Wait()
		again := one.ask("t", body)
		synctest.Wait()
		expect(t, again, "created output_text.delta completed", true, "")
		if code := one.ask("t", neutralBody+" ").code(); code != failure.JournalConflict {
			t.Fatalf("another body afterwards: %q", code)
		}
		if one.sent() != 1 {
			t.Fatalf("%d dispatches", one.sent())
		}
	})
}

// What the upstream refused has not run, and may run again under its key.
func TestAKeyedTurnThatWasRefusedRunsAgain(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.idempotencyKey = "aa"
		a := b.ask("t", body)
		b.in(`{"type":"error","status":400,"error":{"code":"invalid_value","type":"invalid_request_error","message":"x"}}`)
		a.take()
		again := b.ask("t", body)
		b.in(created("r1"), completed("r1"))
		expect(t, again, "created completed", true, "")
	})
}

// T25: its process is killed between the dispatch and the answer. The next one says
// that the outcome is unknown and sends nothing.
func TestT25_AKilledProcessLeavesAnUnknownOutcome(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		one.idempotencyKey = "aa"
		one.ask("t", body)
		if one.sent() != 1 {
			t.Fatal("not sent")
		}
		one.kill()
		two := newReplica(t, shared, "one", "2", chatGPT)
		defer two.quit()
		two.idempotencyKey = "aa"
		a := two.ask("t", body)
		pass(time.Second)
		if code := a.code(); code != failure.JournalUnknown || two.dialer.count() != 0 {
			t.Fatalf("%q, %d connections", code, two.dialer.count())
		}
	})
}

// Without the store nobody could say later whether a keyed turn was sent, so that
// it is not sent.
func TestAKeyedTurnWaitsForItsRecord(t *testing.T) {
	inReplicas(t, func(t *testing.T, shared store.Store) {
		one := newReplica(t, shared, "one", "1", chatGPT)
		defer one.quit()
		one.anchored("t")
		one.idempotencyKey = "aa"
		one.store.setCut(true)
		before := one.sent()
		a := one.ask("t", body)
		pass(journalPatience)
		if code := a.code(); code != failure.StoreUnavailable || one.sent() != before || one.inflight() != 0 {
			t.Fatalf("%q, %d requests", code, one.sent()-before)
		}
		one.store.setCut(false)
		pass(10 * time.Second)
		again := one.ask("t", body)
		pass(time.Second)
		if _, ended, code := again.take(); ended || one.sent() != before+1 {
			t.Fatalf("%q, %d requests: the store is back", code, one.sent()-before)
		}
		again.detach()
	})
}
