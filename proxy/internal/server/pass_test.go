package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestPassThroughHeaders(t *testing.T) {
	var seen atomic.Pointer[http.Request]
	e := start(t, setup{
		change: func(_ *bundle.Bundle, c *bundle.Credentials) {
			c.Accounts["first"] = bundle.Credential{AccessToken: accountKey, ChatGPTAccountID: chatgptID}
		},
		upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen.Store(r)
			h := w.Header()
			h.Set("X-Request-Id", "upstream-id")
			h.Set("Set-Cookie", "a=b")
			h.Set("Alt-Svc", `h3=":443"`)
			h.Set("Strict-Transport-Security", "max-age=1")
			h.Set("X-Causeway-Other", "x")
			h.Set("X-Ratelimit-Remaining-Requests", "7")
			h.Set("Openai-Model", "m")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "{}")
		}),
	})
	reply := e.call(t, "POST", "/v1/images%2Fx/edits?b=2&a=1;c&key=%20", "body",
		"User-Agent", "codex_exec/1", "Originator", "codex_exec", "Version", "1", "X-Stainless-Lang", "js", "Session-Id", "s", "Thread-Id", "t",
		"Accept-Encoding", "gzip", "Content-Type", "text/plain", "Idempotency-Key", "i", "X-Request-Id", "mine",
		"Chatgpt-Account-Id", "client's", "Cookie", "c=d", "X-Api-Key", "k", "Openai-Organization", "o",
		"Forwarded", "for=x", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Proto", "http", "X-Real-Ip", "1.2.3.4",
		"Cf-Ray", "r", "Cf-Connecting-Ip", "i",
		"Keep-Alive", "1", "Proxy-Authorization", "p", "X-Causeway-Peer-Budget-Ms", "1", "X-Causeway-X", "1", "X-Codex-Turn-State", "s",
		"Connection", "x-hop", "X-Hop", "1")
	if reply.StatusCode != http.StatusAccepted || reply.text != "{}" {
		t.Fatal(reply.StatusCode, reply.text)
	}
	got := seen.Load()
	if got.URL.EscapedPath() != "/base/v1/images%2Fx/edits" || got.URL.RawQuery != "b=2&a=1;c&key=%20" {
		t.Error(got.URL.EscapedPath(), got.URL.RawQuery)
	}
	want := http.Header{
		"User-Agent": {"codex_exec/1"}, "Originator": {"codex_exec"}, "Version": {"1"}, "X-Stainless-Lang": {"js"},
		"Session-Id": {"s"}, "Thread-Id": {"t"}, "Accept-Encoding": {"gzip"}, "Content-Type": {"text/plain"}, "Idempotency-Key": {"i"},
		"X-Request-Id": {"mine"}, "Authorization": {"Bearer " + accountKey}, "Chatgpt-Account-Id": {chatgptID}, "Content-Length": {"4"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Error("request:", diff)
	}
	reply.Header.Del("Date")
	want = http.Header{
		"X-Request-Id": {"mine"}, "X-Causeway-Upstream-Request-Id": {"upstream-id"}, "X-Ratelimit-Remaining-Requests": {"7"},
		"Openai-Model": {"m"}, "Content-Type": {"text/plain; charset=utf-8"}, "Content-Length": {"2"},
	}
	if diff := cmp.Diff(want, reply.Header); diff != "" {
		t.Error("answer:", diff)
	}
}

// B03: both directions stream at once, event by event.
func TestB03_PassThroughStreamsBothWays(t *testing.T) {
	e := start(t, setup{upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "echo "+line)
			_ = http.NewResponseController(w).Flush()
		}
	})})
	body, feed := io.Pipe()
	go func() { _, _ = io.WriteString(feed, "1\n") }()
	res, err := e.client.Do(e.request(t, "POST", "/v1/audio", body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for _, n := range []string{"1", "2", "3"} {
		if n != "1" {
			_, _ = io.WriteString(feed, n+"\n")
		}
		if line, err := lines.ReadString('\n'); err != nil || line != "echo "+n+"\n" {
			t.Fatal(line, err)
		}
		if got := e.state(t, "first").Inflight; got != 1 {
			t.Error("the account has", got, "live requests in the middle of an answer")
		}
	}
	_ = feed.Close()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Error(string(rest), err)
	}
	e.settle(t)
}

