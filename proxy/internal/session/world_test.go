package session

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// What was on its way to an actor that ends is given back, whether it had reached
// the mailbox or comes later: in the simulation, seed 247 lost a lease this way.
func TestWhatReachesAnEndedActorIsGivenBack(t *testing.T) {
	for range 20 { // the choice between two ready channels is random
		b := newBenchOf(t, setUp{provider: "ChatGPT", accounts: []string{"a"}, firstEvent: 1})
		a := newActor(affinity.Derive(affinity.Source{RequestID: "r"}), b.registry)
		w := &goroutines{}
		before, late := newFakeConn(), newFakeConn()
		lease, err := b.accounts.Acquire(context.Background(), account.Want{})
		if err != nil {
			t.Fatal(err)
		}
		w.post(a, dialed{conn: before})
		w.post(a, leased{lease: lease})
		a.stop()
		if m := (dialed{conn: late}); !w.post(a, m) {
			a.undo(m)
		}
		if b.inflight() != 0 || !before.isClosed() || !late.isClosed() {
			t.Fatalf("leases %d, connection before the end closed %t, after it %t", b.inflight(), before.isClosed(), late.isClosed())
		}
		b.end()
	}
}

// A kept answer is given out until a client has got it, and not for ever: in the
// simulation, seed 941 got the same incomplete answer again and again.
func TestScenario96_AnAnswerIsReplayedUntilItIsDelivered(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		b.ask("t", toolOutput) // its client does not hear of the answer
		b.in(answer(1)...)
		again := b.ask("t", toolOutput)
		if _, ended, code := again.take(); !ended || code != "" || b.counts.of("replayed transcript") != 1 {
			b.t.Fatalf("ended %t with %q, %d replays", ended, code, b.counts.of("replayed transcript"))
		}
		b.registry.Delivered(again.Turn)
		synctest.Wait()
		before := b.sent()
		b.ask("t", toolOutput)
		if b.counts.of("replayed transcript") != 1 || b.sent() != before+1 {
			b.t.Errorf("%d replays, %d requests sent", b.counts.of("replayed transcript"), b.sent()-before)
		}
	})
}
