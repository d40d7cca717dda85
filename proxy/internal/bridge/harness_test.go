package bridge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
	"github.com/causeway-dev/causeway/test/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a bridge between a real HTTP client and the scripted upstream, all on
// real sockets.
type rig struct {
	t        *testing.T
	up       *upstream.Server
	bridge   *Bridge
	accounts *account.Registry
	metrics  *telemetry.Metrics
	runtime  atomic.Pointer[config.Runtime]
	url      string
	logs     *syncBuffer
	client   *http.Client
	requests atomic.Int64
	serving  atomic.Int64 // requests that are being served
}

// syncBuffer collects logs of many goroutines.
type syncBuffer struct {
	ch chan struct{}
	b  bytes.Buffer
}

func newSyncBuffer() *syncBuffer { return &syncBuffer{ch: make(chan struct{}, 1)} }

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.ch <- struct{}{}
	defer func() { <-s.ch }()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.ch <- struct{}{}
	defer func() { <-s.ch }()
	return s.b.String()
}

type rigOptions struct {
	provider    string // OpenAIPlatform unless set
	accounts    int    // 1 unless set
	script      upstream.Script
	deadlines   bundle.Deadlines
	hold        time.Duration
	maxSessions int
	clients     []string // names of client keys; their requests set the header x-test-client
	concurrent  int
	circuit     bundle.RetryCircuit // the built-in profile's unless set
}

// briefHold goes with brief deadlines: as in a proxy, it is a small part of what
// silence takes.
const briefHold = 50 * time.Millisecond

// retryOn are all reasons of the API.
var retryOn = []string{"ConnectFailure", "Status429", "Status503", "StreamIncomplete", "IdleTimeout"}

// builtInCircuit is the retry circuit of the built-in profile.
var builtInCircuit = bundle.RetryCircuit{MaxAttempts: 2, BudgetPercent: 20, RetryOn: retryOn, FailureThreshold: 2, BaseBackoffSeconds: 60, MaxBackoffSeconds: 600,
	CleanCloseMaxBackoffSeconds: 30, HalfOpenLeaseSeconds: 60, StateTTLSeconds: 3600}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	if o.provider == "" {
		o.provider = bundle.ProviderOpenAIPlatform
	}
	if o.accounts == 0 {
		o.accounts = 1
	}
	tokens := map[string]string{}
	b := bundle.Bundle{Generation: 1, Namespace: "test", Name: "chat", Clients: bundle.Clients{Mode: bundle.ClientsOpen},
		Pool: bundle.Pool{Name: "pool", Strategy: bundle.StrategyRoundRobin, Provider: bundle.Provider{Type: o.provider}}}
	c := bundle.Credentials{Accounts: map[string]bundle.Credential{}, Clients: map[string]string{}}
	for i := range o.accounts {
		name, token := fmt.Sprintf("account-%d", i+1), fmt.Sprintf("sk-canary-account-%d", i+1)
		tokens[token] = name
		b.Pool.Accounts = append(b.Pool.Accounts, bundle.Account{Name: name, Kind: bundle.KindAPIKey, State: bundle.AccountEnabled, Weight: 100, MaxConcurrent: o.concurrent})
		c.Accounts[name] = bundle.Credential{APIKey: token}
	}
	if len(o.clients) > 0 {
		b.Clients.Mode = bundle.ClientsRequired
		for _, name := range o.clients {
			c.Clients[name] = bundle.KeyDigest("cwk-" + name)
		}
	}
	d := bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, ResponseHeaderSeconds: 60, FirstEventSeconds: 30, IdleSeconds: 30, KeepaliveSeconds: 15, CancelGraceSeconds: 1}
	if o.deadlines != (bundle.Deadlines{}) {
		d = o.deadlines
	}
	b.Circuit.Deadlines = d
	b.Circuit.RetryCircuit = o.circuit
	if o.circuit.FailureThreshold == 0 {
		b.Circuit.RetryCircuit = builtInCircuit
	}
	b.Circuit.Quarantine = bundle.Quarantine{EventlessThreshold: 2, RetainSeconds: 3600}
	b.Circuit.Bulkheads = []bundle.Bulkhead{{Lane: "HTTP", QueueTimeoutSeconds: 5}}
	up := upstream.StartTLS(t, upstream.Options{Accounts: tokens, Script: o.script, KeepBodies: true})
	b.Pool.Provider.Endpoint = up.URL + "/v1"
	if o.provider == bundle.ProviderChatGPT {
		b.Pool.Provider.Endpoint = up.URL + "/backend-api/codex"
	}
	b.Pool.Provider.CABundle = string(up.CA)
	rt, err := config.New(b.Seal(), c.Seal())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, up: up, logs: newSyncBuffer(), metrics: telemetry.NewMetrics("test"), accounts: account.NewRegistry(clock.RealClock{})}
	r.runtime.Store(rt)
	r.accounts.Update(rt)
	log := slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.bridge = New(Options{Logger: log, Accounts: r.accounts, Metrics: r.metrics, Hold: o.hold, MaxSessions: o.maxSessions})
	r.serve()
	return r
}

