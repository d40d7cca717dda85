package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Secrets that must never be seen again.
const (
	clientKey  = "cwk-CANARY-client"
	accountKey = "sk-CANARY-account"
	otherKey   = "sk-CANARY-other"
	chatgptID  = "CANARY-workspace"
)

// edge is a data port in front of a scripted upstream.
type edge struct {
	*Server
	url      string
	log      *syncBuffer
	metrics  *telemetry.Metrics
	registry *account.Registry
	turns    *recordedTurns
	client   *http.Client
	listener *listener
}

type setup struct {
	upstream http.Handler
	change   func(*bundle.Bundle, *bundle.Credentials)
	turns    func(w http.ResponseWriter, r *http.Request, req *bridge.Request)
	intake   intake.Options
	objects  Objects
	logger   *slog.Logger // nil = one that remembers
	// headerTime bounds a header; limit and idle are those of the listener. 0 = the
	// usual ones.
	headerTime, stallTime, idle time.Duration
	// idleTime is how long a connection may be without a request, socketIdle a WebSocket
	// without a turn; 0 = as ever.
	idleTime, socketIdle time.Duration
	limit                int
	// refuseAccepts is how often accepting a connection fails at first.
	refuseAccepts int
}

func start(t *testing.T, o setup) *edge {
	t.Helper()
	if o.upstream == nil {
		o.upstream = http.NotFoundHandler()
	}
	up := httptest.NewServer(o.upstream)
	t.Cleanup(up.Close)
	e := &edge{log: &syncBuffer{}, metrics: telemetry.NewMetrics("test"), registry: account.NewRegistry(clock.RealClock{})}
	logger, err := telemetry.NewLogger(e.log, "debug")
	if err != nil {
		t.Fatal(err)
	}
	if o.logger != nil {
		logger = o.logger
	}
	runtime := testRuntime(t, up.URL+"/base/v1", o.change)
	e.registry.Update(runtime)
	e.turns = &recordedTurns{serve: o.turns}
	var current atomic.Pointer[config.Runtime]
	current.Store(runtime)
	e.Server, err = New(Options{Logger: logger, Runtime: &current, Accounts: e.registry, Turns: e.turns, Objects: o.objects, Metrics: e.metrics, Intake: o.intake})
	if err != nil {
		t.Fatal(err)
	}
	if o.headerTime > 0 {
		e.headerTime = o.headerTime
	}
	if o.stallTime > 0 {
		e.stallTime = o.stallTime
	}
	if o.socketIdle > 0 {
		e.socketIdle = o.socketIdle
	}
	e.serve(t, o)
	return e
}

// serve puts the data port on a real socket.
func (e *edge) serve(t *testing.T, o setup) {
	t.Helper()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if o.refuseAccepts > 0 {
		inner = &short{inner, o.refuseAccepts}
	}
	e.listener, _ = e.Listener(inner).(*listener)
	if o.limit > 0 {
		e.listener = newListener(inner, o.limit, o.idle, e.Server.log)
	}
	server := e.HTTPServer()
	if o.idleTime > 0 {
		server.IdleTimeout = o.idleTime
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(e.listener)
	}()
	e.url = "http://" + inner.Addr().String()
	e.client = &http.Client{Transport: &http.Transport{DisableCompression: true}}
	t.Cleanup(func() {
		e.client.CloseIdleConnections()
		_ = server.Close()
		<-done
		e.Close()
	})
}

func testRuntime(t *testing.T, endpoint string, change func(*bundle.Bundle, *bundle.Credentials)) *config.Runtime {
	t.Helper()
	b := bundle.Bundle{
		Name: "bridge", Namespace: "default", Clients: bundle.Clients{Mode: bundle.ClientsRequired},
		Pool: bundle.Pool{
			Name: "pool", Strategy: bundle.StrategyRoundRobin,
			Provider: bundle.Provider{Type: bundle.ProviderOpenAIPlatform, Endpoint: endpoint},
			Accounts: []bundle.Account{{Name: "first", Kind: bundle.KindAPIKey, State: bundle.AccountEnabled}},
		},
		Circuit: bundle.Circuit{
			Deadlines: bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, ResponseHeaderSeconds: 60, IdleSeconds: 300},
			Ejection:  bundle.Ejection{BaseSeconds: 30, MaxSeconds: 300},
		},
	}
	c := bundle.Credentials{
		Accounts: map[string]bundle.Credential{"first": {APIKey: accountKey}},
		Clients:  map[string]string{"alice": bundle.KeyDigest(clientKey)},
	}
	if change != nil {
		change(&b, &c)
	}
	rt, err := config.New(b.Seal(), c.Seal())
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// recordedTurns stands for the bridge.
type recordedTurns struct {
	mu   sync.Mutex
	seen []*bridge.Request
	// closed are the sockets that have ended.
	closed []string
	serve  func(w http.ResponseWriter, r *http.Request, req *bridge.Request)
}

func (f *recordedTurns) ServeTurn(w http.ResponseWriter, r *http.Request, req *bridge.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, req)
	f.mu.Unlock()
	if f.serve != nil {
		f.serve(w, r, req)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(req.Body)
}

func (f *recordedTurns) last() *bridge.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen) == 0 {
		return nil
	}
	return f.seen[len(f.seen)-1]
}

func (f *recordedTurns) SocketClosed(_, socket string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = append(f.closed, socket)
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// reply is an answer, read to its end.
type reply struct {
	*http.Response
	text string
}

func (r reply) code() string {
	var e struct {
		Error struct{ Code, Message, Param string }
	}
	_ = json.Unmarshal([]byte(r.text), &e)
	return e.Error.Code
}

// request builds a request with alice's key.
func (e *edge) request(t *testing.T, method, path string, body io.Reader, headers ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, e.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+clientKey)
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	return req
}

func (e *edge) do(t *testing.T, req *http.Request) reply {
	t.Helper()
	res, err := e.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res, string(raw)}
}

func (e *edge) call(t *testing.T, method, path, body string, headers ...string) reply {
	t.Helper()
	return e.do(t, e.request(t, method, path, strings.NewReader(body), headers...))
}

func (e *edge) scrape(t *testing.T) string {
	t.Helper()
	w := httptest.NewRecorder()
	e.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func (e *edge) state(t *testing.T, name string) account.State {
	t.Helper()
	for _, s := range e.registry.States() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no account %s", name)
	return account.State{}
}

// noteConnection collects the connections that requests use, by our address.
func noteConnection(ctx context.Context, seen map[string]bool) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		seen[i.Conn.LocalAddr().String()] = true
	}})
}

var quietLogger = slog.New(slog.DiscardHandler)
