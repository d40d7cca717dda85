package bridge

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// B118: a conversation stays on its socket, where the upstream has its prompt cache
// warm. When its proxy gives way to another in the midst of it, it changes once.
func TestB118_FiftyTurnsAndOneChangeOfTheProxy(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT})
	shared := store.NewMemory(time.Now)
	open := func(pod string) {
		r.bridge.Close(context.Background())
		r.bridge = New(Options{Logger: r.bridge.log, Accounts: r.accounts, Metrics: r.metrics, Hold: r.bridge.hold,
			Store: shared, Holder: store.Holder{Pod: pod, Process: pod, Address: pod + ":8081"}})
	}
	open("one")
	c := r.conversation(thread("b118")...)
	for n := range 50 {
		if n == 25 {
			open("two")
		}
		r.served(c.say(fmt.Sprint("turn ", n)))
	}
	all := r.dispatches(50)
	anchored := 0
	for n, d := range all {
		if first := n / 25 * 25; d.Connection != all[first].Connection {
			t.Errorf("turn %d went to connection %d, not %d", n, d.Connection, all[first].Connection)
		}
		if d.Anchor != "" {
			anchored++
		}
	}
	if anchored != 49 {
		t.Errorf("%d of 49 turns were anchored", anchored)
	}
}