// withCircuit is the configuration with another retry circuit.
func (r *rig) withCircuit(c bundle.RetryCircuit) *config.Runtime {
	r.t.Helper()
	old := r.runtime.Load()
	b := old.Bundle
	b.Generation++
	b.Circuit.RetryCircuit = c
	rt, err := config.New(b.Seal(), old.Credentials.Seal())
	if err != nil {
		r.t.Fatal(err)
	}
	return rt
}

func (r *rig) serve() {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(r.handle), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	r.url = "http://" + listener.Addr().String()
	r.client = &http.Client{Transport: &http.Transport{}}
	r.t.Cleanup(func() {
		r.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-done
		r.bridge.Close(ctx)
	})
}

// handle stands in for the server package: it reads the body and names the turn.
func (r *rig) handle(w http.ResponseWriter, req *http.Request) {
	r.serving.Add(1)
	defer r.serving.Add(-1)
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	route := RouteV1
	if strings.HasPrefix(req.URL.Path, "/backend-api/") {
		route = RouteCodex
	}
	var shape struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &shape)
	r.bridge.ServeTurn(w, req, &Request{ID: fmt.Sprintf("req-%d", r.requests.Add(1)), Route: route, Client: req.Header.Get("X-Test-Client"),
		Header: req.Header, Body: body, Stream: shape.Stream, Runtime: r.runtime.Load()})
}

// reply is what a client saw of one turn.
type reply struct {
	status   int
	header   http.Header
	body     string
	events   []sse
	comments int
	err      error
}

type sse struct{ name, data string }

func (r *reply) last() sse {
	if len(r.events) == 0 {
		return sse{}
	}
	return r.events[len(r.events)-1]
}

func (r *reply) names() string {
	var n []string
	for _, e := range r.events {
		n = append(n, strings.TrimPrefix(e.name, "response."))
	}
	return strings.Join(n, " ")
}

// payloads digests the events' data as the upstream's ledger does.
func (r *reply) digest() string {
	h := sha256.New()
	for _, e := range r.events {
		_, _ = io.WriteString(h, e.data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (r *reply) text() string {
	var b strings.Builder
	for _, e := range r.events {
		if e.name == "response.output_text.delta" {
			var d struct {
				Delta string `json:"delta"`
			}
			_ = json.Unmarshal([]byte(e.data), &d)
			b.WriteString(d.Delta)
		}
	}
	return b.String()
}

// call describes one request of a client.
type call struct {
	path    string
	header  []string // name, value, ...
	body    string
	ctx     context.Context
	onEvent func(sse)
}

func (r *rig) do(c call) *reply {
	r.t.Helper()
	if c.path == "" {
		c.path = "/v1/responses"
	}
	if c.ctx == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		c.ctx = ctx
	}
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, r.url+c.path, strings.NewReader(c.body))
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(c.header); i += 2 {
		req.Header.Set(c.header[i], c.header[i+1])
	}
	res, err := r.client.Do(req)
	if err != nil {
		return &reply{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	out := &reply{status: res.StatusCode, header: res.Header}
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		raw, err := io.ReadAll(res.Body)
		out.body, out.err = string(raw), err
		return out
	}
	out.read(res.Body, c.onEvent)
	return out
}

func (r *reply) read(body io.Reader, onEvent func(sse)) {
	in := bufio.NewReaderSize(body, 1<<20)
	var e sse
	hasData := false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			if err != io.EOF {
				r.err = err
			}
			return
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "":
			if hasData {
				r.events = append(r.events, e)
				if onEvent != nil {
					onEvent(e)
				}
			}
			e, hasData = sse{}, false
		case strings.HasPrefix(line, ":"):
			r.comments++
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			if hasData {
				e.data += "\n"
			}
			e.data += line[len("data: "):]
			hasData = true
		}
	}
}

// anchored is what the upstream saw of each turn.
type seen struct {
	anchored bool
	items    int
	conn     int64
	account  string
}

func (r *rig) seen() []seen {
	var out []seen
	for _, d := range r.up.Ledger().Dispatches() {
		out = append(out, seen{d.Anchor != "", d.InputItems, d.Connection, d.Account})
	}
	return out
}

// ended waits until n dispatches have ended.
func (r *rig) ended(n int) []upstream.Dispatch {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.up.Ledger().WaitEnded(ctx, n); err != nil {
		r.t.Fatal(err)
	}
	return r.up.Ledger().Dispatches()
}

// noDuplicates fails if anything was sent twice.
func (r *rig) noDuplicates() {
	r.t.Helper()
	if d := r.up.Ledger().Duplicates(); len(d) > 0 {
		r.t.Fatalf("sent twice: %+v", d)
	}
}

// thread are the headers of a Codex thread.
func thread(id string) []string {
	return []string{"thread-id", id, "session-id", id, "originator", "codex_exec"}
}

// closed waits until the proxy has no connection to the upstream.
func (r *rig) closed() {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for r.bridge.Sessions().Connections > 0 || r.bridge.Sessions().Active > 0 {
		if time.Now().After(deadline) {
			r.t.Fatalf("still open: %+v", r.bridge.Sessions())
		}
		runtime.Gosched()
	}
}

func (r *rig) scrape() string {
	w := httptest.NewRecorder()
	r.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}
