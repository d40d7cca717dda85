package server

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestModelList(t *testing.T) {
	const catalogue = `{"models":[{"slug":"a","x":1.0,"truncation_policy":{"mode":"t"}},{"slug":"b"}],"etag":"e"}`
	const list = `{"object":"list","data":[{"id":"a","object":"model","created":7},{"id":"b"}]}`
	tests := []struct {
		name, raw string
		allowed   []string
		want      string
	}{
		{"platform", list, nil, `{"models":[],"object":"list","data":[{"id":"a","object":"model","created":7},{"id":"b"}]}`},
		{"platform, filtered", list, []string{"b", "c"}, `{"models":[],"object":"list","data":[{"id":"b"}]}`},
		{"nothing allowed", list, []string{}, `{"models":[],"object":"list","data":[]}`},
		{"catalogue", catalogue, nil, `{"models":[{"slug":"a","x":1.0,"truncation_policy":{"mode":"t"}},{"slug":"b"}],"object":"list","data":[` +
			`{"id":"a","object":"model","created":0,"owned_by":"openai"},{"id":"b","object":"model","created":0,"owned_by":"openai"}]}`},
		{"catalogue, filtered", catalogue, []string{"b"}, `{"models":[{"slug":"b"}],"object":"list","data":[` +
			`{"id":"b","object":"model","created":0,"owned_by":"openai"}]}`},
		{"both", `{"models":[{"slug":"a"}],"data":[{"id":"a","y":1}]}`, nil,
			`{"models":[{"slug":"a"}],"object":"list","data":[{"id":"a","y":1}]}`},
		{"HTML", `<html>`, nil, ""},
		{"no list", `{"x":1}`, nil, ""},
		{"no object", `[]`, nil, ""},
		{"wrong type", `{"data":{}}`, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := modelList([]byte(tt.raw), tt.allowed)
			if strings.TrimSpace(string(got)) != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("%s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestAllowedModels(t *testing.T) {
	some := bundle.Account{State: bundle.AccountEnabled, Models: []string{"a"}}
	all := bundle.Account{State: bundle.AccountEnabled}
	off := bundle.Account{State: bundle.AccountDisabled}
	if got := allowedModels([]bundle.Account{some, off}); len(got) != 1 || got[0] != "a" {
		t.Error(got)
	}
	if got := allowedModels([]bundle.Account{some, all}); got != nil {
		t.Error(got)
	}
}

func TestModels(t *testing.T) {
	var seen atomic.Pointer[http.Request]
	e := start(t, setup{
		change: func(b *bundle.Bundle, _ *bundle.Credentials) { b.Pool.Accounts[0].Models = []string{"a"} },
		upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen.Store(r)
			w.Header().Set("X-Models-Etag", "e1")
			_, _ = io.WriteString(w, `{"models":[{"slug":"a"},{"slug":"b"}]}`)
		}),
	})
	for _, path := range []string{"/v1/models", "/backend-api/codex/models"} {
		reply := e.call(t, "GET", path+"?client_version=0.169.0", "", "User-Agent", "codex/1", "If-None-Match", "x", "Accept-Encoding", "gzip")
		if reply.StatusCode != http.StatusOK || !strings.HasPrefix(reply.text, `{"models":[{"slug":"a"}],"object":"list"`) ||
			reply.Header.Get("X-Models-Etag") != "e1" {
			t.Error(path, reply.StatusCode, reply.text, reply.Header)
		}
		got := seen.Load()
		if got.URL.String() != "/base/v1/models?client_version=0.169.0" || got.Header.Get("Authorization") != "Bearer "+accountKey ||
			got.Header.Get("User-Agent") != "codex/1" || got.Header.Get("If-None-Match") != "" || got.Header.Get("Accept-Encoding") != "" {
			t.Error(got.URL, got.Header)
		}
	}
	e.settle(t)
}

func TestModelsRefused(t *testing.T) {
	tests := []struct {
		name     string
		upstream http.HandlerFunc
		status   int
		code     string
		reason   string
	}{
		{"401", answer401, 503, failure.UpstreamAuth, account.ReasonAuthRejected},
		{"429", refusal(429, `{}`, "Retry-After", "9"), 429, failure.RateLimitExceeded, account.ReasonRateLimited},
		{"404", refusal(404, `{}`), 502, failure.UpstreamError, ""},
		{"HTML", refusal(200, `<html>login</html>`), 502, failure.UpstreamProtocol, ""},
		{"too large", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.CopyN(w, zeros{}, maxModels+1) },
			502, failure.UpstreamProtocol, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := start(t, setup{upstream: tt.upstream})
			got := e.call(t, "GET", "/v1/models", "")
			if got.StatusCode != tt.status || got.code() != tt.code {
				t.Error(got.StatusCode, got.text)
			}
			e.settle(t)
			if s := e.state(t, "first"); s.Reason != tt.reason {
				t.Error(s.Reason)
			}
		})
	}
}
