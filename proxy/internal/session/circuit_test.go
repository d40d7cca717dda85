package session

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// code lets what has arrived be read and returns how the turn ended.
func (a *asked) code() string {
	_, _, code := a.take()
	return code
}

// anchored serves one turn on a thread, so that the key has an anchor r0.
func (b *bench) anchored(thread string) {
	b.t.Helper()
	a := b.ask(thread, conversation(0))
	b.in(answer(0)...)
	expect(b.t, a, "created output_item.done completed", true, "")
	for b.newest().frame() != "" {
	}
}

// cutTurn asks and loses the connection before any event.
func (b *bench) cutTurn(thread, body string) string {
	a := b.ask(thread, body)
	b.in(errReset)
	return a.code()
}

func TestScenario7_StrikeComesBeforeTheTerminal(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		b.cutTurn("t", toolOutput)
		a := b.ask("t", toolOutput+" ")
		b.newest().in <- errReset
		for ended := false; !ended; { // a client that resends the instant it sees the end
			<-a.Out.Ready()
			_, ended, _ = a.take()
		}
		if code := b.ask("t", toolOutput+"  ").code(); code != "upstream_request_timeout" {
			t.Fatalf("the resend was answered %q, want the open circuit: %+v", code, b.detail("t"))
		}
	})
}

func TestScenario10_AProbeOutlivesItsLease(t *testing.T) {
	inBubbleOf(t, setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a"}, firstEvent: 3600}, func(b *bench) {
		b.cutTurn("t", body)
		b.cutTurn("t", body)
		pass(61 * time.Second)
		probe := b.ask("t", body)
		dials := b.dialer.count()
		for range 30 {
			pass(time.Minute)
			a := b.ask("t", body)
			batch := a.Out.Take(nil)
			if f := batch.Failure; f == nil || f.Reason != ReasonHalfOpen || f.RetryAfter <= 0 || f.RetryAfter > time.Minute {
				t.Fatalf("beside a probe: %+v", f)
			}
		}
		if b.dialer.count() != dials || b.counts.of("probe taken") != 1 {
			t.Fatalf("%d connections, %d probes", b.dialer.count(), b.counts.of("probe taken"))
		}
		b.in(created("r1"))
		beside := b.ask("t", body)
		if _, ended, code := beside.take(); ended {
			t.Fatalf("after the probe was created a turn is answered %q", code)
		}
		b.in(created("r2"), completed("r2"))
		expect(t, beside, "created completed", true, "")
		b.dialer.conn(dials - 1).play(completed("r1"))
		synctest.Wait()
		expect(t, probe, "created completed", true, "")
		if d := b.detail("t"); d.Circuit != "closed" || d.Strikes != 0 {
			t.Fatalf("%+v", d.View)
		}
	})
}

func TestScenario12_AProbeIsNotLostBeforeItIsSent(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.cutTurn("t", body)
		b.cutTurn("t", body)
		pass(61 * time.Second)
		b.dialer.mu.Lock()
		b.dialer.err = &upstream.DialError{}
		b.dialer.mu.Unlock()
		if code := b.ask("t", body).code(); code == "upstream_request_timeout" || code == "" {
			t.Fatalf("the first turn after the cool-down: %q", code)
		}
		pass(3 * time.Second) // the account's pause after a failed dial
		b.dialer.mu.Lock()
		b.dialer.err = nil
		b.dialer.mu.Unlock()
		next := b.ask("t", body)
		third := b.ask("t", body)
		if code := third.code(); code != "upstream_request_timeout" {
			t.Fatalf("a third turn beside the probe: %q", code)
		}
		b.in(created("r1"), completed("r1"))
		expect(t, next, "created completed", true, "")
	})
}

func TestScenario12_AProbeWhoseClientLeavesIsReturned(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.cutTurn("t", body)
		b.cutTurn("t", body)
		pass(61 * time.Second)
		b.ask("t", body).detach()
		pass(2 * time.Second) // the grace of a client that left
		if b.counts.of("probe returned") != 1 {
			t.Fatalf("%v", b.counts.rows)
		}
		next := b.ask("t", body)
		b.in(created("r1"), completed("r1"))
		expect(t, next, "created completed", true, "")
	})
}

