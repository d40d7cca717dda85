package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/fleet"
	"github.com/causeway-dev/causeway/test/upstream"
)

const (
	conversations = 20
	// rounds are the commands that Codex runs in each turn of its user.
	rounds = 2
	// noticed is how long a cluster goes on sending clients to a replica that was
	// killed.
	noticed = time.Second
	// leaseOver is when nothing belongs to a killed replica any more.
	leaseOver = 31 * time.Second
)

// balancer stands for a Service: each new connection goes to the next of the
// addresses that are ready.
type balancer struct {
	ready atomic.Pointer[[]string]
	next  atomic.Uint64
}

func (b *balancer) set(addresses ...string) { b.ready.Store(&addresses) }

func (b *balancer) pick() string {
	ready := *b.ready.Load()
	return ready[b.next.Add(1)%uint64(len(ready))]
}

// crowd is many users of Codex behind one address, with three replicas.
type crowd struct {
	*fleet.Fleet
	up       *upstream.Server
	balancer balancer
	tap      *tap
	users    []*codex
	threads  []string
}

// heldPrompt is the prompt whose first request the upstream holds, for each user.
const heldPrompt = "Take your time."

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	held := func(at string) upstream.Rule {
		return upstream.Rule{Match: upstream.Match{InputContains: heldPrompt}, Repeat: conversations / 2,
			Fault: &upstream.Fault{At: at, Action: upstream.ActHold}}
	}
	c := &crowd{up: upstream.Start(t, upstream.Options{Accounts: map[string]string{fleet.AccountKey: "first"}, Script: upstream.Script{
		Conversation: &upstream.Conversation{ToolTurns: rounds, Command: "echo turn {{turn}} | tee -a notes", Reasoning: true, FinalText: "Answer {{turn}}."},
		Rules:        []upstream.Rule{held(upstream.AtAfterCreated), held(upstream.AfterEvents(3))},
	}})}
	redis := fleet.StartRedis(t)
	c.Fleet = fleet.Start(t, 3, fleet.Options{Provider: bundle.ProviderOpenAIPlatform, Endpoint: c.up.URL + "/v1", Redis: redis.Address})
	c.balancer.set(c.Address(0), c.Address(1), c.Address(2))
	c.tap = startTap(t, c.balancer.pick)
	for range conversations {
		c.users = append(c.users, newCodex(t, codexSettings{base: "http://" + c.tap.addr + "/v1", key: fleet.ClientKey}))
	}
	return c
}

// all gives every user's Codex the same prompt at the same time; meanwhile runs
// beside them.
func (c *crowd) all(t *testing.T, how []string, prompt string, meanwhile func()) []codexRun {
	t.Helper()
	runs, errs := make([]codexRun, len(c.users)), make([]error, len(c.users))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var running sync.WaitGroup
	for i, u := range c.users {
		running.Go(func() { runs[i], errs[i] = u.run(ctx, how, prompt) })
	}
	meanwhile()
	running.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("conversation %d: %v", i, err)
		}
	}
	return runs
}

// ofThread are the dispatches of one conversation.
func ofThread(all []upstream.Dispatch, thread string) []upstream.Dispatch {
	return slices.DeleteFunc(slices.Clone(all), func(d upstream.Dispatch) bool { return d.Session != thread })
}

// sockets are the connections that dispatches went over, in order.
func sockets(ds []upstream.Dispatch) []int64 {
	var numbers []int64
	for _, d := range ds {
		if !slices.Contains(numbers, d.Connection) {
			numbers = append(numbers, d.Connection)
		}
	}
	return numbers
}

// onOneSocket fails the test unless each conversation's requests became as many
// responses of one socket, each after the first anchored.
func (c *crowd) onOneSocket(t *testing.T, requests int) {
	t.Helper()
	all := c.up.Ledger().Dispatches()
	for i, thread := range c.threads {
		ds := ofThread(all, thread)
		ok := len(ds) == requests && len(sockets(ds)) == 1
		for n, d := range ds {
			ok = ok && d.Transport == upstream.TransportWS && d.Outcome == upstream.OutcomeCompleted && (n == 0) == (d.Anchor == "")
		}
		if !ok {
			t.Errorf("conversation %d: want %d requests on one socket, each after the first anchored; got%s", i, requests, describe(ds))
		}
	}
}

// requests counts what Codex sent in a conversation and a replica got.
func (c *crowd) requests(thread string) int {
	n := 0
	for _, r := range c.tap.requests() {
		if r.Header.Get("Thread-Id") == thread {
			n++
		}
	}
	return n
}

