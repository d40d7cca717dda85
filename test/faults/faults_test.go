package faults

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/fleet"
	"github.com/causeway-dev/causeway/test/upstream"
)

func TestMain(m *testing.M) {
	fleet.ServeIfReplica()
	os.Exit(m.Run())
}

// world is three replicas with their upstream and their store.
type world struct {
	*fleet.Fleet
	up    *upstream.Server
	redis *fleet.Redis
	talks []*talk
}

func newWorld(t *testing.T, mode upstream.Mode, provider string) *world {
	t.Helper()
	t.Parallel()
	slow := upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{InputContains: "slowly"},
		Respond: &upstream.Respond{Text: "one two three four five six seven eight nine ten", EventDelay: upstream.Duration(150 * time.Millisecond)}}}}
	w := &world{
		up:    upstream.Start(t, upstream.Options{Mode: mode, Accounts: map[string]string{fleet.AccountKey: "first"}, Script: slow, KeepBodies: true}),
		redis: fleet.StartRedis(t),
	}
	w.Fleet = fleet.Start(t, 3, fleet.Options{Provider: provider, Endpoint: w.up.URL + "/v1", Redis: w.redis.Address})
	return w
}

const conversations = 12

// begin holds two turns of each conversation, through different replicas.
func (w *world) begin(t *testing.T) {
	t.Helper()
	for i := range conversations {
		c := w.talk(fmt.Sprint("talk", i))
		w.talks = append(w.talks, c)
		c.must(t, i%3, "hello")
		c.must(t, (i+1)%3, "go on")
	}
}

// onceEach holds that no request reached the upstream twice.
func (w *world) onceEach(t *testing.T) {
	t.Helper()
	all := w.up.Ledger().Dispatches()
	for _, c := range w.talks {
		for _, mark := range c.sent {
			n := 0
			for i := range all {
				if bytes.Contains(all[i].Body, []byte(mark)) && all[i].Executed() {
					n++
				}
			}
			if n > 1 {
				t.Errorf("request %s was dispatched %d times", mark, n)
			}
		}
	}
}

// anchored counts the conversations whose last dispatch was anchored.
func (w *world) anchored() int {
	last := map[string]bool{}
	for _, d := range w.up.Ledger().Dispatches() {
		last[d.Session] = d.Anchor != "" && d.AnchorResolved
	}
	n := 0
	for _, yes := range last {
		if yes {
			n++
		}
	}
	return n
}

// goOn holds that every conversation is served at once. A turn that failed is
// sent once more, as its client would.
func (w *world) goOn(t *testing.T, replicas ...int) (failed int) {
	t.Helper()
	for i, c := range w.talks {
		if a := c.ask(t.Context(), replicas[i%len(replicas)], "and now?"); !a.ok() {
			failed++
			c.must(t, replicas[(i+1)%len(replicas)], "")
		}
	}
	w.onceEach(t)
	return failed
}

// builtUpon holds that every conversation is anchored again within two more turns:
// the first makes an anchor, the second uses it.
func (w *world) builtUpon(t *testing.T, replicas ...int) {
	t.Helper()
	for i, c := range w.talks {
		c.must(t, replicas[i%len(replicas)], "once more")
		c.must(t, replicas[(i+1)%len(replicas)], "and again")
	}
	if n := w.anchored(); n != len(w.talks) {
		t.Errorf("%d of %d conversations are built upon again", n, len(w.talks))
	}
	w.onceEach(t)
}

// recognised waits until those who left a replica or the store alone for a moment
// ask again.
func recognised() { <-time.After(4 * time.Second) }

// leaseOver waits until what a lost replica owned is free.
func leaseOver() { <-time.After(31 * time.Second) }