// What has arrived is passed on, also of an answer whose length is known.
func TestB03_PassThroughFlushesKnownLengths(t *testing.T) {
	hold := make(chan struct{})
	e := start(t, setup{upstream: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		_, _ = io.WriteString(w, "ab")
		_ = http.NewResponseController(w).Flush()
		<-hold
		_, _ = io.WriteString(w, "cd")
	})})
	res, err := e.client.Do(e.request(t, "GET", "/v1/files/f/content", nil))
	if err != nil {
		close(hold)
		t.Fatal(err)
	}
	defer res.Body.Close()
	start := make([]byte, 2)
	_, err = io.ReadFull(res.Body, start)
	close(hold)
	rest, restErr := io.ReadAll(res.Body)
	if err != nil || restErr != nil || string(start)+string(rest) != "abcd" || res.ContentLength != 4 {
		t.Error(string(start), string(rest), err, restErr, res.ContentLength)
	}
}

func TestPassThroughSilentClient(t *testing.T) {
	e := start(t, setup{upstream: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })})
	e.uploadIdle = 100 * time.Millisecond
	body, feed := io.Pipe()
	defer feed.Close()
	got := e.do(t, e.request(t, "POST", "/v1/files", body))
	if got.StatusCode != http.StatusRequestTimeout || got.code() != failure.RequestTimeout || !got.Close {
		t.Error(got.StatusCode, got.text, got.Close)
	}
	e.settle(t)
}

// settle waits for the end of the handlers and expects no lease to be left.
func (e *edge) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := e.Live().Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for _, s := range e.registry.States() {
		if s.Inflight != 0 {
			t.Errorf("account %s keeps %d leases", s.Name, s.Inflight)
		}
	}
	for _, s := range e.registry.Lanes() {
		if s.Inflight != 0 {
			t.Errorf("lane %s keeps %d permits", s.Lane, s.Inflight)
		}
	}
}

func TestPassThroughRefusals(t *testing.T) {
	tests := []struct {
		name          string
		upstream      http.HandlerFunc
		status        int
		code, reason  string
		header, value string
	}{
		{"401 is the account's fault, not the client's", answer401, 503, failure.UpstreamAuth, account.ReasonAuthRejected, "Retry-After", "5"},
		{"429 with Retry-After", refusal(429, `{"error":{"code":"rate_limit_exceeded"}}`, "Retry-After", "61"),
			429, "rate_limit_exceeded", account.ReasonRateLimited, "Retry-After", "61"},
		{"429 with a hint in the body", refusal(429, `{"error":{"code":"usage_limit_reached","resets_in_seconds":100}}`),
			429, "usage_limit_reached", account.ReasonQuotaExhausted, "Retry-After", "100"},
		{"429 without a hint", refusal(429, `{"error":{"type":"insufficient_quota"}}`), 429, "", account.ReasonQuotaExhausted, "Retry-After", ""},
		{"400 passes", refusal(400, `{"error":{"code":"bad"}}`, "X-A", "b"), 400, "bad", "", "X-A", "b"},
		{"403 passes", refusal(403, `{"error":{"code":"no"}}`), 403, "no", "", "", ""},
		{"500 passes", refusal(500, `{"error":{"code":"oops"}}`), 500, "oops", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := start(t, setup{upstream: tt.upstream})
			got := e.call(t, "POST", "/v1/embeddings", "{}")
			if got.StatusCode != tt.status || got.code() != tt.code {
				t.Errorf("%d %s, want %d %s", got.StatusCode, got.text, tt.status, tt.code)
			}
			if v := got.Header.Get(tt.header); v != tt.value {
				t.Errorf("%s: %q, want %q", tt.header, v, tt.value)
			}
			e.settle(t)
			if s := e.state(t, "first"); s.Reason != tt.reason {
				t.Errorf("cool-down for %q, want %q", s.Reason, tt.reason)
			}
		})
	}
}

func answer401(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, `{"error":{"message":"wrong key `+r.Header.Get("Authorization")+`"}}`)
}

