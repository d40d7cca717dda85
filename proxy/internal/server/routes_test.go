package server

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
)

const turnBody = `{"model":"gpt-5.5","input":"hi","x":1.0}`

func TestRoutes(t *testing.T) {
	e := start(t, setup{upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "upstream "+r.URL.Path)
	})})
	tests := []struct {
		method, path string
		status       int
		code, text   string
	}{
		{"POST", "/v1/responses", 200, "", turnBody},
		{"POST", "/v1/responses/", 200, "", turnBody},
		{"POST", "/v1/%72esponses", 200, "", turnBody},
		{"POST", "/backend-api/codex/responses", 200, "", turnBody},
		{"GET", "/v1/responses", 405, failure.MethodNotAllowed, ""},
		{"PUT", "/backend-api/codex/responses", 405, failure.MethodNotAllowed, ""},
		{"POST", "/v1/models", 405, failure.MethodNotAllowed, ""},
		{"GET", "/v1/responses/resp_1", 200, "", "upstream /base/v1/responses/resp_1"},
		{"POST", "/v1/chat/completions", 200, "", "upstream /base/v1/chat/completions"},
		{"TRACE", "/v1/chat/completions", 405, failure.MethodNotAllowed, ""},
		{"OPTIONS", "/v1/chat/completions", 405, failure.MethodNotAllowed, ""},
		{"GET", "/v1/../admin", 404, failure.NotFound, ""},
		{"GET", "/v1/files/..%2f..%2fadmin", 404, failure.NotFound, ""},
		{"GET", "/v1/files/%2e%2e/%2e%2e/admin", 404, failure.NotFound, ""},
		{"GET", `/v1/files/..%5Cadmin`, 404, failure.NotFound, ""},
		{"GET", "/%76%31/files", 404, failure.NotFound, ""},
		{"GET", "/v1", 404, failure.NotFound, ""},
		{"GET", "/v1/", 404, failure.NotFound, ""},
		{"GET", "/v1x", 404, failure.NotFound, ""},
		{"GET", "/", 404, failure.NotFound, ""},
		{"POST", "/backend-api/codex/other", 404, failure.NotFound, ""},
		{"GET", "/metrics", 404, failure.NotFound, ""},
		{"GET", "/admin/v1/sessions", 404, failure.NotFound, ""},
		{"GET", "/admin/v1/sessions/0123456789ab", 404, failure.NotFound, ""},
		{"GET", "/v1/../admin/v1/sessions", 404, failure.NotFound, ""},
	}
	for _, tt := range tests {
		t.Run(tt.method+" "+tt.path, func(t *testing.T) {
			got := e.call(t, tt.method, tt.path, turnBody)
			if got.StatusCode != tt.status || got.code() != tt.code || tt.text != "" && got.text != tt.text {
				t.Errorf("%d %s, want %d %s %s", got.StatusCode, got.text, tt.status, tt.code, tt.text)
			}
			if tt.status == 405 && got.Header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if got.Header.Get("X-Request-Id") == "" {
				t.Error("no x-request-id")
			}
		})
	}
}

func TestTurnIsHandedOver(t *testing.T) {
	e := start(t, setup{})
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(z, turnBody)
	_ = z.Close()
	e.do(t, e.request(t, "POST", "/backend-api/codex/responses", &packed, "Content-Encoding", "zstd",
		"X-Request-Id", "mine-1", "X-Causeway-Peer-Budget-Ms", "1", "Session-Id", "s"))
	got := e.turns.last()
	if got == nil {
		t.Fatal("no turn")
	}
	if got.ID != "mine-1" || got.Route != bridge.RouteCodex || got.Client != "alice" || !got.Stream ||
		string(got.Body) != turnBody || got.Runtime == nil {
		t.Errorf("%+v", got)
	}
	if got.Header.Get("Session-Id") != "s" || got.Header.Get("X-Causeway-Peer-Budget-Ms") != "" || got.Header.Get("Content-Encoding") != "" {
		t.Error(got.Header)
	}
	e.call(t, "POST", "/v1/responses", turnBody)
	if got := e.turns.last(); got.Stream || got.Route != bridge.RouteV1 {
		t.Errorf("%+v", got)
	}
}

