package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"github.com/causeway-dev/causeway/api/bundle"
	scripted "github.com/causeway-dev/causeway/test/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSSEReader(t *testing.T) {
	for name, tc := range map[string]struct {
		stream string
		want   []string
	}{
		"plain":                    {"event: a\ndata: {\"x\":1}\n\ndata: 2\n\n", []string{`{"x":1}`, "2"}},
		"CR LF and CR":             {"data: 1\r\n\r\ndata: 2\r\rdata: 3\n\r\n", []string{"1", "2", "3"}},
		"several data lines":       {"data: {\ndata: \"a\":1\ndata: }\n\n", []string{"{\n\"a\":1\n}"}},
		"no space, comments, ids":  {":c\nid: 7\nretry: 3\ndata:x\n\n", []string{"x"}},
		"events without data":      {"event: ping\n\ndata: 1\n\n", []string{"1"}},
		"line separators are data": {"data: a\u2028b\u2029c\n\n", []string{"a\u2028b\u2029c"}},
		"cut short":                {"data: 1\n\ndata: 2\n", []string{"1"}},
		"a long line":              {"data: " + strings.Repeat("y", 100_000) + "\n\n", []string{strings.Repeat("y", 100_000)}},
	} {
		for _, whole := range []bool{true, false} {
			var in io.Reader = strings.NewReader(tc.stream)
			if !whole {
				in = iotest.OneByteReader(in)
			}
			r := newSSEReader(in)
			var got []string
			for {
				b, err := r.next(nil)
				if err != nil {
					break
				}
				got = append(got, string(b))
			}
			if strings.Join(got, "|") != strings.Join(tc.want, "|") {
				t.Errorf("%s: got %.80q", name, got)
			}
		}
	}
}

func FuzzSSEReader(f *testing.F) {
	f.Add("data: 1\r\n\r\nevent: x\ndata: 2\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		whole, bytewise := newSSEReader(strings.NewReader(stream)), newSSEReader(iotest.OneByteReader(strings.NewReader(stream)))
		for {
			a, errA := whole.next(nil)
			b, errB := bytewise.next(nil)
			if string(a) != string(b) || (errA == nil) != (errB == nil) {
				t.Fatalf("%q and %q depend on how the stream is cut", a, b)
			}
			if errA != nil {
				return
			}
		}
	})
}

func TestEventKinds(t *testing.T) {
	for raw, want := range map[string]struct {
		kind Kind
		name string
		ok   bool
	}{
		`{"type":"response.created","response":{"id":"r"}}`: {KindCreated, "response.created", true},
		"{\n \"x\": 1, \"type\": \"response.completed\"}":   {KindCompleted, "response.completed", true},
		`{"type":"response.brand_new"}`:                     {KindOther, "response.brand_new", true},
		`{"type":"codex.brand_new"}`:                        {KindVendor, "codex.brand_new", true},
		`{"error":{"message":"x"}}`:                         {KindError, "error", true},
		`{"type":"error","status":400}`:                     {KindError, "error", true},
		`not json`:                                          {},
		`[1]`:                                               {},
		`{"type":"response.completed","response":{"id"}`:    {},
		``: {},
	} {
		b := newBuffer()
		b.b = append(b.b[:0], raw...)
		e, ok := parse(b)
		if ok != want.ok || e.Kind != want.kind || e.Type != want.name {
			t.Errorf("%s: %v %q %v", raw, e.Kind, e.Type, ok)
		}
	}
}

