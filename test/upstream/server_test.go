package upstream

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"
)

func TestOtherRoutes(t *testing.T) {
	s := Start(t, Options{Accounts: map[string]string{"sk": "a"}, KeepBodies: true})
	for _, c := range []struct{ method, path, body, get, want string }{
		{"GET", "/v1/models", "", "data.0.id", "gpt-5.5"},
		{"GET", "/v1/models?client_version=0.169.0", "", "models.0.slug", "gpt-5.5"},
		{"GET", "/backend-api/codex/models", "", "models.0.truncation_policy.mode", "tokens"},
		{"POST", "/v1/embeddings", `{"model":"e","input":["a","b"]}`, "data.#", "2"},
		{"POST", "/v1/chat/completions", `{"model":"c"}`, "choices.0.message.role", "assistant"},
		{"POST", "/v1/files?purpose=x", "some bytes", "body_sha256", Digest([]byte("some bytes"))},
		{"DELETE", "/v1/responses/resp_1", "", "method", "DELETE"},
		{"GET", "/backend-api/wham/usage", "", "plan_type", "pro"},
	} {
		r := call(t, s, c.method, c.path, "sk", c.body, "Content-Type", "application/octet-stream")
		if got := gjson.GetBytes(r.body, c.get).String(); r.status != http.StatusOK || got != c.want {
			t.Errorf("%s %s: %d, %s is %q, want %q", c.method, c.path, r.status, c.get, got, c.want)
		}
	}
	reqs := s.Ledger().Requests()
	if r := reqs[5]; len(reqs) != 8 || r.Route != RouteOther || r.Account != "a" || string(r.Body) != "some bytes" ||
		r.ContentType != "application/octet-stream" {
		t.Errorf("ledger: %+v", reqs)
	}
	broken := Rule{Match: Match{Route: "/v1/files"}, Fault: &Fault{Action: ActStatus, Status: 502}}
	if err := s.Script(Script{Rules: []Rule{broken}}); err != nil {
		t.Fatal(err)
	}
	if r := call(t, s, "POST", "/v1/files", "sk", ""); r.status != http.StatusBadGateway {
		t.Errorf("a fault on another route: %d", r.status)
	}
}

func TestUnknownTokenIsRefused(t *testing.T) {
	s := Start(t, Options{Accounts: map[string]string{"sk-a": "a"}})
	for _, token := range []string{"", "sk-b"} {
		r := post(t, s, token, body())
		if r.status != http.StatusUnauthorized || r.get("error.code") != "invalid_api_key" {
			t.Errorf("%q: %d %s", token, r.status, r.body)
		}
	}
	_, head, err := open(testContext(t), s, websocket.Dialer{}, "/v1/responses", "sk-b")
	if err == nil || head.status != http.StatusUnauthorized {
		t.Errorf("upgrade: %v", err)
	}
	if ds := s.Ledger().Dispatches(); len(ds) != 0 {
		t.Errorf("dispatches of nobody: %+v", ds)
	}
}

func TestCompressedBodies(t *testing.T) {
	s := Start(t, Options{KeepBodies: true})
	plain := body("input", strings.Repeat("long ", 1000))
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, _ = w.Write([]byte(plain))
	_ = w.Close()
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	zs := enc.EncodeAll([]byte(plain), nil)
	_ = enc.Close()
	for i, c := range []struct{ encoding, body string }{{"gzip", gz.String()}, {"zstd", string(zs)}} {
		r := call(t, s, http.MethodPost, "/v1/responses", "sk", c.body, "Content-Encoding", c.encoding)
		if r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", c.encoding, r.status, r.body)
		}
		d := ended(t, s, i+1)[i]
		if d.WireBytes != len(c.body) || d.BodyBytes != len(plain) || string(d.Body) != plain {
			t.Errorf("%s: ledger has %d and %d bytes", c.encoding, d.WireBytes, d.BodyBytes)
		}
	}
	if r := call(t, s, http.MethodPost, "/v1/responses", "sk", "no", "Content-Encoding", "zstd"); r.status != http.StatusBadRequest {
		t.Errorf("no zstd: %d", r.status)
	}
}

func TestDeflateOnSockets(t *testing.T) {
	s := Start(t, Options{Script: Script{Connection: Connection{Deflate: true}}})
	ws, _, err := open(testContext(t), s, websocket.Dialer{EnableCompression: true}, "/v1/responses", "sk")
	if err != nil {
		t.Fatal(err)
	}
	k := &sock{t, testContext(t), ws}
	k.turn("input", strings.Repeat("x", 50_000))
	_ = ws.Close()
	isClosed := func([]Dispatch) bool { return !s.Ledger().Connections()[0].Closed.IsZero() }
	if err := s.Ledger().Wait(testContext(t), isClosed); err != nil {
		t.Fatal(err)
	}
	rec, dis := s.Ledger().Connections()[0], ended(t, s, 1)[0]
	if rec.BytesIn > 10_000 || dis.WireBytes < 50_000 || rec.CloseCode != 1006 || rec.ClosedBy != "peer" || rec.Transport != TransportWS {
		t.Errorf("connection %+v\ndispatch of %d bytes", rec, dis.WireBytes)
	}
}

