package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
)

// ofAll is a pool in which every account is asked before any is asked twice.
func ofAll(accounts ...string) setUp {
	return setUp{provider: bundle.ProviderChatGPT, accounts: accounts, firstEvent: 120}
}

const (
	overloadedError  = `{"type":"error","status":503,"error":{"type":"service_unavailable_error","code":"server_is_overloaded","message":"busy"}}`
	overloadedFailed = `{"type":"response.failed","response":{"id":"r1","status":"failed","error":{"code":"server_is_overloaded","message":"busy"}}}`
	slowDownFailed   = `{"type":"response.failed","response":{"id":"r1","status":"failed","error":{"code":"slow_down","message":"busy"}}}`
	inProgress       = `{"type":"response.in_progress","response":{"id":"r1"}}`
	text             = `{"type":"response.output_text.delta","response_id":"r1","delta":"x"}`
)

// An upstream that has too much to do says so within a 200, after it has created
// the response. Nothing of that reaches the client: another account takes over.
func TestB41_OverloadWithinTheAnswerGoesToAnotherAccount(t *testing.T) {
	for name, tc := range map[string][]any{
		"B41: created, in progress, failed":       {created("r1"), inProgress, overloadedFailed},
		"B41: slow down":                          {created("r1"), slowDownFailed},
		"B111: an error, then failed":             {created("r1"), overloadedError, overloadedFailed},
		"B111: an error before anything":          {overloadedError, overloadedFailed},
		"telemetry first":                         {`{"type":"codex.rate_limits","rate_limits":{}}`, created("r1"), overloadedFailed},
		"queued":                                  {`{"type":"response.queued","response":{"id":"r1"}}`, created("r1"), overloadedFailed},
		"at capacity, in words":                   {created("r1"), `{"type":"response.failed","response":{"id":"r1","error":{"code":"x","message":"Selected model is at capacity. Please try a different model."}}}`},
		"a limit of the account, before anything": {`{"type":"error","status":429,"error":{"code":"usage_limit_reached","message":"full","resets_in_seconds":9}}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleOf(t, ofAll("a", "b"), func(b *bench) {
				a := b.ask("t", body)
				first := b.newest()
				b.in(tc...)
				pass(maxPause)
				if types, ended, code := a.take(); len(types) > 0 || ended || code != "" {
					t.Fatalf("the client saw %s, %v, %s", types, ended, code)
				}
				if b.dialer.count() != 2 || b.newest().account == first.account {
					t.Fatalf("%d connections, the last to %s", b.dialer.count(), b.newest().account)
				}
				b.in(created("r2"), completed("r2"))
				expect(t, a, "created completed", true, "")
				if b.sent() != 2 {
					t.Fatalf("%d requests", b.sent())
				}
			})
		})
	}
}

// Where there is nobody else, the same account is asked once more, after a pause.
func TestB41_TheOnlyAccountIsAskedOnceMore(t *testing.T) {
	inBubbleOf(t, ofAll("a"), func(b *bench) {
		a := b.ask("t", body)
		b.in(created("r1"), overloadedFailed)
		pass(maxPause)
		if b.sent() != 2 {
			t.Fatalf("%d requests", b.sent())
		}
		b.in(created("r2"), strings.ReplaceAll(overloadedFailed, "r1", "r2"))
		pass(maxPause)
		if code := a.code(); code != "" || b.sent() != 2 {
			t.Fatalf("%q after %d requests: maxAttempts is 2", code, b.sent())
		}
		for _, s := range b.accounts.States() {
			if s.State != "Usable" {
				t.Fatalf("B112: %+v", s)
			}
		}
	})
}

// The codes that end a Codex session are changed once nothing else is possible;
// the message is not.
func TestB111_FatalCodesAreRewritten(t *testing.T) {
	failedText := func(a *asked) string {
		batch := a.Out.Take(nil)
		if len(batch.Events) == 0 {
			return ""
		}
		return string(batch.Events[len(batch.Events)-1].Data)
	}
	for _, code := range []string{"server_is_overloaded", "slow_down"} {
		inBubbleOf(t, ofAll("a", "b"), func(b *bench) {
			a := b.ask("t", body)
			b.in(created("r1"), text, strings.Replace(overloadedFailed, "server_is_overloaded", code, 1))
			got := failedText(a)
			if gjson.Get(got, "response.error.code").Str != "server_error" || gjson.Get(got, "response.error.message").Str != "busy" || gjson.Get(got, "response.id").Str != "r1" {
				t.Fatalf("%s after output: %s", code, got)
			}
			if b.sent() != 1 {
				t.Fatalf("what worked was sent %d times", b.sent())
			}
		})
	}
	inBubbleOf(t, ofAll("a"), func(b *bench) {
		a := b.ask("t", body)
		b.in(overloadedError)
		pass(maxPause)
		b.in(overloadedError)
		batch := a.Out.Take(nil)
		f := batch.Failure
		if f == nil || f.Code != "server_error" || gjson.GetBytes(f.Raw, "code").Str != "server_error" || f.Status != 503 || f.RetryAfter == 0 {
			t.Fatalf("before output: %+v", f)
		}
	})
}

// What shows no work is held for a moment, and no longer.
func TestCreatedIsHeldForAMoment(t *testing.T) {
	inBubbleOf(t, ofAll("a", "b"), func(b *bench) {
		a := b.ask("t", body)
		b.in(created("r1"), inProgress)
		pass(DefaultHold - time.Millisecond)
		expect(t, a, "", false, "")
		pass(time.Millisecond)
		expect(t, a, "created in_progress", false, "")
		b.in(overloadedFailed)
		if b.sent() != 1 {
			t.Fatal("the client had seen it begin, and it was sent again")
		}
		expect(t, a, "failed", true, "")
	})
	inBubbleOf(t, ofAll("a"), func(b *bench) {
		a := b.ask("t", body)
		b.in(created("r1"), text)
		expect(t, a, "created output_text.delta", false, "") // work shows at once
		b.in(inProgress)
		expect(t, a, "in_progress", false, "")
	})
	inBubbleOf(t, ofAll("a"), func(b *bench) {
		a := b.ask("t", body)
		for range maxHeld + 1 {
			b.in(`{"type":"codex.rate_limits"}`)
		}
		if types, _, _ := a.take(); len(types) != maxHeld+1 {
			t.Fatalf("%d events of %d: what is held is bounded", len(types), maxHeld+1)
		}
	})
}

// A client that leaves while events are held leaves no event behind.
func TestHeldEventsOfAClientThatLeft(t *testing.T) {
	inBubbleOf(t, ofAll("a"), func(b *bench) {
		a := b.ask("t", body)
		b.in(created("r1"))
		a.detach()
		b.in(completed("r1"))
		synctest.Wait()
		if types, _, _ := a.take(); len(types) != 0 || b.registry.Counts().Active != 0 || b.inflight() != 0 {
			t.Fatalf("%s", types)
		}
	})
}