func TestBadInput(t *testing.T) {
	e := start(t, setup{intake: intake.Options{MaxBody: 1000}})
	tests := []struct {
		name, path, body string
		headers          []string
		status           int
		code, text       string
	}{
		{"unknown client key", "/v1/responses", turnBody, []string{"Authorization", "Bearer cwk-unknown"},
			401, failure.InvalidAPIKey, "Authorization"},
		{"no client key", "/v1/responses", turnBody, []string{"Authorization", ""}, 401, failure.InvalidAPIKey, "Authorization"},
		{"key in another header", "/v1/responses", turnBody, []string{"Authorization", "", "X-Api-Key", clientKey},
			401, failure.InvalidAPIKey, ""},
		{"unknown key on pass-through", "/v1/files", turnBody, []string{"Authorization", "Bearer x"}, 401, failure.InvalidAPIKey, ""},
		{"body too large", "/v1/responses", strings.Repeat("x", 1001), nil, 400, failure.PayloadTooLarge, "1000"},
		{"zstd bomb", "/v1/responses", zstdBomb(t), []string{"Content-Encoding", "zstd"}, 400, failure.PayloadTooLarge, ""},
		{"unknown encoding", "/v1/responses", turnBody, []string{"Content-Encoding", "br"},
			415, failure.UnsupportedEncoding, "zstd, gzip, deflate"},
		{"invalid JSON", "/v1/responses", `{"model":}`, nil, 400, failure.InvalidJSON, "byte 10"},
		{"both continuations", "/v1/responses", `{"model":"m","previous_response_id":"r","conversation":"c"}`, nil,
			400, failure.InvalidRequest, `"param":"previous_response_id"`},
		{"background", "/v1/responses", `{"model":"m","background":true}`, nil, 400, failure.InvalidRequest, `"param":"background"`},
		{"no stream for Codex", "/backend-api/codex/responses", `{"model":"m","stream":false}`, nil,
			400, failure.InvalidRequest, `"param":"stream"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := e.call(t, "POST", tt.path, tt.body, tt.headers...)
			if got.StatusCode != tt.status || got.code() != tt.code || !strings.Contains(got.text, tt.text) {
				t.Errorf("%d %s, want %d %s with %q", got.StatusCode, got.text, tt.status, tt.code, tt.text)
			}
			if got.Close {
				t.Error("the connection was given up")
			}
		})
	}
	if e.turns.last() != nil {
		t.Error("a bad turn was served")
	}
}

func zstdBomb(t *testing.T) string {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll(make([]byte, 8<<20), nil))
}

func TestOpenModeNeedsNoKey(t *testing.T) {
	e := start(t, setup{change: func(b *bundle.Bundle, _ *bundle.Credentials) { b.Clients.Mode = bundle.ClientsOpen }})
	for _, auth := range []string{"", "Bearer anything", "Bearer " + clientKey} {
		got := e.call(t, "POST", "/v1/responses", turnBody, "Authorization", auth)
		if got.StatusCode != http.StatusOK || e.turns.last().Client != "" {
			t.Error(auth, got.StatusCode, got.text)
		}
	}
}

func TestUpgradeIsRefusedWith426(t *testing.T) {
	e := start(t, setup{})
	for _, path := range []string{"/v1/realtime", "/v1/responses/resp_1"} {
		for _, key := range []string{"Bearer " + clientKey, "Bearer wrong"} {
			got := e.call(t, "GET", path, "", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13",
				"Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Authorization", key)
			if got.StatusCode != http.StatusUpgradeRequired || got.code() != failure.UpgradeRequired {
				t.Error(path, got.StatusCode, got.text)
			}
		}
	}
	got := e.call(t, "POST", "/v1/responses", turnBody, "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c")
	if got.StatusCode != http.StatusOK {
		t.Error("an h2c upgrade is no WebSocket:", got.StatusCode)
	}
}

func TestRequestID(t *testing.T) {
	e := start(t, setup{})
	long := strings.Repeat("a", 129)
	for given, kept := range map[string]bool{"abc-1:2": true, long[:128]: true, long: false, "a b": false, "é": false, "": false} {
		got := e.call(t, "POST", "/v1/responses", turnBody, "X-Request-Id", given)
		if id := got.Header.Get("X-Request-Id"); (id == given) != kept || id == "" || id != e.turns.last().ID {
			t.Errorf("%q became %q", given, id)
		}
	}
	if a, b := requestID(nil), requestID(nil); a == b {
		t.Error("request ids repeat")
	}
}

func TestBearer(t *testing.T) {
	tests := []struct {
		values []string
		want   string
	}{
		{nil, ""},
		{[]string{"Bearer k"}, "k"},
		{[]string{"bearer  k "}, "k"},
		{[]string{"Basic k"}, ""},
		{[]string{"Bearer"}, ""},
		{[]string{"Bearer a", "Bearer b"}, ""},
	}
	for _, tt := range tests {
		if got := bearer(http.Header{"Authorization": tt.values}); got != tt.want {
			t.Errorf("%q gives %q, want %q", tt.values, got, tt.want)
		}
	}
}

// B03: streaming is tried on real sockets, with both versions of HTTP.
func TestB03_TurnsStreamOverRealSockets(t *testing.T) {
	next := make(chan struct{})
	e := start(t, setup{turns: func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		control := http.NewResponseController(w)
		for _, event := range []string{"data: 1\n\n", "data: 2\n\n"} {
			_, _ = io.WriteString(w, event)
			if err := control.Flush(); err != nil {
				t.Error(err)
			}
			<-next // the client has it before the handler goes on
		}
	}})
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	for name, transport := range map[string]*http.Transport{"HTTP/1.1": {}, "HTTP/2": {Protocols: &h2}} {
		t.Run(name, func(t *testing.T) {
			defer transport.CloseIdleConnections()
			res, err := transport.RoundTrip(e.request(t, "POST", "/v1/responses", strings.NewReader(turnBody)))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if !strings.HasPrefix(res.Proto, name) {
				t.Error(res.Proto)
			}
			for _, want := range []string{"data: 1\n\n", "data: 2\n\n"} {
				got := make([]byte, len(want))
				if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != want {
					t.Fatalf("%q, %v", got, err)
				}
				if e.Live().Count() != 1 {
					t.Error("live requests:", e.Live().Count())
				}
				next <- struct{}{}
			}
			if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
				t.Error(string(rest), err)
			}
			e.settle(t)
		})
	}
}

func TestPanics(t *testing.T) {
	e := start(t, setup{turns: func(w http.ResponseWriter, _ *http.Request, req *bridge.Request) {
		if req.Stream {
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		panic("about " + accountKey)
	}})
	got := e.call(t, "POST", "/v1/responses", turnBody)
	if got.StatusCode != http.StatusInternalServerError || got.code() != failure.InternalError {
		t.Error(got.StatusCode, got.text)
	}
	res, err := e.client.Do(e.request(t, "POST", "/v1/responses", strings.NewReader(`{"model":"m","stream":true}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("a broken stream ended cleanly")
	}
	if log := e.log.String(); strings.Contains(log, "CANARY") || !strings.Contains(log, "routes_test.go") {
		t.Error("the log has the panic's value or lacks its place:", log)
	}
}

func TestDrainEndsConnections(t *testing.T) {
	e := start(t, setup{})
	if got := e.call(t, "POST", "/v1/responses", turnBody); got.Close {
		t.Error("closed before")
	}
	e.Drain()
	if got := e.call(t, "POST", "/v1/responses", turnBody); got.StatusCode != http.StatusOK || !got.Close {
		t.Error("a draining proxy serves and closes:", got.StatusCode, got.Close)
	}
}

// A refused request's body is read, so that the client gets to see why.
func TestRefusedUploadsAreAnswered(t *testing.T) {
	e := start(t, setup{})
	for range 3 {
		got := e.do(t, e.request(t, "POST", "/v1/responses", bytes.NewReader(make([]byte, 32<<20)), "Authorization", "Bearer wrong"))
		if got.StatusCode != http.StatusUnauthorized {
			t.Error(got.StatusCode)
		}
	}
}

func TestRawSocketGarbage(t *testing.T) {
	e := start(t, setup{})
	for _, text := range []string{
		"\x16\x03\x01\x02\x00", "GET /v1/models\r\n\r\n",
		"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
	} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.ReadAll(conn)
		_ = conn.Close()
	}
	if got := e.call(t, "POST", "/v1/responses", turnBody); got.StatusCode != http.StatusOK {
		t.Error(got.StatusCode)
	}
}
