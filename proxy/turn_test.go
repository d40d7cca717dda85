package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// B03: a turn over real sockets on both sides, streaming and not, plain and
// compressed, and what a turn's client must never see.
func TestB03_TurnsEndToEnd(t *testing.T) {
	up := upstream.Start(t, upstream.Options{Accounts: map[string]string{secretKey: "first"}})
	p := launch(t, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60}, nil)
	p.configure(t, up.URL+"/v1", bundle.Drain{PodGraceSeconds: 60}, firstKey)
	p.awaitConfiguration(t)
	tests := []struct {
		name, path, body, contains string
		zstd                       bool
	}{
		{"stream", "/v1/responses", `{"model":"gpt-5.5","input":"hi","stream":true}`, "event: response.completed", false},
		{"no stream", "/v1/responses", `{"model":"gpt-5.5","input":"hi"}`, `"object":"response"`, false},
		{"Codex", "/backend-api/codex/responses", `{"model":"gpt-5.5","input":"hi"}`, "event: response.completed", true},
		{"second turn", "/backend-api/codex/responses", `{"model":"gpt-5.5","input":"hi again","store":false}`, "event: response.completed", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := tt.body
			if tt.zstd {
				body = packed(t, body)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.data+tt.path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+firstKey)
			req.Header.Set("Session-Id", "s1")
			if tt.zstd {
				req.Header.Set("Content-Encoding", "zstd")
			}
			res, err := p.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			raw, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(raw), tt.contains) {
				t.Errorf("%d %s, %v, want %q", res.StatusCode, raw, err, tt.contains)
			}
			if res.Header.Get("X-Request-Id") == "" || strings.Contains(string(raw), "CANARY") {
				t.Error(res.Header)
			}
		})
	}
}

// awaitConfiguration returns when the new endpoint is served: the old one has
// no models.
func (p *proxied) awaitConfiguration(t *testing.T) {
	t.Helper()
	for arrived := false; !arrived; {
		arrived = p.status(t, p.data+"/v1/models", firstKey) == http.StatusOK
	}
}

func packed(t *testing.T, text string) string {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}
