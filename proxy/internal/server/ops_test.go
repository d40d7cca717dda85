package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

func TestOps(t *testing.T) {
	started := false
	accounts := Finding{Down, "no account"}
	health := NewHealth(quietLogger, func() {},
		Probe{Name: "config", Instant: true, Look: func(context.Context) Finding { return Finding{Condition: OK} }},
		Probe{Name: "accounts", Instant: true, Look: func(context.Context) Finding { return accounts }})
	o := Ops{
		Version: "v9", Metrics: telemetry.NewMetrics("v9").Handler(), Logger: quietLogger, Started: func() bool { return started }, Health: health,
	}
	s := httptest.NewUnstartedServer(nil)
	s.Config = o.HTTPServer()
	s.Start()
	defer s.Close()
	get := func(path string, status int, text string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, _ := io.ReadAll(res.Body)
		if res.StatusCode != status || !strings.Contains(string(raw), text) {
			t.Errorf("%s: %d %s, want %d with %q", path, res.StatusCode, raw, status, text)
		}
	}
	get("/livez", 200, "ok")
	get("/startupz", 503, "starting")
	get("/readyz", 503, "not ready: accounts")
	get("/readyz?verbose", 503, `{"name":"accounts","ok":false,"state":"down","severity":"blocking","age_ms":0,"reason":"no account"}`)
	started, accounts = true, Finding{Condition: OK}
	get("/startupz", 200, "ok")
	get("/readyz", 200, "ok")
	get("/readyz?verbose", 200, `"ready":true`)
	get("/metrics", 200, "causeway_proxy_build_info")
	get("/version", 200, `"version":"v9"`)
	get("/debug/pprof/", 404, "")
	get("/v1/models", 404, "")
}

func TestLive(t *testing.T) {
	l := NewLive()
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := l.Wait(soon); err != nil {
		t.Error("idle from the start:", err)
	}
	first, second := l.Begin(), l.Begin()
	over, stop := context.WithCancel(t.Context())
	stop()
	if err := l.Wait(over); err == nil || l.Count() != 2 {
		t.Error(err, l.Count())
	}
	first()
	second()
	if err := l.Wait(soon); err != nil || l.Count() != 0 {
		t.Error(err, l.Count())
	}
	end := l.Begin()
	if err := l.Wait(over); err == nil {
		t.Error("not idle again")
	}
	end()
}
