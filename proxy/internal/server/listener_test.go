package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
)

// bounded is a data port with bounds of a test.
func bounded(t *testing.T, o setup, limit int, idle time.Duration) *edge {
	t.Helper()
	o.limit, o.idle = limit, idle
	return start(t, o)
}

// raw is a client that speaks bytes.
type raw struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (e *edge) dial(t *testing.T) *raw {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &raw{c, t, bufio.NewReader(c)}
}

func (c *raw) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads one answer.
func (c *raw) answer() reply {
	c.t.Helper()
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return reply{res, string(body)}
}

// over waits until the server has ended the connection.
func (c *raw) over() {
	c.t.Helper()
	if n, err := io.Copy(io.Discard, c.r); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("%d more bytes, %v", n, err)
	}
}

func get(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + clientKey + "\r\n\r\n"
}

func post(body string, length int) string {
	return fmt.Sprintf("POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", clientKey, length, body)
}

// deadlineOf is what an error says of the limit that ran out.
func deadlineOf(r reply) string {
	o := gjson.Get(r.text, "error.causeway")
	return o.Get("deadline_kind").Str + " " + o.Get("deadline_source").Str + " " + o.Get("dispatch").Str
}

// T67: nothing that trickles gets to a turn, and so to a permit.
func TestT67_SlowLoris(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"header":                      {"POST /v1/responses HTTP/1.1\r\nHost: x\r\nX-A: b", "inboundHeader operator none"},
		"the first letter of it":      {"P", "inboundHeader operator none"},
		"body at a byte now and then": {post("{", 100_000), "inboundBody operator none"},
		"body of unknown length": {"POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + clientKey +
			"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", "inboundBody operator none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, setup{intake: intake.Options{FloorAfter: 150 * time.Millisecond}, headerTime: 150 * time.Millisecond})
			c := e.dial(t)
			c.send(tt.text)
			got := c.answer()
			if got.StatusCode != http.StatusRequestTimeout || got.code() != failure.RequestTimeout || deadlineOf(got) != tt.want || !got.Close {
				t.Errorf("%d %s %v", got.StatusCode, got.text, got.Header)
			}
			c.over()
			if e.turns.last() != nil || e.Live().Count() != 0 {
				t.Error("it got to a turn")
			}
		})
	}
}

