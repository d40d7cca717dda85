package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/route"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

func TestScenario103_ForwardedOnceAndStreamed(t *testing.T) {
	var seen bridge.Request
	var header http.Header
	goOn := make(chan struct{})
	o := newOwner(t, func(w http.ResponseWriter, r *http.Request, req *bridge.Request) {
		seen, header = *req, r.Header
		w.Header().Set("X-Request-Id", req.ID)
		w.Header().Set("X-Ratelimit-Limit", "5")
		say(w, created)
		<-goOn
		say(w, delta, completed)
	})
	in := newOrigin(t, o.address)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, in.url, strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Thread-Id": "t1", "X-Codex-Turn-State": "token", "Originator": "codex_exec", "Idempotency-Key": "k", "Accept-Language": "de",
		"Authorization": "Bearer cwk-canary", "Cookie": "canary", "X-Api-Key": "canary",
	} {
		req.Header.Set(name, value)
	}
	res, err := in.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, len(created))
	if _, err := io.ReadFull(res.Body, first); err != nil || string(first) != created {
		t.Fatalf("%q, %v: an event waits for the next", first, err)
	}
	close(goOn)
	rest, err := io.ReadAll(res.Body)
	if err != nil || string(rest) != delta+completed {
		t.Errorf("%q, %v", rest, err)
	}
	if res.Header.Get("X-Request-Id") != "req-1" || res.Header.Get("X-Ratelimit-Limit") != "5" || res.Header.Get(outcomeHeader) != "" {
		t.Errorf("%v", res.Header)
	}
	if seen.ID != "req-1" || seen.Route != bridge.RouteCodex || seen.Client != "alice" || !seen.Stream || string(seen.Body) != `{"model":"m"}` ||
		seen.Forwarded == nil || *seen.Forwarded != conversation || seen.Runtime != o.runtime.Load() {
		t.Errorf("the owner got %+v", seen)
	}
	for name, want := range map[string]string{
		"Thread-Id": "t1", "X-Codex-Turn-State": "token", "Originator": "codex_exec", "Idempotency-Key": "k", "Accept-Language": "de",
		"User-Agent": "Go-http-client/1.1", "Authorization": "", "Cookie": "", "X-Api-Key": "", envelopeHeader: "", "Expect": "",
	} {
		if got := seen.Header.Get(name); got != want {
			t.Errorf("%s travelled as %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key"} {
		if header.Get(name) != "" {
			t.Errorf("%s went to the peer", name)
		}
	}
	if o.count.Load() != 1 || in.here.Load() != 0 {
		t.Errorf("%d turns at the owner, %d here", o.count.Load(), in.here.Load())
	}
	in.outcome(t, telemetry.ForwardAcknowledged)
}

func TestScenario103_AnswersInOnePieceAndErrorsAreRelayed(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		header string
	}{
		"small": {200, `{"object":"response"}`, ""},
		"large": {200, `{"object":"response","x":"` + strings.Repeat("x", 3<<20) + `"}`, ""},
		"error": {429, `{"error":{}}`, "7"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(t, func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
				w.Header().Set("Content-Type", "application/json")
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			in := newOrigin(t, o.address)
			got := in.post(t, "{}", "X-Test-Stream", "no")
			if got.status != tt.status || got.body != tt.body || got.err != nil || got.header.Get("Retry-After") != tt.header ||
				got.header.Get("Content-Length") != strconv.Itoa(len(tt.body)) {
				t.Errorf("%d %d bytes %v %v", got.status, len(got.body), got.header, got.err)
			}
			in.outcome(t, telemetry.ForwardAcknowledged)
		})
	}
}

// bare is a peer that follows a script on the level of bytes.
func bare(t *testing.T, script func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	return frozen(t, func(c net.Conn, r *bufio.Reader, _ <-chan struct{}) { script(c, r) })
}

// frozen is bare for scripts that wait for the end of the test.
func frozen(t *testing.T, script func(c net.Conn, r *bufio.Reader, end <-chan struct{})) string {
	t.Helper()
	listener, end := listen(t), make(chan struct{})
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer conn.Close()
				script(conn, bufio.NewReader(conn), end)
			})
		}
	})
	t.Cleanup(func() {
		close(end)
		_ = listener.Close()
		tasks.Wait()
	})
	return listener.Addr().String()
}

// readHead reads a request's head and returns the length of its body.
func readHead(r *bufio.Reader) int {
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil || line == "\r\n" {
			return length
		}
		if value, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
}

