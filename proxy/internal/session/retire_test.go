package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

func TestScenario39_AnIdleCloseIsNobodysFault(t *testing.T) {
	for name, end := range map[string]error{
		"1000": errClean, "1006": errReset,
		"1011": &upstream.Ended{Cause: upstream.CauseAbrupt, Code: 1011, Err: errReset}, "idle limit": nil,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
				b.anchored("t")
				if end != nil {
					b.in(end)
				} else {
					pass(901 * time.Second)
				}
				if len(b.counts.rows) != 1 {
					t.Fatalf("an idle close is told as %v", b.counts.rows)
				}
				a := b.ask("t", conversation(1))
				pass(121 * time.Second) // silent on the anchor, and once more without
				pass(121 * time.Second)
				if code := a.code(); code != "bridge_eventless_timeout" {
					t.Fatal(code)
				}
			})
		})
	}
}

func TestScenario40_EvidenceIsTheAttemptsOwn(t *testing.T) {
	for _, tc := range []struct {
		name    string
		events  []any
		strikes int
	}{
		{"Scenario 40: eventless", nil, 1},
		{"Scenario 41: three events", []any{created("r1"), delta("a"), delta("b")}, 0},
		{"Scenario 31: reasoning alone", []any{`{"type":"response.output_item.added","item":{"type":"reasoning"}}`}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
				b.ask("t", body)
				b.in(append(tc.events, errReset)...)
				if got := b.detail("t").Strikes; got != tc.strikes {
					t.Fatalf("%d strikes", got)
				}
				pass(901 * time.Second) // Scenario 42: and nothing more when the session retires
				total := 0
				for what, n := range b.counts.rows {
					if strings.HasPrefix(what, "strike") {
						total += n
					}
				}
				if total != tc.strikes {
					t.Fatalf("%v", b.counts.rows)
				}
			})
		})
	}
}

func TestScenario43_AWaiterGoesOnAndNobodyIsChargedTwice(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		first := b.ask("t", toolOutput)
		waiter := b.ask("t", toolOutput+" ")
		stuck := b.newest()
		b.in(errReset)
		if first.code() != "stream_incomplete" {
			t.Fatal("the first turn goes on")
		}
		if b.newest() == stuck {
			t.Fatal("Scenario 66: the waiter was not replaced")
		}
		if f := b.newest().frame(); !hasAnchor(f, "r0") {
			t.Fatalf("Scenario 65: the waiter lost its anchor: %s", f)
		}
		b.in(answer(1)...)
		if _, ended, code := waiter.take(); !ended || code != "" {
			t.Fatalf("%v %q", ended, code)
		}
		pass(901 * time.Second)
		if got := b.counts.of("strike StreamIncomplete"); got != 1 {
			t.Fatalf("%d strikes", got)
		}
	})
}

func TestScenario44_ATurnWhoseClientLeftIsNoEvidence(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		a := b.ask("t", body)
		a.detach()
		synctest.Wait()
		b.in(errReset)
		if got := b.detail("t").Strikes; got != 0 {
			t.Fatalf("%d strikes", got)
		}
	})
}

func TestScenario45_CreatedBeforeTheCloseWins(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		a := b.ask("t", body)
		conn := b.newest()
		time.AfterFunc(120*time.Second+expiryGrace/2, func() { conn.play(created("r1")) })
		pass(121 * time.Second)
		if _, ended, _ := a.take(); ended || conn.isClosed() {
			t.Fatal("retired although the response had been created")
		}
		b.in(completed("r1"))
		if b.detail("t").Strikes != 0 {
			t.Fatal("a strike")
		}
	})
}

func TestScenario46_WhatTheProxyDoesItselfIsNeutral(t *testing.T) {
	neutral := func(t *testing.T, b *bench) {
		t.Helper()
		synctest.Wait()
		for what := range b.counts.rows {
			if strings.HasPrefix(what, "strike") || strings.HasPrefix(what, "retired") {
				t.Fatalf("%v", b.counts.rows)
			}
		}
	}
	t.Run("eviction", func(t *testing.T) {
		inBubbleOf(t, setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a"}, firstEvent: 120, maxSessions: 1}, func(b *bench) {
			b.anchored("t")
			b.anchored("u")
			neutral(t, b)
		})
	})
	t.Run("drain", func(t *testing.T) {
		inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
			a := b.ask("t", body)
			b.end()
			if code := a.code(); code != "draining" {
				t.Fatal(code)
			}
			neutral(t, b)
		})
	})
	t.Run("another account", func(t *testing.T) {
		inBubbleOf(t, setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a", "b"}, firstEvent: 120}, func(b *bench) {
			b.anchored("t")
			b.ask("t", conversation(1))
			b.in(`{"type":"error","status":429,"error":{"code":"rate_limit_exceeded","message":"slow"}}`)
			neutral(t, b)
		})
	})
}