func TestScenario27_ASuppressedTurnLeavesNothing(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.cutTurn("t", body)
		b.cutTurn("t", body)
		before, dials := b.detail("t"), b.dialer.count()
		for range 5 {
			pass(time.Second)
			if code := b.ask("t", body).code(); code != "upstream_request_timeout" {
				t.Fatal(code)
			}
		}
		after := b.detail("t")
		if !after.CircuitUntil.Equal(*before.CircuitUntil) || after.Version != before.Version || after.Turns != 0 || len(after.Attempts) != len(before.Attempts) {
			t.Fatalf("before %+v\nafter %+v", before.View, after.View)
		}
		if b.inflight() != 0 || b.dialer.count() != dials || b.registry.Counts().Active != 0 {
			t.Fatalf("%d leases, %d connections", b.inflight(), b.dialer.count()-dials)
		}
		if n := b.counts.of("suppressed hard_key_cooldown"); n != 5 {
			t.Fatalf("%d of 5 suppressions are counted: %v", n, b.counts.rows)
		}
	})
}

func TestScenario29_ALateObserverOfAnOldAttempt(t *testing.T) {
	inBubbleOf(t, setUp{provider: bundle.ProviderOpenAIPlatform, accounts: []string{"a", "b"}, firstEvent: 120}, func(b *bench) {
		a := b.ask("t", body)
		first := b.newest()
		pass(121 * time.Second) // silence: it goes to the other account, once
		if b.dialer.count() != 2 || b.detail("t").Strikes != 1 {
			t.Fatalf("%d connections, %d strikes", b.dialer.count(), b.detail("t").Strikes)
		}
		first.in <- errReset // the first attempt's reader comes late
		synctest.Wait()
		if got := b.detail("t").Strikes; got != 1 {
			t.Fatalf("%d strikes after the late end of the first attempt", got)
		}
		b.in(created("r1"), completed("r1"))
		expect(t, a, "created completed", true, "")
	})
}

func TestScenario63_AReplacementHasItsOwnClock(t *testing.T) {
	inBubbleOf(t, setUp{provider: bundle.ProviderOpenAIPlatform, accounts: []string{"a", "b"}, firstEvent: 120}, func(b *bench) {
		a := b.ask("t", body)
		stuck := b.newest()
		sent := stuck.frame()
		pass(121 * time.Second)
		replacement := b.newest()
		if replacement == stuck || replacement.account == stuck.account {
			t.Fatal("Scenarios 61, 64: the replacement is on the stuck account")
		}
		if again := replacement.frame(); again != sent {
			t.Fatalf("Scenario 61: the body changed:\n%s\n%s", sent, again)
		}
		pass(110 * time.Second)
		if _, ended, _ := a.take(); ended {
			t.Fatal("the replacement was born stuck")
		}
		b.in(created("r1"), completed("r1"))
		expect(t, a, "created completed", true, "")
	})
}

func TestScenario32_DistinctRetriesCount(t *testing.T) {
	inBubbleOf(t, setUp{provider: bundle.ProviderOpenAIPlatform, accounts: []string{"a", "b"}, firstEvent: 120}, func(b *bench) {
		a := b.ask("t", body)
		pass(121 * time.Second)
		pass(121 * time.Second)
		if code := a.code(); code != "bridge_eventless_timeout" {
			t.Fatal(code)
		}
		d := b.detail("t")
		if d.Strikes != 2 || d.Circuit != "open" || time.Until(*d.CircuitUntil) > time.Minute {
			t.Fatalf("%+v", d.View)
		}
	})
}

func TestScenario36_CircuitsAreOfOneKey(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.cutTurn("t", body)
		b.cutTurn("t", body)
		other := b.ask("u", body)
		b.in(created("r1"), completed("r1"))
		expect(t, other, "created completed", true, "")

		soft := strings.Replace(body, `"model":"m"`, `"model":"m","prompt_cache_key":"k"`, 1)
		for range 4 {
			a := b.askSoft(soft)
			b.in(errReset)
			if code := a.code(); code != "stream_incomplete" {
				t.Fatalf("a soft key is answered %q", code)
			}
		}
	})
}

// askSoft asks on a key that promises nothing.
func (b *bench) askSoft(body string) *asked {
	facts := affinity.Read([]byte(body))
	t := &Turn{ID: "soft" + time.Now().String(), Body: []byte(body), Facts: facts, Runtime: b.runtime, Out: NewOutbox()}
	t.Key = affinity.Derive(affinity.Source{PromptCacheKey: facts.PromptCacheKey, RequestID: t.ID})
	a := &asked{Turn: t}
	a.detach = b.registry.Submit(t)
	synctest.Wait()
	return a
}