func TestScenario95_AReplicaIsKilled(t *testing.T) {
	w := newWorld(t, upstream.ModeChatGPT, bundle.ProviderChatGPT)
	w.begin(t)
	var wg sync.WaitGroup
	answers := make([]answer, len(w.talks))
	begun := len(w.up.Ledger().Dispatches())
	slowAt := make([]int, len(w.talks))
	for i, c := range w.talks {
		slowAt[i] = len(c.items)
		wg.Go(func() { answers[i] = c.ask(t.Context(), i%3, "slowly") })
	}
	bounded, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := w.up.Ledger().Wait(bounded, func(d []upstream.Dispatch) bool { return len(d) >= begun+len(w.talks) }); err != nil {
		t.Fatal(err)
	}
	w.Signal(1, syscall.SIGKILL)
	w.Ready(0, 2)
	wg.Wait()
	lost := 0
	for i, a := range answers {
		c := w.talks[i]
		if !a.ok() {
			lost++
			c.must(t, 2*(i%2), "") // B28: nobody waits for the lease of the dead
		}
		c.items = c.items[:slowAt[i]] // the rest of the test is not slow
	}
	if lost == 0 {
		t.Error("the killed replica served nothing; the test proves nothing")
	}
	failed := w.goOn(t, 0, 2)
	w.Start(1)
	w.Ready(0, 1, 2)
	failed += w.goOn(t, 0, 1, 2)
	leaseOver()
	w.builtUpon(t, 0, 1, 2)
	t.Logf("kill -9: %d of %d live turns lost once, %d turns failed after it", lost, len(w.talks), failed)
	if failed > 0 {
		t.Error("more than the live turns were lost")
	}
}

func TestB31_AReplicaIsStoppedPastItsLease(t *testing.T) {
	w := newWorld(t, upstream.ModeChatGPT, bundle.ProviderChatGPT)
	w.begin(t)
	w.Signal(1, syscall.SIGSTOP)
	w.Ready(0, 2)
	failed := w.goOn(t, 0, 2)
	leaseOver()
	w.builtUpon(t, 0, 2)
	w.Signal(1, syscall.SIGCONT)
	w.Ready(0, 1, 2)
	again := w.goOn(t, 0, 1, 2)
	t.Logf("SIGSTOP for longer than a lease: %d turns failed while it was stopped, %d after it came back", failed, again)
	if failed > 0 || again > 0 {
		t.Error("turns failed")
	}
}

func TestTheStoreLosesItsData(t *testing.T) {
	w := newWorld(t, upstream.ModePlatform, bundle.ProviderOpenAIPlatform)
	w.begin(t)
	w.redis.Forget()
	failed := w.goOn(t, 0, 1, 2)
	w.builtUpon(t, 0, 1, 2)
	t.Logf("Redis restarted without its data: %d turns failed", failed)
	if failed > 0 {
		t.Error("turns failed")
	}
}

func TestScenario94_TheStoreIsPausedFor40Seconds(t *testing.T) {
	w := newWorld(t, upstream.ModeChatGPT, bundle.ProviderChatGPT)
	w.begin(t)
	w.redis.Signal(syscall.SIGSTOP)
	begun := time.Now()
	var slowest time.Duration
	turns := 0
	for time.Since(begun) < 40*time.Second {
		for i, c := range w.talks {
			a := c.must(t, i%3, "still there?")
			turns++
			slowest = max(slowest, a.took)
		}
		fresh := w.talk(fmt.Sprint("fresh", turns))
		slowest = max(slowest, fresh.must(t, turns%3, "hello").took)
		<-time.After(time.Second)
	}
	w.redis.Signal(syscall.SIGCONT)
	failed := w.goOn(t, 0, 1, 2)
	recognised()
	w.builtUpon(t, 0, 1, 2)
	t.Logf("Redis paused for 40 s: %d turns meanwhile, the slowest took %v; %d turns failed after it", turns, slowest, failed)
	if slowest > 2*time.Second {
		t.Errorf("a turn waited %v: clients wait for the store", slowest)
	}
	if failed > 0 {
		t.Error("turns failed")
	}
}
