package faults

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/fleet"
	"github.com/causeway-dev/causeway/test/upstream"
)

func TestMain(m *testing.M) {
	fleet.ServeIfReplica()
	flag.Parse()
	// These tests wait for leases, not for processors.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// world is three replicas with their upstream and their store.
type world struct {
	*fleet.Fleet
	up    *upstream.Server
	redis *fleet.Redis
	talks []*talk
}

// slowly marks a request whose answer takes a second and a half.
const slowly = "slowly"

func newWorld(t *testing.T, mode upstream.Mode, provider string) *world {
	t.Helper()
	slow := upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{InputContains: slowly},
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
func (w *world) begin(t *testing.T, deltas bool) {
	t.Helper()
	for i := range conversations {
		c := w.talk(fmt.Sprint("talk", i))
		c.deltas = deltas
		w.talks = append(w.talks, c)
		c.must(t, i%3, "hello")
		c.must(t, (i+1)%3, "go on")
	}
}

// during runs break while every conversation has a slow turn under way, by way of
// some replicas, and returns what came of those; clients leave after some seconds.
func (w *world) during(t *testing.T, breaks func(), replicas ...int) []answer {
	t.Helper()
	const patience = 6 * time.Second
	var asking sync.WaitGroup
	answers := make([]answer, len(w.talks))
	begun := len(w.up.Ledger().Dispatches())
	for i, c := range w.talks {
		asking.Go(func() {
			ctx, leave := context.WithTimeout(t.Context(), patience)
			defer leave()
			c.says("take your time")
			answers[i] = c.send(ctx, replicas[i%len(replicas)], c.request(slowly))
		})
	}
	bounded, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := w.up.Ledger().Wait(bounded, func(d []upstream.Dispatch) bool { return len(d) >= begun+len(w.talks) }); err != nil {
		t.Fatal(err)
	}
	written()
	breaks()
	asking.Wait()
	if !slices.ContainsFunc(answers, func(a answer) bool { return !a.ok() }) {
		t.Error("no turn was lost; the test proves nothing")
	}
	return answers
}

// again sends the turns that were lost once more, and counts them.
func (w *world) again(t *testing.T, answers []answer, replicas ...int) (lost int) {
	t.Helper()
	var asking sync.WaitGroup
	for i, c := range w.talks {
		if answers[i].ok() {
			continue
		}
		lost++
		asking.Go(func() {
			if a := c.ask(t.Context(), replicas[i%len(replicas)], ""); !a.ok() {
				t.Errorf("%s failed twice: status %d, %v\n%.600s", c.thread, a.status, a.err, a.body)
			}
		})
	}
	asking.Wait()
	w.onceEach(t)
	return lost
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

// unanchored are the conversations whose last dispatch was not anchored.
func (w *world) unanchored() (threads []string) {
	last := map[string]bool{}
	for _, d := range w.up.Ledger().Dispatches() {
		last[d.Session] = d.Anchor != "" && d.AnchorResolved
	}
	for _, c := range w.talks {
		if !last[c.thread] {
			threads = append(threads, c.thread)
		}
	}
	return threads
}

// goOn holds that every conversation is served at once. A turn that failed is
// sent once more, as its client would.
func (w *world) goOn(t *testing.T, replicas ...int) (failed int) {
	t.Helper()
	for i, c := range w.talks {
		if a := c.ask(t.Context(), replicas[i%len(replicas)], "and now?"); !a.ok() {
			failed++
			t.Logf("%s at pod-%d: status %d, %v: %.300s", c.thread, replicas[i%len(replicas)], a.status, a.err, a.body)
			c.must(t, replicas[(i+1)%len(replicas)], "")
		}
	}
	w.onceEach(t)
	return failed
}

// builtUpon holds that every conversation is anchored again within two more turns:
// the first makes an anchor, the second uses it; and that the store knows the
// newest.
func (w *world) builtUpon(t *testing.T, replicas ...int) {
	t.Helper()
	for i, c := range w.talks {
		c.must(t, replicas[i%len(replicas)], "once more")
	}
	written()
	for i, c := range w.talks {
		c.must(t, replicas[(i+1)%len(replicas)], "and again")
	}
	if threads := w.unanchored(); len(threads) > 0 {
		t.Errorf("not built upon again: %v", threads)
	}
	w.onceEach(t)
	w.recorded(t)
}

// recorded holds that the record of each conversation in the store names its last
// response: nobody who lost the key has written after who owns it.
func (w *world) recorded(t *testing.T) {
	t.Helper()
	store := redis.NewClient(&redis.Options{Addr: w.redis.Address, Protocol: 2})
	defer store.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var missing []string
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); <-tick.C { // it is written behind
		anchors := map[string]bool{}
		for keys := store.Scan(t.Context(), 0, "*:entry", 1000).Iterator(); keys.Next(t.Context()); {
			anchors[gjson.Get(store.HGet(t.Context(), keys.Val(), "value").Val(), "anchor.id").Str] = true
		}
		missing = nil
		for _, c := range w.talks {
			if !anchors[c.previous] {
				missing = append(missing, c.thread)
			}
		}
		if len(missing) == 0 {
			return
		}
	}
	t.Errorf("the store knows an older response of %v", missing)
}

// written waits until what the replicas have just done is in the store, and what
// they asked it for has come: they do not wait for it.
func written() { <-time.After(200 * time.Millisecond) }

// recognised waits until those who left a replica or the store alone for a moment
// ask again.
func recognised() { <-time.After(4 * time.Second) }

// leaseOver waits until what a replica owned that was lost then is free.
func leaseOver(lost time.Time) { <-time.After(time.Until(lost.Add(31 * time.Second))) }

func chatGPT(t *testing.T) *world {
	t.Helper()
	return newWorld(t, upstream.ModeChatGPT, bundle.ProviderChatGPT)
}

func platform(t *testing.T) *world {
	t.Helper()
	return newWorld(t, upstream.ModePlatform, bundle.ProviderOpenAIPlatform)
}