func TestTLSWithAnAuthorityOfItsOwn(t *testing.T) {
	s := StartTLS(t, Options{})
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.CA) {
		t.Fatal("no certificate in CA")
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	req, err := http.NewRequestWithContext(testContext(t), http.MethodGet, s.URL+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk")
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.Proto != "HTTP/1.1" {
		t.Errorf("spoke %s", res.Proto)
	}
	if got := s.Ledger().Requests()[0].Connection; got != 1 {
		t.Errorf("connection %d", got)
	}
}

func TestAdminPaths(t *testing.T) {
	s := Start(t, Options{Accounts: map[string]string{"sk-secret": "a"}})
	post(t, s, "sk-secret", body())
	ended(t, s, 1)
	ledger := string(call(t, s, "GET", "/_ledger", "", "").body)
	if !strings.Contains(ledger, `"kind":"dispatch"`) || !strings.Contains(ledger, `"kind":"connection"`) ||
		strings.Contains(ledger, "sk-secret") {
		t.Errorf("ledger:\n%s", ledger)
	}
	for line := range strings.Lines(ledger) {
		if !gjson.Valid(line) {
			t.Errorf("no JSON: %s", line)
		}
	}
	if got := call(t, s, "GET", "/_stats", "", ""); got.get("dispatches") != "1" || got.get("accounts.a") != "1" {
		t.Errorf("stats: %s", got.body)
	}
	script := "accounts: [{name: a, token: sk-other}]\nrespond: {text: replaced}"
	if r := call(t, s, "POST", "/_script", "", script); r.status != http.StatusNoContent {
		t.Fatalf("script: %d %s", r.status, r.body)
	}
	if got := textOf(post(t, s, "sk-other", body()).events); got != "replaced" {
		t.Errorf("got %q", got)
	}
	if got := string(call(t, s, "GET", "/_script", "", "").body); strings.Contains(got, "sk-other") || !strings.Contains(got, "replaced") {
		t.Errorf("script: %s", got)
	}
	r := call(t, s, "POST", "/_script", "", "rules: [{fault: {action: x}}]")
	if r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "rules[0].fault.action") {
		t.Errorf("bad script: %d %s", r.status, r.body)
	}
	call(t, s, "DELETE", "/_ledger", "", "")
	if got := len(s.Ledger().Dispatches()); got != 0 {
		t.Errorf("%d dispatches after DELETE", got)
	}
	if r := call(t, s, "GET", "/_nothing", "", ""); r.status != http.StatusNotFound {
		t.Errorf("got %d", r.status)
	}
}

func TestLedgerHoldsHeadersButNoCredentials(t *testing.T) {
	s := Start(t, Options{})
	call(t, s, http.MethodPost, "/v1/responses", "sk-secret", body(),
		"Originator", "codex_exec", "X-Codex-Window-Id", "w:0", "Cookie", "a=secret", "Session-Id", "s1")
	d := ended(t, s, 1)[0]
	if d.Headers["originator"] != "codex_exec" || d.Headers["x-codex-window-id"] != "w:0" || d.Session != "s1" {
		t.Errorf("headers: %v", d.Headers)
	}
	for name, v := range d.Headers {
		if strings.Contains(v, "secret") {
			t.Errorf("%s holds a credential", name)
		}
	}
}

func TestCloseEndsEverything(t *testing.T) {
	s := faulty(t, Fault{At: AtAfterCreated, Action: ActMute})
	k := dial(t, s, "sk")
	k.say(create())
	k.next()
	answered := make(chan reply, 1)
	go func() { answered <- post(t, s, "sk", body()) }()
	if err := s.Ledger().Wait(k.ctx, func(ds []Dispatch) bool { return len(ds) == 2 && ds[1].Outcome == OutcomeMuted }); err != nil {
		t.Fatal(err)
	}
	s.Close() // TestMain finds what it leaves behind
	s.Close()
	if _, _, err := k.ReadMessage(); err == nil {
		t.Error("the socket still speaks")
	}
	if r := <-answered; r.err == nil {
		t.Errorf("the request ended well: %d", r.status)
	}
	if got := s.Stats(); got.InFlight != 0 || got.Sockets != 0 {
		t.Errorf("stats: %+v", got)
	}
}

func TestShutdownTellsSockets(t *testing.T) {
	s := Start(t, Options{})
	k := dial(t, s, "sk")
	k.turn()
	if err := s.Shutdown(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("got %v", err)
	}
}

// Over pipes a bubble's clock rules: 400 s of silence take no time.
func TestPipeInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := StartPipe(t, Options{Script: Script{Respond: &Respond{Text: "late", Delay: Duration(400 * time.Second)}}})
		began := time.Now()
		ws, _, err := open(t.Context(), s, websocket.Dialer{}, "/v1/responses", "sk")
		if err != nil {
			t.Fatal(err)
		}
		k := &sock{t, t.Context(), ws}
		if got := textOf(k.turn()); got != "late" || time.Since(began) != 400*time.Second {
			t.Errorf("got %q after %s", got, time.Since(began))
		}
		_ = ws.Close()
		s.Close()
	})
}