// A client that has nothing to say yet is not told off, and neither is one of
// HTTP/2, to which such an answer means nothing.
func TestT67_SilenceIsNotAnswered(t *testing.T) {
	e := start(t, setup{headerTime: 50 * time.Millisecond, upstream: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	for _, text := range []string{"", "PRI * HTTP/2.0\r\n"} {
		c := e.dial(t)
		c.send(text)
		c.over()
	}
	c := e.dial(t) // whose header came in time: the limit is gone with it
	c.send(get("/v1/x"))
	if got := c.answer(); got.StatusCode != http.StatusOK {
		t.Error(got.StatusCode, got.text)
	}
	c.send("GET /v1/x HT")
	if got := c.answer(); got.StatusCode != http.StatusRequestTimeout {
		t.Errorf("of the second request: %d", got.StatusCode)
	}
	c.over()
}

// Nor is one told off that has had its answer and asks for nothing more.
func TestT67_AnIdleConnectionEndsInSilence(t *testing.T) {
	e := start(t, setup{idleTime: 50 * time.Millisecond, upstream: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	c := e.dial(t)
	c.send(get("/v1/x"))
	if got := c.answer(); got.StatusCode != http.StatusOK {
		t.Error(got.StatusCode, got.text)
	}
	c.over()
}

// Whoever comes when all connections are in use is told, and when to come back.
func TestT33_AFullListenerSaysSo(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	running := make(chan struct{}, 3)
	e := bounded(t, setup{upstream: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		turns: func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
			running <- struct{}{}
			<-release
			w.WriteHeader(http.StatusOK)
		}}, 2, time.Hour)
	var held []*raw
	for range 2 {
		c := e.dial(t)
		c.send(post(turnBody, len(turnBody)))
		held = append(held, c)
		<-running
	}
	for range 2 * maxTurnedAway { // a place is free again when its connection is gone
		c := e.dial(t)
		c.send(get("/v1/x"))
		got := c.answer()
		if got.StatusCode != http.StatusServiceUnavailable || got.code() != failure.BulkheadFull || got.Header.Get("Retry-After") != "1" ||
			gjson.Get(got.text, "error.causeway.limit_scope").Str != "listener" || got.Header.Get("X-Causeway-Dispatch") != "none" {
			t.Fatalf("%d %s %v", got.StatusCode, got.text, got.Header)
		}
		_ = c.Close()
	}
	if n := strings.Count(e.log.String(), "Turning connections away"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
	close(release)
	for _, c := range held {
		if got := c.answer(); got.StatusCode != http.StatusOK {
			t.Error(got.StatusCode)
		}
	}
	_ = held[0].Close()
	// A connection that ends makes room.
	for deadline := time.Now().Add(10 * time.Second); ; {
		c := e.dial(t)
		c.send(get("/v1/x"))
		if got := c.answer(); got.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no room again")
		}
	}
}

// The longest idle connection makes room; one with a request never does (B106), nor
// one that had one a moment ago (B115).
func TestB106_OnlyIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var running sync.WaitGroup
	running.Add(1)
	e := bounded(t, setup{upstream: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		turns: func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
			running.Done()
			<-release
			_, _ = io.WriteString(w, "done")
		}}, 3, time.Nanosecond)
	busy := e.dial(t)
	busy.send(post(turnBody, len(turnBody)))
	running.Wait()
	var idle []*raw
	for n := range 2 {
		c := e.dial(t)
		c.send(get("/v1/x"))
		c.answer()
		awaitIdle(t, e, n+1)
		idle = append(idle, c)
	}
	first, second := idle[0], idle[1]
	third := e.dial(t)
	third.send(get("/v1/x"))
	if got := third.answer(); got.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", got.StatusCode, got.text)
	}
	first.over()
	second.send(get("/v1/x"))
	if got := second.answer(); got.StatusCode != http.StatusOK {
		t.Error("the wrong one made room:", got.StatusCode)
	}
	close(release)
	if got := busy.answer(); got.text != "done" {
		t.Errorf("%d %q", got.StatusCode, got.text)
	}
}

// awaitIdle waits until the server sees n connections without a request.
func awaitIdle(t *testing.T, e *edge, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		e.listener.mu.Lock()
		idle := 0
		for c := range e.listener.open {
			if c.idleSince.Load() != busy {
				idle++
			}
		}
		e.listener.mu.Unlock()
		if idle == n {
			return
		}
	}
	t.Fatal("they are not idle")
}

// A listener that is out of descriptors for a while must not end the proxy.
func TestT72_AcceptGoesOnWithoutDescriptors(t *testing.T) {
	e := start(t, setup{refuseAccepts: 3, upstream: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	if got := e.call(t, "GET", "/v1/x", ""); got.StatusCode != http.StatusOK {
		t.Error(got.StatusCode)
	}
}

// short is a listener of a process without descriptors.
type short struct {
	net.Listener
	left int
}

func (s *short) Accept() (net.Conn, error) {
	if s.left > 0 {
		s.left--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return s.Listener.Accept()
}

// Nothing waits for a client that is being turned away when the port closes.
func TestClosingAFullListenerEndsItsFarewells(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(inner, 0, time.Hour, quietLogger)
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	var c net.Conn
	for range 2 { // one says nothing, and is told nothing
		if c, err = new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	_, _ = io.WriteString(c, "GET")
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Fatal(err)
	} else {
		_ = res.Body.Close()
	}
	_ = l.Close() // goleak looks for the rest
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
