package peer

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/route"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	currentKey  = "current-key-of-thirty-two-bytes!"
	previousKey = "previous-key-of-32-bytes-exactly"
)

var conversation = affinity.TurnStateKey("alice", "token")

func runtimeWith(t *testing.T, keys ...string) *config.Runtime {
	t.Helper()
	c := bundle.Credentials{}
	for _, k := range keys {
		c.PeerKeys = append(c.PeerKeys, base64.StdEncoding.EncodeToString([]byte(k)))
	}
	rt, err := config.New(bundle.Bundle{Circuit: bundle.Circuit{Deadlines: bundle.Deadlines{KeepaliveSeconds: 15}}}, c)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// turns is what an owner does with a turn.
type turns struct {
	serve func(w http.ResponseWriter, r *http.Request, req *bridge.Request)
	count atomic.Int64
}

func (t *turns) ServeTurn(w http.ResponseWriter, r *http.Request, req *bridge.Request) {
	t.count.Add(1)
	t.serve(w, r, req)
}

// owner is a replica that others hand turns to.
type owner struct {
	turns
	pod, address string
	runtime      atomic.Pointer[config.Runtime]
	draining     atomic.Bool
	powerless    atomic.Bool // another slot has authority
	live         atomic.Int64
	table        atomic.Pointer[route.Table]
}

func newOwner(t *testing.T, serve func(http.ResponseWriter, *http.Request, *bridge.Request)) *owner {
	t.Helper()
	o := &owner{pod: "owner"}
	o.serve = serve
	o.runtime.Store(runtimeWith(t, currentKey, previousKey))
	listener := listen(t)
	o.address = listener.Addr().String()
	receiver, err := NewReceiver(ReceiverOptions{
		Self: Identity{Pod: o.pod, Address: o.address}, Table: o.table.Load, Runtime: &o.runtime, Turns: o, Draining: o.draining.Load,
		Admits: func(_ affinity.Key, _, tail string) bool { return !o.powerless.Load() || tail != "" },
		Begin:  func() func() { o.live.Add(1); return func() { o.live.Add(-1) } }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	serveUntilEnd(t, receiver.HTTPServer(), listener)
	return o
}

// origin is the replica that clients reach.
type origin struct {
	*Forwarder
	url     string
	runtime atomic.Pointer[config.Runtime]
	table   atomic.Pointer[route.Table]
	address atomic.Pointer[string]
	// other are the replicas of the other slot; doubts counts how often its authority
	// was called into question.
	other   atomic.Pointer[route.Table]
	doubts  atomic.Int64
	leaving atomic.Bool
	logs    lockedBuffer
	// live counts turns that are being served.
	live atomic.Int64
	// here counts turns that were not taken by the peer.
	here   atomic.Int64
	client *http.Client
}

func newOrigin(t *testing.T, peer string) *origin {
	t.Helper()
	o := &origin{client: &http.Client{Transport: &http.Transport{}}}
	o.runtime.Store(runtimeWith(t, currentKey))
	o.table.Store(route.New("origin", []route.Member{{Pod: "origin", Address: "127.0.0.1:1"}, {Pod: "owner", Address: peer}}))
	o.address.Store(&peer)
	o.Forwarder = NewForwarder(Options{
		Self: Identity{Pod: "origin", Address: "127.0.0.1:1"}, Table: o.table.Load, Other: o.other.Load, Doubt: func() { o.doubts.Add(1) }, Leaving: o.leaving.Load, Metrics: telemetry.NewMetrics("test"),
		Log: slog.New(slog.NewTextHandler(&o.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	listener := listen(t)
	o.url = "http://" + listener.Addr().String()
	t.Cleanup(o.Close)
	serveUntilEnd(t, &http.Server{Handler: http.HandlerFunc(o.handle), ReadHeaderTimeout: 10 * time.Second}, listener)
	t.Cleanup(o.client.CloseIdleConnections)
	return o
}

// handle stands in for the data port and the bridge.
func (o *origin) handle(w http.ResponseWriter, r *http.Request) {
	o.live.Add(1)
	defer o.live.Add(-1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	req := &bridge.Request{ID: "req-1", Route: bridge.RouteCodex, Client: "alice", Header: r.Header, Body: body,
		Stream: r.Header.Get("X-Test-Stream") != "no", Runtime: o.runtime.Load()}
	if !o.Forward(w, r, req, conversation, *o.address.Load()) {
		o.here.Add(1)
		_, _ = io.WriteString(w, "served here")
	}
}

type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (o *origin) post(t *testing.T, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, o.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return o.do(req)
}

func (o *origin) do(req *http.Request) reply {
	res, err := o.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(raw), err}
}

// idle waits until no turn is being served.
func (o *origin) idle(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); o.live.Load() > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("a turn never ended")
		}
	}
}

// outcome fails unless the log names the outcome of the last forward.
func (o *origin) outcome(t *testing.T, want telemetry.ForwardOutcome) {
	t.Helper()
	if lines := strings.Split(strings.TrimSpace(o.logs.String()), "\n"); !strings.Contains(lines[len(lines)-1], "outcome="+want.String()+" ") {
		t.Errorf("want outcome %s: %s", want, lines[len(lines)-1])
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func serveUntilEnd(t *testing.T, server *http.Server, listener net.Listener) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Error("a request never ended:", err)
			_ = server.Close()
		}
		<-done
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const (
	created   = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\"}}\n\n"
	delta     = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"delta\":\"hi\"}\n\n"
	completed = "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"id\":\"resp_1\"}}\n\n"
)

// say streams texts, each in a write of its own.
func say(w http.ResponseWriter, texts ...string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, text := range texts {
		_, _ = io.WriteString(w, text)
		_ = http.NewResponseController(w).Flush()
	}
}

func answer(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
	say(w, created, delta, completed)
}
