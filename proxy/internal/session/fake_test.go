package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
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
	// account it was opened for, and what Send returns.
	account string
	sendErr error
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
	return c.sendErr
}

// frame is the next request that was sent, or "".
func (c *fakeConn) frame() string {
	select {
	case f := <-c.sent:
		return f
	default:
		return ""
	}
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

func (d *fakeDialer) WebSocket(_ context.Context, t upstream.Target) (upstream.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return nil, d.err
	}
	c := newFakeConn()
	c.account = t.Account
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

// kinds is how many different things were told.
func (c *counts) kinds() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.rows)
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
	// idempotencyKey is what the next turns come with.
	idempotencyKey string
	counts         *counts
	runtime        *config.Runtime
}

// pass lets the bubble's clock run.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func inBubble(t *testing.T, provider string, f func(b *bench)) {
	t.Helper()
	inBubbleOf(t, setUp{provider: provider, accounts: []string{"a"}, firstEvent: 120}, f)
}

func inBubbleOf(t *testing.T, o setUp, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBenchOf(t, o)
		defer b.end()
		f(b)
	})
}

// end closes the registry at once.
func (b *bench) end() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.registry.Close(ctx)
}

func newBench(t *testing.T, provider string, maxSessions int) *bench {
	return newBenchOf(t, setUp{provider: provider, maxSessions: maxSessions, accounts: []string{"a"}, firstEvent: 120})
}

// setUp is what a bench is made of.
type setUp struct {
	provider    string
	maxSessions int
	accounts    []string
	firstEvent  int // deadline in seconds
	services    func(*Services)
}

// retryWords are all reasons of the API, in its order.
func retryWords() []string {
	return slices.SortedFunc(maps.Keys(retryReasons), func(a, b string) int { return int(retryReasons[a]) - int(retryReasons[b]) })
}

func newBenchOf(t *testing.T, o setUp) *bench {
	t.Helper()
	pool := bundle.Pool{Provider: bundle.Provider{Type: o.provider, Endpoint: "https://upstream.test/v1"}, Strategy: bundle.StrategyRoundRobin}
	credentials := map[string]bundle.Credential{}
	for _, name := range o.accounts {
		pool.Accounts = append(pool.Accounts, bundle.Account{Name: name, State: bundle.AccountEnabled})
		credentials[name] = bundle.Credential{APIKey: "k"}
	}
	rt, err := config.New(bundle.Bundle{
		Pool:    pool,
		Clients: bundle.Clients{Mode: bundle.ClientsOpen},
		Circuit: bundle.Circuit{
			Bulkheads: []bundle.Bulkhead{{Lane: "HTTP"}}, // not what is tested here
			RetryCircuit: bundle.RetryCircuit{MaxAttempts: 2, BudgetPercent: 20, RetryOn: retryWords(), FailureThreshold: 2, BaseBackoffSeconds: 60, MaxBackoffSeconds: 600,
				CleanCloseMaxBackoffSeconds: 30, HalfOpenLeaseSeconds: 60, StateTTLSeconds: 3600},
			Quarantine: bundle.Quarantine{EventlessThreshold: 2, RetainSeconds: 3600},
			Deadlines:  bundle.Deadlines{FirstEventSeconds: o.firstEvent, IdleSeconds: 300, CancelGraceSeconds: 1}},
	}, bundle.Credentials{Accounts: credentials})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dialer: &fakeDialer{}, counts: &counts{rows: map[string]int{}}, runtime: rt, accounts: account.NewRegistry(clock.RealClock{})}
	b.accounts.Update(rt)
	services := Services{Accounts: b.accounts, Dialer: func(*config.Runtime) Dialer { return b.dialer },
		Observer: b.counts, Log: slog.New(slog.DiscardHandler), MaxSessions: o.maxSessions}
	if o.services != nil {
		o.services(&services)
	}
	b.registry = NewRegistry(services)
	return b
}