const goAhead = "HTTP/1.1 100 Continue\r\n\r\n"

func TestScenario104_LostAfterTheBodyIsNotReplayed(t *testing.T) {
	address := bare(t, func(conn net.Conn, r *bufio.Reader) {
		length := readHead(r)
		_, _ = io.WriteString(conn, goAhead)
		_, _ = io.CopyN(io.Discard, r, int64(length))
	})
	in := newOrigin(t, address)
	// A key that makes net/http believe that it may send a request twice.
	got := in.post(t, `{"model":"m"}`, "Idempotency-Key", "k")
	if got.status != http.StatusBadGateway || gjson.Get(got.body, "error.code").Str != "stream_incomplete" ||
		gjson.Get(got.body, "error.reason").Str != "peer_lost" || got.header.Get("Retry-After") != "" || got.header.Get("X-Request-Id") != "req-1" {
		t.Errorf("%+v", got)
	}
	if in.here.Load() != 0 {
		t.Error("the turn was served here too")
	}
	in.outcome(t, telemetry.ForwardAmbiguous)
}

func TestScenario104_LostBeforeTheEndOfTheBodyIsServedHere(t *testing.T) {
	small, big := `{"model":"m"}`, `{"x":"`+strings.Repeat("x", 32<<20)+`"}`
	part := func(c net.Conn, r *bufio.Reader) {
		readHead(r)
		_, _ = io.WriteString(c, goAhead)
		_, _ = io.CopyN(io.Discard, r, 1<<20)
	}
	hello := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
	for name, tt := range map[string]struct {
		body   string
		script func(net.Conn, *bufio.Reader, <-chan struct{})
		within time.Duration
	}{
		"at once":         {small, func(net.Conn, *bufio.Reader, <-chan struct{}) {}, time.Second},
		"after the head":  {small, func(_ net.Conn, r *bufio.Reader, _ <-chan struct{}) { readHead(r) }, time.Second},
		"within the body": {big, func(c net.Conn, r *bufio.Reader, _ <-chan struct{}) { part(c, r) }, time.Second},
		"somebody else":   {small, func(c net.Conn, r *bufio.Reader, _ <-chan struct{}) { readHead(r); _, _ = io.WriteString(c, hello) }, time.Second},
		"no HTTP":         {small, func(c net.Conn, _ *bufio.Reader, _ <-chan struct{}) { _, _ = io.WriteString(c, "220 mail ESMTP\r\n") }, time.Second},
		"frozen":          {small, func(_ net.Conn, _ *bufio.Reader, end <-chan struct{}) { <-end }, takeTime},
		"frozen within the body": {big, func(c net.Conn, r *bufio.Reader, end <-chan struct{}) {
			part(c, r)
			<-end
		}, stallTime},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, start := newOrigin(t, frozen(t, tt.script)), time.Now()
			got := in.post(t, tt.body)
			if got.body != "served here" || got.err != nil || in.here.Load() != 1 {
				t.Errorf("%d %.200q %v", got.status, got.body, got.err)
			}
			if took := time.Since(start); took > tt.within+10*time.Second { // a busy machine is slow
				t.Errorf("it took %s", took)
			}
			in.outcome(t, telemetry.ForwardNotDispatched)
			// The next turn does not wait for it again.
			if in.Owner(conversation) != "" || in.post(t, small).body != "served here" || !strings.Contains(in.logs.String(), "a moment ago") {
				t.Error("the peer is still asked")
			}
		})
	}
}

// A turn whose client leaves before a peer took it is nobody's.
func TestScenario104_TheClientLeavesFirst(t *testing.T) {
	asked := make(chan struct{})
	in := newOrigin(t, frozen(t, func(_ net.Conn, r *bufio.Reader, end <-chan struct{}) {
		readHead(r)
		close(asked)
		<-end
	}))
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-asked
		leave()
	}()
	if got := in.do(req); got.err == nil {
		t.Errorf("%+v", got)
	}
	in.idle(t)
	if in.here.Load() != 0 {
		t.Error("it was served here")
	}
	if in.avoided.skip(*in.address.Load(), time.Now()) {
		t.Error("the peer is blamed")
	}
}

func TestScenario105_ARejectedTurnIsServedHere(t *testing.T) {
	o := newOwner(t, answer)
	o.draining.Store(true)
	in := newOrigin(t, o.address)
	if got := in.post(t, "{}"); got.body != "served here" {
		t.Errorf("%+v", got)
	}
	in.outcome(t, telemetry.ForwardRejected)
	if o.count.Load() != 0 || o.live.Load() != 0 {
		t.Error("the draining peer took it")
	}
	if in.Owner(conversation) != "" {
		t.Error("the draining peer still owns keys")
	}
}

