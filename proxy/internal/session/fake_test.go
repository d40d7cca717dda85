package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeConn is an upstream connection played by a test, for moments that no real
// socket can be made to hit: two things at the same instant of a virtual clock.
type fakeConn struct {
	in     chan any // string: an event; error: the end
	sent   chan string
	once   sync.Once
	closed chan struct{}
	header http.Header
}

func newFakeConn() *fakeConn {
	return &fakeConn{in: make(chan any, 64), sent: make(chan string, 64), closed: make(chan struct{}), header: http.Header{}}
}

func (c *fakeConn) Send(r upstream.Request) error {
	var b strings.Builder
	for _, s := range r.Segments {
		b.Write(s)
	}
	c.sent <- b.String()
	return nil
}

func (c *fakeConn) Receive() (upstream.Event, error) {
	select {
	case m := <-c.in:
		if err, ok := m.(error); ok {
			return upstream.Event{}, err
		}
		data := []byte(m.(string))
		name := m.(string)[len(`{"type":"`):]
		return upstream.Own(name[:strings.IndexByte(name, '"')], data), nil
	case <-c.closed:
		return upstream.Event{}, &upstream.Ended{Cause: upstream.CauseLocal, Err: io.EOF}
	}
}

func (c *fakeConn) Header() http.Header { return c.header }
func (c *fakeConn) Heard() time.Time    { return time.Time{} }
func (c *fakeConn) Close()              { c.once.Do(func() { close(c.closed) }) }

func (c *fakeConn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

func (c *fakeConn) play(events ...string) {
	for _, e := range events {
		c.in <- e
	}
}

func created(id string) string {
	return `{"type":"response.created","response":{"id":"` + id + `"}}`
}

func completed(id string) string {
	return `{"type":"response.completed","response":{"id":"` + id + `","output":[]}}`
}

func delta(text string) string {
	return `{"type":"response.output_text.delta","delta":"` + text + `"}`
}

// fakeDialer hands out fake connections in order.
type fakeDialer struct {
	mu    sync.Mutex
	conns []*fakeConn
	err   error
}

func (d *fakeDialer) WebSocket(context.Context, upstream.Target) (upstream.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	c := newFakeConn()
	d.conns = append(d.conns, c)
	return c, nil
}

func (d *fakeDialer) HTTP(upstream.Target) upstream.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newFakeConn()
	d.conns = append(d.conns, c)
	return c
}

func (d *fakeDialer) conn(i int) *fakeConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i >= len(d.conns) {
		return nil
	}
	return d.conns[i]
}

func (d *fakeDialer) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

type counts struct {
	mu        sync.Mutex
	rows      map[string]int // verdicts, and what else is told: "strike X", "suppressed X", …
	unmatched int
}

func (c *counts) AttemptDone(_ Transport, row string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows[row]++
}
func (c *counts) RequestSent(Transport, int64) {}

func (c *counts) count(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows[what]++
}

func (c *counts) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[what]
}

func (c *counts) Struck(class StrikeClass)        { c.count("strike " + class.String()) }
func (c *counts) Suppressed(reason string)        { c.count("suppressed " + reason) }
func (c *counts) Probed(outcome string)           { c.count("probe " + outcome) }
func (c *counts) AnchorRetired(cause AnchorCause) { c.count("retired " + string(cause)) }
func (c *counts) Replayed(proof string)           { c.count("replayed " + proof) }
func (c *counts) Fenced()                         { c.count("fenced") }
func (c *counts) StoreFailed(request string)      { c.count("store " + request) }
func (c *counts) Unmatched() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unmatched++
}

// bench is a registry with fake connections, inside a synctest bubble.
type bench struct {
	t        *testing.T
	registry *Registry
	dialer   *fakeDialer
	accounts *account.Registry
	counts   *counts
	runtime  *config.Runtime
}

// pass lets the bubble's clock run.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func inBubble(t *testing.T, provider string, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, provider, 0)
		f(b)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		b.registry.Close(ctx)
	})
}

func newBench(t *testing.T, provider string, maxSessions int) *bench {
	t.Helper()
	rt, err := config.New(bundle.Bundle{
		Pool: bundle.Pool{Provider: bundle.Provider{Type: provider, Endpoint: "https://upstream.test/v1"}, Strategy: bundle.StrategyRoundRobin,
			Accounts: []bundle.Account{{Name: "a", State: bundle.AccountEnabled}}},
		Clients: bundle.Clients{Mode: bundle.ClientsOpen},
		Circuit: bundle.Circuit{
			RetryCircuit: bundle.RetryCircuit{FailureThreshold: 2, BaseBackoffSeconds: 60, MaxBackoffSeconds: 600,
				CleanCloseMaxBackoffSeconds: 30, HalfOpenLeaseSeconds: 60, StateTTLSeconds: 3600},
			Quarantine: bundle.Quarantine{EventlessThreshold: 2, RetainSeconds: 3600},
			Deadlines:  bundle.Deadlines{FirstEventSeconds: 120, IdleSeconds: 300, CancelGraceSeconds: 1}},
	}, bundle.Credentials{Accounts: map[string]bundle.Credential{"a": {APIKey: "k"}}})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dialer: &fakeDialer{}, counts: &counts{rows: map[string]int{}}, runtime: rt, accounts: account.NewRegistry(clock.RealClock{})}
	b.accounts.Update(rt)
	b.registry = NewRegistry(Services{Accounts: b.accounts, Dialer: func(*config.Runtime) Dialer { return b.dialer },
		Observer: b.counts, Log: slog.New(slog.DiscardHandler), MaxSessions: maxSessions})
	return b
}

// asked is a submitted turn.
type asked struct {
	*Turn
	detach func()
}

func (b *bench) ask(thread, body string) *asked {
	facts := affinity.Read([]byte(body))
	h := http.Header{}
	if thread != "" {
		h.Set("Thread-Id", thread)
	}
	t := &Turn{ID: "turn-" + thread + time.Now().String(), Header: h, Body: []byte(body), Facts: facts, Runtime: b.runtime, Out: NewOutbox()}
	t.Key = affinity.Derive(affinity.Source{Header: h, RequestID: t.ID})
	t.Fingerprint = body
	if id := facts.PreviousResponseID; id != "" {
		owner, known, _ := b.registry.Owner(context.Background(), "", id)
		owner.MayPass = !known
		t.Owner = owner
	}
	a := &asked{Turn: t}
	a.detach = b.registry.Submit(t)
	synctest.Wait()
	return a
}

// take drains what has arrived: event types, whether the turn ended, and why.
func (a *asked) take() (types []string, ended bool, code string) {
	batch := a.Out.Take(nil)
	for i := range batch.Events {
		types = append(types, strings.TrimPrefix(batch.Events[i].Type, "response."))
		batch.Events[i].Release()
	}
	if batch.Failure != nil {
		code = batch.Failure.Code
	}
	return types, batch.Ended, code
}

// inflight counts the live turns on all accounts.
func (b *bench) inflight() int {
	n := 0
	for _, s := range b.accounts.States() {
		n += s.Inflight
	}
	return n
}

var errReset = &upstream.Ended{Cause: upstream.CauseAbrupt, Err: errors.New("reset")}