func TestScenario47_SiblingsAreJudgedApart(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		streaming := b.ask("t", toolOutput)
		b.in(created("r1"), `{"type":"response.output_text.delta","response_id":"r1","delta":"1"}`)
		eventless := b.ask("t", toolOutput+" ")
		b.in(errReset)
		if streaming.code() != "stream_incomplete" || eventless.code() != "stream_incomplete" {
			t.Fatal("two ends expected")
		}
		d := b.detail("t")
		rows := fmt.Sprint(d.Attempts[len(d.Attempts)-2].Verdict, " ", d.Attempts[len(d.Attempts)-1].Verdict)
		if d.Strikes != 1 || rows != "cut cut_eventless" {
			t.Fatalf("%d strikes, %s", d.Strikes, rows)
		}
		dials := b.dialer.count()
		again := b.ask("t", toolOutput)
		if code := again.code(); code != "upstream_operation_status_unknown" || b.dialer.count() != dials {
			t.Fatalf("a turn whose outcome is not known is answered %q", code)
		}
	})
}

func TestScenario50_ASocketThatWedgedIsNotUsedAgain(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		sibling := b.ask("t", toolOutput)
		b.in(created("r1"), `{"type":"response.output_text.delta","response_id":"r1","delta":"1"}`)
		wedged := b.ask("t", toolOutput+" ")
		old := b.newest()
		b.in(`{"type":"response.output_item.added","response_id":"rw","item":{"type":"reasoning"}}`)
		pass(290 * time.Second)
		b.in(`{"type":"response.output_text.delta","response_id":"r1","delta":"2"}`)
		pass(11 * time.Second)
		if code := wedged.code(); code != "stream_incomplete" {
			t.Fatalf("%q", code)
		}
		if _, ended, _ := sibling.take(); ended || old.isClosed() {
			t.Fatal("the sibling was cut")
		}
		delta := b.ask("t", toolOutput+"  ")
		if b.newest() == old {
			t.Fatal("the wedged socket was used again")
		}
		if f := b.newest().frame(); !hasAnchor(f, "r0") {
			t.Fatalf("the delta lost its anchor: %s", f)
		}
		b.in(answer(2)...)
		if code := delta.code(); code != "" {
			t.Fatal(code)
		}
	})
}

func TestScenario51_NoAnchorComesBackBeforeOneIsGood(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		b.ask("t", conversation(1))
		b.in(`{"type":"response.output_item.added","item":{"type":"reasoning"}}`, errReset)
		if d := b.detail("t"); d.Anchor != "suspect" {
			t.Fatalf("%+v", d.View)
		}
		for i := range 3 { // the replacement never completes
			a := b.ask("t", conversation(1))
			if f := b.newest().frame(); strings.Contains(f, "previous_response_id") || !strings.Contains(f, "question 0") {
				t.Fatalf("Scenario 52: turn %d carries an anchor or is trimmed: %s", i, f)
			}
			b.in(created("rx"), errReset)
			a.take()
		}
		a := b.ask("t", conversation(1))
		b.in(answer(1)...)
		if code := a.code(); code != "" {
			t.Fatal(code)
		}
		if d, o := b.detail("t"), b.registry.Overview(); d.Anchor != "good" || o.Quarantined != 0 {
			t.Fatalf("Scenario 48: %+v %+v", d.View, o)
		}
		for b.newest().frame() != "" {
		}
		b.ask("t", conversation(2))
		if f := b.newest().frame(); !hasAnchor(f, "r1") || strings.Contains(f, "question 1") {
			t.Fatalf("Scenario 48: the third turn is not anchored: %s", f)
		}
	})
}

func TestScenario57_VerdictsSurviveEviction(t *testing.T) {
	const keys = 2000
	inBubbleOf(t, setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a"}, firstEvent: 120, maxSessions: 50}, func(b *bench) {
		for i := range keys {
			thread := fmt.Sprint("t", i)
			b.anchored(thread)
			b.ask(thread, conversation(1))
			b.in(`{"type":"response.output_item.added","item":{"type":"reasoning"}}`, errReset)
		}
		if c := b.registry.Counts(); c.Active+c.Idle > 50 {
			t.Fatalf("%+v", c)
		}
		for i := range keys {
			b.ask(fmt.Sprint("t", i), conversation(1)).detach()
			if f := b.newest().frame(); strings.Contains(f, "previous_response_id") {
				t.Fatalf("key %d lost its verdict", i)
			}
		}
		if o := b.registry.Overview(); len(o.Quarantines) > 5 || len(o.Circuits) > 32 {
			t.Fatalf("%d, %d", len(o.Quarantines), len(o.Circuits))
		}
	})
}