// An answer of the owner's own, whatever its status, is the answer.
func TestScenario105_AnAcknowledgedErrorIsNotServedAgain(t *testing.T) {
	o := newOwner(t, func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	in := newOrigin(t, o.address)
	if got := in.post(t, "{}"); got.status != http.StatusServiceUnavailable || in.here.Load() != 0 {
		t.Errorf("%+v, %d served here", got, in.here.Load())
	}
}

func TestScenario106_NoSecondHop(t *testing.T) {
	o := newOwner(t, answer)
	in := newOrigin(t, o.address)
	req := &bridge.Request{ID: "r", Body: []byte("{}"), Header: http.Header{}, Runtime: in.runtime.Load(), Forwarded: &conversation}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if in.Forward(nil, r, req, conversation, o.address) || o.count.Load() != 0 {
		t.Error("a forwarded turn went on")
	}
}

// What ends a session at its owner while a turn is on its way: the turn is served
// here, and the owner is not asked again until it is gone from the table.
func TestScenario108_OwnerDrainsDuringTheForward(t *testing.T) {
	o := newOwner(t, answer)
	in := newOrigin(t, o.address)
	if got := in.post(t, "{}"); got.body != created+delta+completed {
		t.Fatalf("%+v", got)
	}
	o.draining.Store(true)
	if got := in.post(t, "{}"); got.body != "served here" {
		t.Errorf("%+v", got)
	}
	in.table.Store(route.New("origin", []route.Member{{Pod: "origin", Address: "127.0.0.1:1"}}))
	if in.Owner(conversation) != "" || o.count.Load() != 1 {
		t.Error("the owner is still asked")
	}
}

func TestForwardKnowsWhatIsForNobodyElse(t *testing.T) {
	o := newOwner(t, answer)
	in := newOrigin(t, o.address)
	in.runtime.Store(runtimeWith(t))
	if got := in.post(t, "{}"); got.body != "served here" {
		t.Errorf("without a key: %+v", got)
	}
	in.runtime.Store(runtimeWith(t, currentKey))
	for _, address := range []string{"", "127.0.0.1:1"} { // none, and its own
		in.address.Store(&address)
		if got := in.post(t, "{}"); got.body != "served here" {
			t.Errorf("to %q: %+v", address, got)
		}
	}
	if o.count.Load() != 0 {
		t.Error("the owner was asked")
	}
	self := newOrigin(t, o.address)
	self.o.Self.Address = o.address // it is the owner itself
	if got := self.post(t, "{}"); got.body != "served here" || o.count.Load() != 0 {
		t.Errorf("to itself: %+v", got)
	}
}

func TestOwnerIsOfTheTable(t *testing.T) {
	in := newOrigin(t, "127.0.0.1:2")
	in.table.Store(route.New("origin", []route.Member{{Pod: "origin", Address: "127.0.0.1:1"}, {Pod: "x", Address: "127.0.0.1:2"}, {Pod: "y", Address: "127.0.0.1:3"}}))
	counts := map[string]int{}
	for i := range 300 {
		k := conversation
		k.Digest[0], k.Digest[1] = byte(i), byte(i>>8)
		counts[in.Owner(k)]++
	}
	if len(counts) != 3 || counts[""] == 0 || counts["127.0.0.1:2"] == 0 || counts["127.0.0.1:3"] == 0 {
		t.Errorf("%v", counts)
	}
	in.table.Store(nil)
	if got := in.Owner(conversation); got != "" {
		t.Errorf("without a table: %q", got)
	}
}

func TestClientGoneCancelsTheTurnOfTheOwner(t *testing.T) {
	for _, head := range []bool{false, true} {
		t.Run(fmt.Sprint("head sent: ", head), func(t *testing.T) {
			began, gone := make(chan struct{}), make(chan struct{})
			o := newOwner(t, func(w http.ResponseWriter, r *http.Request, _ *bridge.Request) {
				if head {
					say(w, created)
				}
				close(began)
				<-r.Context().Done()
				close(gone)
			})
			in := newOrigin(t, o.address)
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan reply, 1)
			go func() { done <- in.do(req) }()
			<-began
			leave()
			<-gone
			if got := <-done; got.err == nil {
				t.Errorf("%+v", got)
			}
			if in.here.Load() != 0 {
				t.Error("a turn without a client was served here")
			}
		})
	}
}