func TestScenario37_ALaneSettlesNothingElse(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.cutTurn("t", body)
		long := b.ask("t", body)
		main := b.newest()
		beside := b.ask("t", body) // an independent turn gets a lane
		if b.newest() == main {
			t.Fatal("no lane")
		}
		b.in(created("r2"), completed("r2"))
		expect(t, beside, "created completed", true, "")
		if got := b.detail("t").Strikes; got != 1 {
			t.Fatalf("Scenario 124: the lane settled the circuit of its parent: %d strikes", got)
		}
		main.play(created("r1"), completed("r1"))
		synctest.Wait()
		expect(t, long, "created completed", true, "")
		if got := b.detail("t").Strikes; got != 0 {
			t.Fatalf("%d strikes", got)
		}
	})
}

func TestScenario38_ACircuitThatOpensBeforeASend(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		b.cutTurn("t", toolOutput)
		first := b.ask("t", toolOutput+" ")
		waiting := b.ask("t", toolOutput+"  ") // admitted, and behind the first
		if _, ended, _ := waiting.take(); ended {
			t.Fatal("not admitted")
		}
		before := b.sent()
		b.in(errReset)
		if first.code() != "stream_incomplete" || waiting.code() != "upstream_request_timeout" {
			t.Fatal("the waiting turn was not stopped")
		}
		if b.sent() != before {
			t.Fatal("something was sent")
		}
	})
}

func TestScenario1_EachTurnOfAGroupHasItsVerdict(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		one := b.ask("t", toolOutput)
		two := b.ask("t", toolOutput+" ")
		b.in(`{"type":"error","error":{"type":"server_error","message":"it broke"},"status":500}`)
		b.in(`{"type":"error","error":{"type":"server_error","message":"it broke"},"status":500}`)
		for _, a := range []*asked{one, two} {
			if types, ended, code := a.take(); len(types) != 0 || !ended || code != "server_error" {
				t.Fatalf("%q %v %q", types, ended, code)
			}
		}
		d := b.detail("t")
		if b.counts.of("strike StreamIncomplete") != 2 || d.Strikes != 2 {
			t.Fatalf("%d strikes", d.Strikes)
		}
		if d.Circuit != "open" || d.Anchor != "suspect" {
			t.Fatalf("Scenario 2: the group opened the circuit: %+v", d.View)
		}
		if o := b.registry.Overview(); o.Open != 1 || o.Quarantined != 1 || o.Circuits[0].Reason != "StreamIncomplete" {
			t.Fatalf("%+v", o)
		}
	})
}

func TestScenario3_AnEndIsDeliveredWhateverTheStoreDoes(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		one, two := b.ask("t", toolOutput), b.ask("t", toolOutput+" ")
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		b.registry.Close(ctx)
		for _, a := range []*asked{one, two} {
			if _, ended, code := a.take(); !ended || code != "draining" {
				t.Fatalf("%v %q", ended, code)
			}
		}
		if b.inflight() != 0 {
			t.Fatal("a lease is held")
		}
	})
}

func TestScenario68_TelemetryIsNoLife(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		a := b.ask("t", body)
		b.in(`{"type":"codex.rate_limits","rate_limits":{}}`)
		pass(119 * time.Second)
		b.in(`{"type":"codex.rate_limits","rate_limits":{}}`)
		pass(2 * time.Second)
		if types, ended, code := a.take(); !ended || code != "bridge_eventless_timeout" {
			t.Fatalf("%q %v %q", types, ended, code)
		}
		if b.detail("t").Strikes != 1 {
			t.Fatal("no strike")
		}
	})
}

func TestScenario69_ProgressBeforeCreatedIsLife(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		for range 10 {
			b.in(delta("x"))
			pass(200 * time.Second)
		}
		if _, ended, code := a.take(); ended {
			t.Fatal(code)
		}
		b.in(created("r1"), completed("r1"))
		expect(t, a, "created completed", true, "")
	})
}

func TestScenario121_CleanCloses(t *testing.T) {
	inBubble(t, bundle.ProviderOpenAIPlatform, func(b *bench) {
		a := b.ask("t", body)
		for i := range 3 {
			if b.dialer.count() != i+1 {
				t.Fatalf("%d connections before close %d", b.dialer.count(), i+1)
			}
			b.in(errClean)
			pass(2 * time.Second)
		}
		if _, ended, code := a.take(); !ended || code != "stream_incomplete" {
			t.Fatalf("%v %q", ended, code)
		}
		if b.dialer.count() != 3 || b.counts.of("replayed neutral") != 2 {
			t.Fatalf("%d connections, %v", b.dialer.count(), b.counts.rows)
		}
		if d := b.detail("t"); d.Circuit != "open" || time.Until(*d.CircuitUntil) > 30*time.Second {
			t.Fatalf("%+v", d.View)
		}
	})
}