// Every shape that an upstream's error comes in, and what it means.
func TestFaultShapes(t *testing.T) {
	const denial = "previous_response_not_found"
	for raw, want := range map[string]string{
		`{"type":"error","status":400,"error":{"type":"invalid_request_error","code":"previous_response_not_found","message":"m","param":"previous_response_id"}}`: denial,
		`{"type":"error","error":{"type":"previous_response_not_found","message":"m"}}`:                                                                            denial,
		`{"type":"error","code":"previous_response_not_found","message":"m"}`:                                                                                      denial,
		`{"type":"response.failed","response":{"error":{"code":"previous_response_not_found","message":"m"}}}`:                                                     denial,
		`{"type":"error","error":{"type":"invalid_request_error","message":"Invalid ` + "`previous_response_id`" + `."}}`:                                          denial,
		`{"type":"error","error":{"type":"invalid_request_error","message":"Invalid ` + "`previous_response_id`" + `","param":null}}`:                              denial,
		`{"type":"error","error":{"type":"invalid_request_error","message":"Invalid ` + "`previous_response_id`" + `","param":""}}`:                                "",
		`{"type":"error","error":{"type":"invalid_request_error","message":"Invalid ` + "`previous_response_id`" + `","param":"input"}}`:                           "",
		`{"type":"error","error":{"type":"invalid_request_error","param":"previous_response_id","message":"Previous response with id 'x' not found."}}`:            denial,
		`{"type":"error","status":429,"error":{"type":"usage_limit_reached","code":null,"message":"m"}}`:                                                           "quota",
		`{"type":"error","status_code":429,"error":{"message":"m"}}`:                                                                                               "limit",
		`{"type":"error","status":401,"error":{"message":"m"}}`:                                                                                                    "auth",
		`{"type":"error","error":{"type":"authentication_error","message":"m"}}`:                                                                                   "auth",
		`{"type":"error","status":400,"error":{"message":"No tool output found for function call call_1."}}`:                                                       "tools",
		`{"type":"error","status":400,"error":{"code":"websocket_connection_limit_reached","message":"m"}}`:                                                        "age",
		`{"type":"error","status":400,"error":{"code":"invalid_encrypted_content","message":"m"}}`:                                                                 "sealed",
	} {
		kind := KindError
		if strings.Contains(raw, "response.failed") {
			kind = KindFailed
		}
		f := ReadFault(Event{Kind: kind, Data: []byte(raw)})
		got := ""
		switch {
		case f.Denial():
			got = denial
		case f.MissingToolOutput():
			got = "tools"
		case f.ConnectionLimit():
			got = "age"
		case f.SealedForeign():
			got = "sealed"
		case f.Auth():
			got = "auth"
		case f.Quota():
			got = "quota"
		case f.Limit():
			got = "limit"
		}
		if got != want {
			t.Errorf("%s: %q, want %q (%+v)", raw, got, want, f)
		}
	}
	f := ReadFault(Event{Kind: KindError, Data: []byte(`{"type":"error","status":429,"headers":{"retry-after":"3"},"error":{"code":"x"}}`)})
	if f.Header("Retry-After") != "3" || f.Header("x") != "" {
		t.Errorf("headers of a frame are not read: %q", f.Header("Retry-After"))
	}
}

func rig(t *testing.T, script scripted.Script) (*scripted.Server, *Dialer, Target) {
	t.Helper()
	s := scripted.StartTLS(t, scripted.Options{Accounts: map[string]string{"k": "a"}, Script: script})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA)
	d := NewDialer(Options{RootCAs: roots, Connect: 5 * time.Second, TLS: 5 * time.Second, ResponseHeader: 5 * time.Second})
	t.Cleanup(d.Close)
	return s, d, Target{Endpoint: s.URL + "/v1", Account: "a", Credential: bundle.Credential{APIKey: "k"}, Header: UpgradeHeader(http.Header{}, true)}
}

func TestDialErrorsSayWhere(t *testing.T) {
	_, d, target := rig(t, scripted.Script{})
	closed, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once, to have a port nobody listens on
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	untrusted := NewDialer(Options{Connect: time.Second, TLS: time.Second})
	defer untrusted.Close()
	for name, tc := range map[string]struct {
		dialer *Dialer
		target Target
		stage  string
		status int
	}{
		"nobody listens":     {d, Target{Endpoint: "https://" + closed.Addr().String() + "/v1"}, "connect", 0},
		"unknown authority":  {untrusted, target, "tls", 0},
		"credential refused": {d, Target{Endpoint: target.Endpoint, Credential: bundle.Credential{APIKey: "canary"}}, "upgrade", 401},
		"no WebSocket there": {d, Target{Endpoint: strings.TrimSuffix(target.Endpoint, "/v1") + "/nowhere", Credential: target.Credential}, "upgrade", 200},
	} {
		_, err := tc.dialer.WebSocket(t.Context(), tc.target)
		var dial *DialError
		if !errors.As(err, &dial) || dial.Stage != tc.stage || dial.Status != tc.status || !errors.Is(err, ErrNotSent) {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the error quotes the credential", name)
		}
		if dial != nil && tc.status == 200 != dial.NoWebSocket() {
			t.Errorf("%s: NoWebSocket %v", name, dial.NoWebSocket())
		}
	}
}

func TestHTTPRefusalIsAnErrorEvent(t *testing.T) {
	_, d, target := rig(t, scripted.Script{Rules: []scripted.Rule{{Fault: &scripted.Fault{Action: scripted.ActStatus, Status: 429, Code: "rate_limit_exceeded", Headers: map[string]string{"Retry-After": "9"}}}}})
	c := d.HTTP(target)
	defer c.Close()
	if err := c.Send(Request{Segments: [][]byte{[]byte(`{"model":"m","stream":true,"input":"x"}`)}}); err != nil {
		t.Fatal(err)
	}
	e, err := c.Receive()
	if err != nil || e.Kind != KindError {
		t.Fatalf("%v %v", e.Kind, err)
	}
	if f := ReadFault(e); f.Status != 429 || f.Code != "rate_limit_exceeded" || f.Header("retry-after") != "9" {
		t.Fatalf("%+v", f)
	}
	var ended *Ended
	if _, err = c.Receive(); !errors.As(err, &ended) || ended.Cause != CauseClean {
		t.Fatalf("after the refusal: %v", err)
	}
}