// Twenty users of Codex at once, three replicas behind one address. Each
// conversation stays on one upstream socket, whichever replica its connections
// come to. When a replica is killed while it serves them, each loses one turn at
// most, and Codex goes on by itself.
func TestScenario103_TwentyCodexOnThreeReplicasOfWhichOneIsKilled(t *testing.T) {
	c := newCrowd(t)
	begun := time.Now()
	const perTurn = rounds + 1
	for i, run := range c.all(t, newTalk, "Look around.", func() {}) {
		run.finished(t, rounds, fmt.Sprintf("Answer %d.", perTurn))
		c.threads = append(c.threads, run.thread)
		if i > 0 && slices.Contains(c.threads[:i], run.thread) {
			t.Fatalf("thread %s twice", run.thread)
		}
	}
	for _, run := range c.all(t, lastTalk, "Now look closer.", func() {}) {
		run.finished(t, rounds, fmt.Sprintf("Answer %d.", 2*perTurn))
	}
	c.onOneSocket(t, 2*perTurn)
	quiet := time.Since(begun)

	var killed time.Time
	before := len(c.up.Ledger().Dispatches())
	runs := c.all(t, lastTalk, heldPrompt, func() {
		err := c.up.Ledger().Wait(within(t, time.Minute), func(ds []upstream.Dispatch) bool { return len(ds) >= before+conversations })
		if err != nil {
			t.Error(err)
		}
		killed = time.Now()
		c.Signal(1, syscall.SIGKILL)
		for range conversations {
			c.up.Release()
		}
		<-time.After(noticed)
		c.balancer.set(c.Address(0), c.Address(2))
		c.Ready(0, 2)
	})
	lost := c.judge(t, runs, 3*perTurn)
	if lost == 0 {
		t.Error("the killed replica served nothing; the test proves nothing")
	}
	served := time.Since(killed)

	<-time.After(time.Until(killed.Add(leaseOver)))
	for _, run := range c.all(t, lastTalk, "And once more.", func() {}) {
		run.finished(t, rounds, fmt.Sprintf("Answer %d.", 4*perTurn))
	}
	kept := c.builtUpon(t, perTurn)
	t.Logf(`
| Codex CLI, three replicas behind one address | |
|---|---|
| conversations at once | %d, %d requests each |
| before the kill | %d of %d conversations on one socket each, all requests after the first anchored, %.0f s |
| kill -9 of one replica with %d live turns | %d conversations lost one turn, none more |
| after it | %d of %d conversations ended well by themselves, each command ran once, %.0f s |
| a lease later | %d of %d conversations on one socket, from the second request on anchored |`,
		conversations, 4*perTurn, len(c.threads), conversations, quiet.Seconds(), conversations, lost, len(runs), conversations, served.Seconds(),
		kept, conversations)
}

// builtUpon holds that the last n requests of each conversation went over one
// socket, and all but the first of them were anchored; it says how many did so.
func (c *crowd) builtUpon(t *testing.T, n int) (kept int) {
	t.Helper()
	all := c.up.Ledger().Dispatches()
	for i, thread := range c.threads {
		ds := ofThread(all, thread)
		ds = ds[max(len(ds)-n, 0):]
		ok := len(ds) == n && len(sockets(ds)) == 1
		for k, d := range ds {
			ok = ok && d.Outcome == upstream.OutcomeCompleted && (k == 0 || d.AnchorResolved)
		}
		if !ok {
			t.Errorf("conversation %d is not built upon again:%s", i, describe(ds))
			continue
		}
		kept++
	}
	return kept
}

// judge holds that each conversation of which a turn was lost came to its end, and
// says how many there were.
func (c *crowd) judge(t *testing.T, runs []codexRun, requests int) (lost int) {
	t.Helper()
	all := c.up.Ledger().Dispatches()
	for i, run := range runs {
		thread := c.threads[i]
		ds := ofThread(all, thread)
		var notes []string
		if raw, err := os.ReadFile(filepath.Join(c.users[i].work, "notes")); err == nil {
			notes = strings.Fields(strings.ReplaceAll(string(raw), "turn ", ""))
		}
		more := c.requests(thread) - requests
		broken := 0
		for _, d := range ds {
			if d.Outcome != upstream.OutcomeCompleted {
				broken++
			}
		}
		slices.Sort(notes)
		twice := len(slices.Compact(slices.Clone(notes))) != len(notes)
		if !run.ended(rounds, fmt.Sprintf("Answer %d.", requests)) || more < 0 || more > 1 || broken > 1 || len(run.errors) > 1 ||
			len(ds) > requests+1 || len(sockets(ds)) > 2 || len(notes) != requests/(rounds+1)*rounds || twice {
			t.Errorf("conversation %d: %d requests more than turns, %d broken, commands %v, complaints %q; the upstream saw%s",
				i, more, broken, notes, run.errors, describe(ds))
		}
		if more > 0 || broken > 0 {
			lost++
		}
	}
	return lost
}