func refusal(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestPassThroughWithoutUpstream(t *testing.T) {
	e := start(t, setup{change: func(b *bundle.Bundle, _ *bundle.Credentials) { b.Pool.Provider.Endpoint = "http://127.0.0.1:1" }})
	got := e.call(t, "POST", "/v1/embeddings", "{}")
	if got.StatusCode != http.StatusServiceUnavailable || got.code() != failure.UpstreamConnect || got.Header.Get("Retry-After") == "" {
		t.Error(got.StatusCode, got.text, got.Header)
	}
	if strings.Contains(got.text, "127.0.0.1") {
		t.Error("the answer names the endpoint")
	}
	e.settle(t)
}

func TestPassThroughWithoutAccount(t *testing.T) {
	e := start(t, setup{change: func(b *bundle.Bundle, _ *bundle.Credentials) { b.Pool.Accounts[0].State = bundle.AccountDisabled }})
	got := e.do(t, e.request(t, "POST", "/v1/files", io.LimitReader(zeros{}, 8<<20)))
	if got.StatusCode != http.StatusServiceUnavailable || got.code() != failure.NoAccounts || got.Header.Get("Retry-After") == "" {
		t.Error(got.StatusCode, got.text)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// An upstream that dies must not look like one that has ended.
func TestPassThroughBrokenUpstream(t *testing.T) {
	var count atomic.Int32
	e := start(t, setup{upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		count.Add(1)
		if strings.HasSuffix(r.URL.Path, "late") {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
		} else {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		panic(http.ErrAbortHandler)
	})})
	got := e.call(t, "POST", "/v1/early", "{}")
	if got.StatusCode != http.StatusBadGateway || got.code() != failure.UpstreamError {
		t.Error(got.StatusCode, got.text)
	}
	if n := count.Load(); n != 1 {
		t.Errorf("a request was sent %d times", n)
	}
	res, err := e.client.Do(e.request(t, "POST", "/v1/late", strings.NewReader("{}")))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err == nil || string(text) != "half" {
		t.Errorf("%q, %v: a broken answer ended cleanly", text, err)
	}
	e.settle(t)
	for _, series := range []string{`outcome="upstream_error",route="pass_through"`, `outcome="truncated",route="pass_through"`} {
		if !strings.Contains(e.scrape(t), series) {
			t.Error("no series", series)
		}
	}
}

func TestPassThroughSilentUpstream(t *testing.T) {
	hold := make(chan struct{})
	e := start(t, setup{
		change: func(b *bundle.Bundle, _ *bundle.Credentials) {
			b.Circuit.Deadlines.ResponseHeaderSeconds, b.Circuit.Deadlines.IdleSeconds = 1, 1
		},
		upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "body") {
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
			}
			<-hold
		}),
	})
	t.Cleanup(func() { close(hold) })
	if got := e.call(t, "POST", "/v1/head", "{}"); got.StatusCode != http.StatusGatewayTimeout || got.code() != failure.StreamIdleTimeout {
		t.Error(got.StatusCode, got.text)
	}
	res, err := e.client.Do(e.request(t, "POST", "/v1/body", strings.NewReader("{}")))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("a silent answer ended cleanly")
	}
	e.settle(t)
}

// A client that leaves takes its request at the upstream with it.
func TestPassThroughClientLeaves(t *testing.T) {
	left := make(chan struct{})
	e := start(t, setup{upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	})})
	ctx, leave := context.WithCancel(t.Context())
	res, err := e.client.Do(e.request(t, "POST", "/v1/x", strings.NewReader("{}")).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	leave()
	_ = res.Body.Close()
	<-left
	e.settle(t)
	if !strings.Contains(e.scrape(t), `outcome="caller_gone",route="pass_through"`) {
		t.Error("not counted as the caller's leaving")
	}
}

// The upstream may refuse an upload that is still under way.
func TestPassThroughEarlyRefusal(t *testing.T) {
	e := start(t, setup{upstream: refusal(400, `{"error":{"code":"bad"}}`)})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /v1/files HTTP/1.1\r\nHost: x\r\n"+
		"Authorization: Bearer "+clientKey+"\r\nContent-Length: 1000000\r\n\r\nstart")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusBadRequest {
		t.Error(res.StatusCode)
	}
	_ = conn.Close()
	e.settle(t)
}

func TestTransportFollowsTheConfiguration(t *testing.T) {
	up := httptest.NewTLSServer(http.NotFoundHandler())
	defer up.Close()
	rt := testRuntime(t, up.URL, nil)
	pool := &transports{}
	first := pool.of(rt)
	if pool.of(testRuntime(t, up.URL, func(b *bundle.Bundle, _ *bundle.Credentials) { b.Pool.Name = "renamed" })) != first {
		t.Error("a change that is not about connections made a new transport")
	}
	if pool.of(testRuntime(t, up.URL, func(b *bundle.Bundle, _ *bundle.Credentials) { b.Circuit.Deadlines.ConnectSeconds = 9 })) == first {
		t.Error("a change of the deadlines made no new transport")
	}
	pool.close()
}