func TestHTTPThatNeverLeftIsNotSent(t *testing.T) {
	d := NewDialer(Options{Connect: time.Second})
	defer d.Close()
	c := d.HTTP(Target{Endpoint: "https://127.0.0.1:1/v1"})
	defer c.Close()
	if err := c.Send(Request{Segments: [][]byte{[]byte("{}")}}); !errors.Is(err, ErrNotSent) {
		t.Fatalf("send: %v", err)
	}
	if _, err := c.Receive(); !errors.Is(err, ErrNotSent) {
		t.Fatalf("receive: %v", err)
	}
}

// An idle socket has a reader: it answers pings, and learns at once that the
// peer is gone.
func TestB104_IdleSocketLearnsOfItsEnd(t *testing.T) {
	s, d, target := rig(t, scripted.Script{})
	c, err := d.WebSocket(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := c.Receive()
		ended <- err
	}()
	go func() { _ = s.Shutdown(context.Background()) }()
	select {
	case err := <-ended:
		var e *Ended
		if !errors.As(err, &e) || e.Code != 1001 {
			t.Fatalf("ended with %v", err)
		}
	case <-time.After(time.Second):
		t.Fatal("the end was not seen within a second")
	}
}

// A server that pings, and would kill a socket that does not answer.
func TestB104_IdleSocketAnswersPings(t *testing.T) {
	pong := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		conn, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		conn.SetPongHandler(func(string) error {
			close(pong)
			return nil
		})
		_ = conn.WriteControl(websocket.PingMessage, []byte("alive?"), time.Now().Add(time.Second))
		_, _, _ = conn.ReadMessage()
	}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	d := NewDialer(Options{RootCAs: roots, Connect: time.Second, TLS: time.Second})
	defer d.Close()
	c, err := d.WebSocket(t.Context(), Target{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { _, _ = c.Receive() }()
	select {
	case <-pong:
	case <-time.After(5 * time.Second):
		t.Fatal("the ping was not answered")
	}
	if c.Heard().IsZero() {
		t.Error("the ping was not heard")
	}
}

func TestB67_CloseLeavesNothingBehind(t *testing.T) {
	_, d, target := rig(t, scripted.Script{Rules: []scripted.Rule{{Match: scripted.Match{Route: "upgrade"}, Fault: &scripted.Fault{At: scripted.AtUpgrade, Action: scripted.ActNoPong}}}})
	before := runtime.NumGoroutine()
	for range 300 {
		c, err := d.WebSocket(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = c.Receive() }()
		c.Close()
		c.Close()
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before+5 {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d at the start", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}

func TestHeaderTables(t *testing.T) {
	client := http.Header{"Authorization": {"Bearer c"}, "Originator": {"codex_exec"}, "Thread-Id": {"t"}, "X-Forwarded-For": {"1"}, "Cf-Ray": {"1"},
		"X-Causeway-Peer-Epoch": {"1"}, "X-Stainless-Lang": {"js"}, "Content-Encoding": {"zstd"}, "Chatgpt-Account-Id": {"x"}, "Cookie": {"x"}, "X-Codex-Turn-Metadata": {"{}"}}
	full := RequestHeader(client)
	if len(full) != 4 || full.Get("X-Stainless-Lang") != "js" || full.Get("X-Codex-Turn-Metadata") != "{}" {
		t.Errorf("request: %v", full)
	}
	upgrade := UpgradeHeader(client, false)
	if upgrade.Get("Thread-Id") != "t" || upgrade.Get("X-Codex-Turn-Metadata") != "" || upgrade.Get("Openai-Beta") != betaWebSocket {
		t.Errorf("upgrade: %v", upgrade)
	}
	if shared := UpgradeHeader(client, true); shared.Get("Thread-Id") != "" || shared.Get("Originator") != "codex_exec" {
		t.Errorf("B102: shared upgrade: %v", shared)
	}
}

func BenchmarkParseDelta(b *testing.B) {
	raw := []byte(`{"type":"response.output_text.delta","item_id":"msg_1","output_index":0,"content_index":0,"delta":"hello","sequence_number":12}`)
	b.ReportAllocs()
	for b.Loop() {
		buf := newBuffer()
		buf.b = append(buf.b[:0], raw...)
		e, ok := parse(buf)
		if !ok {
			b.Fatal("not parsed")
		}
		e.Release()
	}
}
