package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
)

// TestB60_NoCredentialIsSeenAgain sends secrets wherever one can be put, makes
// every path fail, and looks for them in all that comes out.
func TestB60_NoCredentialIsSeenAgain(t *testing.T) {
	upstreams := map[string]http.HandlerFunc{
		"401":   answer401,
		"429":   refusal(429, `{"error":{"code":"rate_limit_exceeded"}}`),
		"500":   refusal(500, `{"error":{}}`),
		"HTML":  refusal(200, `<html>`),
		"abort": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	}
	for name, upstream := range upstreams {
		t.Run(name, func(t *testing.T) { hunt(t, setup{upstream: upstream}) })
	}
	t.Run("no upstream", func(t *testing.T) {
		hunt(t, setup{change: func(b *bundle.Bundle, _ *bundle.Credentials) {
			b.Pool.Provider.Endpoint = "http://user:CANARY-endpoint@127.0.0.1:1"
		}})
	})
	t.Run("no account", func(t *testing.T) {
		hunt(t, setup{change: func(_ *bundle.Bundle, c *bundle.Credentials) { c.Accounts = nil }})
	})
	t.Run("panic", func(t *testing.T) {
		hunt(t, setup{turns: func(_ http.ResponseWriter, r *http.Request, req *bridge.Request) {
			panic(r.Header.Get("Authorization") + string(req.Body))
		}})
	})
}

func hunt(t *testing.T, o setup) {
	t.Helper()
	if o.turns == nil {
		o.turns = func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) { w.WriteHeader(http.StatusNoContent) }
	}
	e := start(t, o)
	var seen strings.Builder
	keys := []string{"Bearer " + clientKey, "Bearer cwk-CANARY-wrong", "CANARY-scheme x", "Basic CANARY", ""}
	bodies := []string{
		`{"model":"m","input":"CANARY"}`, `{"CANARY":`, `{"model":"m","stream":"CANARY"}`, `"CANARY"`,
		`{"model":"m","previous_response_id":"CANARY","conversation":"CANARY"}`,
	}
	for _, key := range keys {
		for _, path := range []string{"/v1/responses", "/backend-api/codex/responses", "/v1/models", "/v1/CANARY", "/CANARY"} {
			for _, body := range bodies {
				for _, coding := range []string{"", "gzip", "CANARY"} {
					for _, method := range []string{"GET", "POST"} {
						exchange(t, e, &seen, method, path+"?api_key=CANARY-query", body, key, coding)
					}
				}
			}
		}
	}
	upgrade(t, e, &seen)
	output := seen.String() + e.log.String() + e.scrape(t)
	if i := strings.Index(output, "CANARY"); i >= 0 {
		t.Errorf("a secret is in the output: %s", output[max(0, i-200):min(len(output), i+100)])
	}
}

func exchange(t *testing.T, e *edge, seen *strings.Builder, method, path, body, key, coding string) {
	t.Helper()
	req := e.request(t, method, path, strings.NewReader(body), "Authorization", key, "X-Api-Key", "CANARY", "Cookie", "CANARY=CANARY",
		"Openai-Organization", "CANARY", "Content-Encoding", coding, "Chatgpt-Account-Id", chatgptID)
	res, err := e.client.Do(req)
	if err != nil {
		return // a broken connection is among what is scripted
	}
	defer res.Body.Close()
	_ = res.Header.Write(seen)
	_, _ = io.Copy(seen, res.Body)
}

// upgrade tries a WebSocket with the key as a subprotocol, as browsers do.
func upgrade(t *testing.T, e *edge, seen *strings.Builder) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /v1/responses HTTP/1.1\r\nHost: x\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: realtime, openai-insecure-api-key.CANARY\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_ = res.Header.Write(seen)
	_, _ = io.Copy(seen, res.Body)
}