// asked is a submitted turn.
type asked struct {
	*Turn
	detach func()
}

var turnCount atomic.Int64

func (b *bench) ask(thread, body string) *asked { return b.askWith(thread, body, false) }

func (b *bench) askWith(thread, body string, stay bool) *asked {
	return b.submit(thread, body, stay, deadline.Budget{})
}

// askFor asks within a budget.
func (b *bench) askFor(thread, body string, budget deadline.Budget) *asked {
	return b.submit(thread, body, false, budget)
}

func (b *bench) submit(thread, body string, stay bool, budget deadline.Budget) *asked {
	facts := affinity.Read([]byte(body))
	h := http.Header{}
	if thread != "" {
		h.Set("Thread-Id", thread)
	}
	t := &Turn{ID: "turn-" + thread + "-" + strconv.FormatInt(turnCount.Add(1), 10), Header: h, Body: []byte(body), Facts: facts, Runtime: b.runtime, Out: NewOutbox()}
	t.Key = affinity.Derive(affinity.Source{Header: h, RequestID: t.ID})
	t.Fingerprint, t.Stay, t.Budget = body, stay, budget
	if b.idempotencyKey != "" {
		t.Fingerprint, t.Keyed, t.BodyDigest = "4b"+b.idempotencyKey, true, body
	}
	if id := facts.PreviousResponseID; id != "" {
		owner, known, _ := b.registry.Owner(context.Background(), "", id)
		owner.MayPass = !known
		t.Owner = owner
	}
	t.Limits = deadline.For(b.runtime.Bundle.Circuit.Deadlines, 30*time.Second, deadline.Text, true)
	t.Pin, _ = b.registry.PinOf(context.Background(), "", facts.Files)
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

var errClean = &upstream.Ended{Cause: upstream.CauseClean, Code: 1000, Err: errors.New("closed")}

// in plays events or an end on the newest connection and lets them be handled.
func (b *bench) in(events ...any) {
	c := b.newest()
	for _, e := range events {
		c.in <- e
	}
	synctest.Wait()
}

func (b *bench) newest() *fakeConn {
	b.t.Helper()
	n := b.dialer.count()
	if n == 0 {
		b.t.Fatal("nothing was dialed")
	}
	return b.dialer.conn(n - 1)
}

// sent counts the requests that were sent on all connections and not looked at.
func (b *bench) sent() int {
	n := 0
	for i := range b.dialer.count() {
		n += len(b.dialer.conn(i).sent)
	}
	return n
}

// conversation is one conversation of n turns, each user message with its answer, and one
// more message; the answers are those of answer().
func conversation(n int) string {
	var items []string
	for i := range n {
		items = append(items, userItem(i), answerItem(i))
	}
	return `{"model":"m","stream":true,"store":false,"input":[` + strings.Join(append(items, userItem(n)), ",") + `]}`
}

func userItem(i int) string { return `{"role":"user","content":"question ` + strconv.Itoa(i) + `"}` }
func answerItem(i int) string {
	return `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"answer ` + strconv.Itoa(i) + `"}]}`
}

// answer is a whole response to turn i.
func answer(i int) []any {
	id := "r" + strconv.Itoa(i)
	return []any{created(id), `{"type":"response.output_item.done","item":` + answerItem(i) + `}`, completed(id)}
}

// delta tool outputs that only their anchor gives a meaning.
const toolOutput = `{"model":"m","stream":true,"store":false,"input":[{"type":"function_call_output","call_id":"c9","output":"ok"}]}`

// hasAnchor says whether a frame carries the anchor.
func hasAnchor(frame, id string) bool {
	return strings.Contains(frame, `"previous_response_id":"`+id+`"`)
}

// circuit describes the session of a thread.
func (b *bench) detail(thread string) Detail {
	h := http.Header{"Thread-Id": {thread}}
	d, _ := b.registry.Detail(affinity.Derive(affinity.Source{Header: h}).Short())
	return d
}
