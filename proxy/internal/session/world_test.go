package session

import (
	"context"
	"testing"

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