func TestScenario76_AnAnchorStaysWithItsAccount(t *testing.T) {
	inBubbleOf(t, setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a", "b"}, firstEvent: 120}, func(b *bench) {
		b.anchored("t")
		first := b.newest().account
		a := b.ask("t", conversation(1))
		b.in(`{"type":"error","status":429,"error":{"code":"usage_limit_reached","message":"full","resets_in_seconds":3600}}`)
		if b.newest().account == first {
			t.Fatal("no failover")
		}
		if f := b.newest().frame(); strings.Contains(f, "previous_response_id") || !strings.Contains(f, "question 0") {
			t.Fatalf("B16: %s", f)
		}
		b.in(answer(1)...)
		if code := a.code(); code != "" {
			t.Fatal(code)
		}
		b.ask("t", conversation(2))
		if f := b.newest().frame(); !hasAnchor(f, "r1") {
			t.Fatalf("the new account's own anchor is not used: %s", f)
		}
	})
}

func TestScenario77_AClientsAnchorGoesToItsOwner(t *testing.T) {
	inBubbleOf(t, setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a", "b"}, firstEvent: 120}, func(b *bench) {
		b.anchored("t")
		owner := b.newest().account
		a := b.ask("t", conversation(1))
		b.in(`{"type":"error","status":429,"error":{"code":"rate_limit_exceeded","message":"slow"},"headers":{"retry-after":"1"}}`)
		b.in(answer(1)...)
		a.take()
		pass(2 * time.Second)
		before := b.sent()
		old := b.ask("t", `{"model":"m","store":false,"previous_response_id":"r0","input":[{"role":"user","content":"fork"}]}`)
		if b.sent() > before && b.newest().account != owner {
			t.Fatalf("the anchor of %s was sent to %s", owner, b.newest().account)
		}
		old.detach()
	})
}

func TestScenario80_ADenialDoesNotTouchANewerAnchor(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		first := b.ask("t", toolOutput)
		b.in(created("r1"), `{"type":"response.output_text.delta","response_id":"r1","delta":"1"}`)
		denied := b.ask("t", toolOutput+" ")
		b.in(`{"type":"response.completed","response":{"id":"r1","output":[]},"response_id":"r1"}`)
		first.take()
		prepared := b.ask("t", `{"model":"m","store":false,"previous_response_id":"r0","input":[{"role":"user","content":"x"}]}`)
		before := b.sent()
		b.in(`{"type":"error","status":400,"error":{"code":"previous_response_not_found","message":"gone"}}`)
		if code := denied.code(); code != "previous_response_not_found" {
			t.Fatal(code)
		}
		if code := prepared.code(); code != "previous_response_not_found" || b.sent() != before {
			t.Fatalf("Scenario 81: a prepared turn with the denied id went out: %q", code)
		}
		if d := b.detail("t"); d.Anchor != "good" {
			t.Fatalf("%+v", d.View)
		}
		b.ask("t", toolOutput+"   ")
		if f := lastFrame(b); !hasAnchor(f, "r1") {
			t.Fatalf("Scenario 82: %s", f)
		}
	})
}

// lastFrame is the last request that was sent on the newest connection.
func lastFrame(b *bench) string {
	last := ""
	for f := b.newest().frame(); f != ""; f = b.newest().frame() {
		last = f
	}
	return last
}

func TestScenario84_ADeniedDeltaIsAnsweredFromNothing(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		a := b.ask("t", toolOutput)
		b.in(`{"type":"error","status":400,"error":{"code":"previous_response_not_found","message":"gone"}}`)
		if code := a.code(); code != "previous_response_not_found" {
			t.Fatal(code)
		}
		before := b.sent()
		again := b.ask("t", toolOutput)
		if code := again.code(); code != "previous_response_not_found" || b.sent() != before {
			t.Fatalf("%q, %d frames", code, b.sent()-before)
		}
		if d, o := b.detail("t"), b.registry.Overview(); d.Strikes != 0 || o.Quarantined != 1 || o.Quarantines[0].Reason != "AnchorDenied" {
			t.Fatalf("Scenario 19: %+v %+v", d.View, o)
		}
		full := b.ask("t", conversation(1))
		if f := lastFrame(b); strings.Contains(f, "previous_response_id") || !strings.Contains(f, "question 0") {
			t.Fatalf("Scenario 85: %s", f)
		}
		b.in(answer(1)...)
		if code := full.code(); code != "" {
			t.Fatal(code)
		}
		if d, o := b.detail("t"), b.registry.Overview(); d.Anchor != "good" || o.Quarantined != 0 {
			t.Fatalf("Scenario 85: %+v %+v", d.View, o)
		}
	})
}

