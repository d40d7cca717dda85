package session

import (
	"net/http"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// neutralBody is a turn that any account can run, and run twice.
const neutralBody = `{"model":"m","stream":true,"store":false,"input":[{"role":"user","content":"hi"}]}`

func TestScenario67_WhatShowedAnythingIsNotReplaced(t *testing.T) {
	for name, events := range map[string][]any{
		"created":     {created("r1")},
		"in progress": {inProgress},
		"an item":     {`{"type":"response.output_item.added","item":{"type":"message"}}`},
		"a delta":     {created("r1"), text},
	} {
		for how, end := range map[string]any{"cut": errReset, "closed": errClean, "silence": nil} {
			t.Run(name+", "+how, func(t *testing.T) {
				inBubbleOf(t, ofAll("a", "b"), func(b *bench) {
					a := b.ask("t", neutralBody)
					b.in(events...)
					if end != nil {
						b.in(end)
					} else {
						pass(silentIdles * 301 * time.Second)
					}
					pass(maxPause)
					if _, ended, code := a.take(); !ended || code == "" || b.sent() != 1 {
						t.Fatalf("%q after %d requests", code, b.sent())
					}
				})
			})
		}
	}
}

// Scenario 70: a turn that waits behind a silent one is served when that one's
// first event is overdue, not before, and not later; behind one whose socket ended
// at once.
func TestScenario70_BehindASilentTurn(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		holder := b.ask("t", toolOutput)
		waiter := b.ask("t", toolOutput+" ")
		before := b.sent()
		pass(119 * time.Second)
		if _, ended, _ := holder.take(); ended || b.sent() != before {
			t.Fatal("retired before its first event was overdue")
		}
		pass(2 * time.Second)
		if code := holder.code(); code != failure.EventlessTimeout || b.sent() != before+1 {
			t.Fatalf("%q, %d requests: the waiter starves", code, b.sent()-before)
		}
		waiter.detach()
	})
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		b.ask("t", toolOutput)
		b.ask("t", toolOutput+" ")
		before := b.sent()
		b.in(errReset)
		if b.sent() != before+1 {
			t.Fatal("the socket ended, and the waiter still waits")
		}
	})
}

// Scenario 74: a turn that waits gets the account that becomes free in the last
// moment of its budget.
func TestScenario74_TheLastMomentOfABudget(t *testing.T) {
	inBubbleOf(t, ofAll("a"), func(b *bench) {
		rt := *b.runtime
		rt.Bundle.Pool.Accounts = []bundle.Account{{Name: "a", State: bundle.AccountEnabled, MaxConcurrent: 1}}
		b.accounts.Update(&rt)
		lease, err := b.accounts.Acquire(t.Context(), account.Want{})
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{deadline.TimeoutHeader: {"20000"}}
		limits := deadline.For(b.runtime.Bundle.Circuit.Deadlines, 30*time.Second, deadline.Text, true)
		budget, _ := deadline.NewBudget(header.Get, true, limits, time.Now())
		a := b.askFor("t", body, budget)
		pass(19*time.Second + 900*time.Millisecond)
		lease.Release()
		pass(0)
		if b.sent() != 1 {
			t.Fatal("it had given up")
		}
		b.in(created("r1"), completed("r1"))
		expect(t, a, "created completed", true, "")
	})
}

// Scenario 75: the ninth turn of a session that waits for the one before it is
// refused; local overload is a 503 with a hint, since a 429 ends a Codex turn.
func TestScenario75_TheQueueOfASessionIsBounded(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		var turns []*asked
		suffix := ""
		for range maxOrdered {
			suffix += " "
			turns = append(turns, b.ask("t", toolOutput+suffix))
		}
		ninth := b.ask("t", toolOutput+suffix+" ")
		batch := ninth.Out.Take(nil)
		if f := batch.Failure; f == nil || f.Code != failure.BulkheadFull || f.Status != http.StatusServiceUnavailable || f.RetryAfter == 0 || f.LimitScope != "session" {
			t.Fatalf("%+v", batch.Failure)
		}
		turns[3].detach() // one place is free
		pass(time.Second)
		again := b.ask("t", toolOutput+suffix+"  ")
		if _, ended, code := again.take(); ended {
			t.Fatalf("refused with %q though there is room", code)
		}
		for _, a := range append(turns, again) {
			a.detach()
		}
	})
}