func TestScenario99_ATurnThatWasNotSentLeavesNoRecord(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		b.newest().sendErr = upstream.ErrNotSent
		a := b.ask("t", toolOutput)
		if b.dialer.count() != 2 {
			t.Fatal("no new connection")
		}
		b.newest().sendErr = upstream.ErrNotSent
		_ = a
		for b.newest().frame() != "" {
		}
		b.in(created("r1"), completed("r1"))
		if code := a.code(); code != "" {
			t.Fatal(code)
		}
		again := b.ask("t", strings.Replace(toolOutput, "ok", "not ok", 1))
		if code := again.code(); code == "upstream_operation_status_unknown" {
			t.Fatal("a turn that was never sent is held")
		}
	})
}

func TestScenario117_AWaiterIsNotSentOnACorpse(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		corpse := b.newest()
		first, waiter := b.ask("t", toolOutput), b.ask("t", toolOutput+" ")
		before := len(corpse.sent)
		corpse.in <- &upstream.Ended{Cause: upstream.CauseGarbage, Err: errReset} // the reader fails
		synctest.Wait()
		if code := first.code(); code != "upstream_protocol_error" {
			t.Fatal(code)
		}
		if len(corpse.sent) != before || b.newest() == corpse || !corpse.isClosed() {
			t.Fatal("the waiter was sent on the corpse")
		}
		b.in(answer(1)...)
		if code := waiter.code(); code != "" {
			t.Fatal(code)
		}
	})
}

func TestScenario122_APrewarmThatFallsSilent(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		warm := b.ask("t", strings.Replace(body, `"model":"m"`, `"model":"m","generate":false`, 1))
		cold := b.newest()
		pass(121 * time.Second)
		if code := warm.code(); code != "bridge_eventless_timeout" {
			t.Fatal(code)
		}
		user := b.ask("t", body)
		if b.newest() == cold {
			t.Fatal("the socket was not replaced")
		}
		cold.play(created("late"), completed("late"))
		synctest.Wait()
		b.in(created("r1"), completed("r1"))
		expect(t, user, "created completed", true, "")
		if d := b.detail("t"); d.Strikes != 0 || d.Anchor != "good" {
			t.Fatalf("%+v", d.View)
		}
	})
}

func TestScenario58_APrewarmClearsNothing(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		b.ask("t", conversation(1))
		b.in(`{"type":"response.output_item.added","item":{"type":"reasoning"}}`, errReset)
		b.cutTurn("t", conversation(1))
		b.ask("t", strings.Replace(conversation(1), `"model":"m"`, `"model":"m","generate":false`, 1))
		b.in(created("warm"), completed("warm"))
		if d := b.detail("t"); d.Anchor != "suspect" || d.Strikes != 1 {
			t.Fatalf("%+v", d.View)
		}
	})
}

func TestScenario123_AnotherModelGetsItsOwnLane(t *testing.T) {
	inBubbleOf(t, setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a"}, firstEvent: 120, maxSessions: 2}, func(b *bench) {
		b.anchored("t")
		parent := b.newest()
		other := strings.Replace(conversation(1), `"model":"m"`, `"model":"n"`, 1)
		for i := range 3 {
			a := b.ask("t", other)
			if b.newest() == parent || b.dialer.count() != 2 {
				t.Fatalf("turn %d: %d sockets: a lane of its own, and the same one each time", i, b.dialer.count())
			}
			id := fmt.Sprint("n", i)
			b.in(created(id), completed(id))
			if code := a.code(); code != "" {
				t.Fatal(code)
			}
		}
		if parent.isClosed() {
			t.Fatal("the parent was evicted")
		}
		b.ask("t", conversation(1))
		if len(parent.sent) == 0 {
			t.Fatal("the first model does not go on where it was")
		}
	})
}

// What is refused before it is sent is counted once, by the reason that the client
// sees, whoever refuses it: the plan at intake or at the moment of sending.
func TestRefusalsAreCountedByReason(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		a := b.ask("t", toolOutput)
		b.in(`{"type":"error","status":400,"error":{"code":"previous_response_not_found","message":"gone"}}`)
		if code := a.code(); code != "previous_response_not_found" || len(b.counts.rows) != 3 {
			t.Fatalf("%s, %v", code, b.counts.rows)
		}
		if code := b.ask("t", toolOutput).code(); code != "previous_response_not_found" {
			t.Fatal(code)
		}
		if b.counts.of("suppressed anchor_dead") != 1 || len(b.counts.rows) != 4 {
			t.Fatalf("%v", b.counts.rows)
		}
	})
}
