package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	m := NewMetrics("v1.2.3")
	m.RequestDone(RouteResponses, TransportSSE, OutcomeOK, 3*time.Second)
	m.RequestDone(RouteCodexResponses, TransportJSON, OutcomeTruncated, time.Hour)
	m.FirstEvent(RouteResponses, TransportSSE, 40*time.Millisecond)
	m.AttemptDone(TransportWebSocket, OutcomeConnect)
	m.UpstreamBytes(Sent, 10)
	m.ClientBytes(Received, 100)
	m.StreamOpened()
	m.StreamOpened()
	m.StreamClosed()
	m.Truncated()
	m.ConfigReloaded(ResultRejected)
	m.ReportWritten(ResultError)
	m.WatchSessions(func() Sessions { return Sessions{Active: 7, Quarantined: 1} })
	m.WatchAccounts([]string{"Usable", "CoolingDown"}, func() []string { return []string{"Usable", "Usable", "surprise"} })
	text := scrape(t, m)
	for _, line := range []string{
		`causeway_proxy_requests_total{outcome="ok",route="responses",transport="sse"} 1`,
		`causeway_proxy_request_duration_seconds_sum{outcome="truncated",route="codex_responses"} 3600`,
		`causeway_proxy_time_to_first_event_seconds_count{route="responses",transport="sse"} 1`,
		`causeway_proxy_upstream_attempts_total{outcome="connect",transport="websocket"} 1`,
		`causeway_proxy_upstream_bytes_total{direction="sent"} 10`,
		`causeway_proxy_client_bytes_total{direction="received"} 100`,
		`causeway_proxy_streams_open 1`,
		`causeway_proxy_truncated_total 1`,
		`causeway_proxy_config_reloads_total{result="rejected"} 1`,
		`causeway_proxy_reports_total{result="error"} 1`,
		`causeway_proxy_sessions{state="active"} 7`,
		`causeway_proxy_sessions{state="draining"} 0`,
		`causeway_proxy_accounts{state="Usable"} 2`,
		`causeway_proxy_accounts{state="CoolingDown"} 0`,
		`causeway_proxy_build_info{version="v1.2.3"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("missing %s", line)
		}
	}
	if strings.Contains(text, "surprise") {
		t.Error("an unknown state became a series")
	}
}

// Whatever callers pass, no metric grows beyond its closed set of labels.
func TestMetricsAreBounded(t *testing.T) {
	const limit = 2000
	m := NewMetrics("v")
	random := func() int { return rand.IntN(40) - 10 }
	for range 50_000 {
		r, tr, o := Route(random()), Transport(random()), Outcome(random())
		m.RequestDone(r, tr, o, time.Second)
		m.FirstEvent(r, tr, time.Second)
		m.AttemptDone(tr, o)
		m.ConfigReloaded(Result(random()))
		m.UpstreamBytes(Direction(random()), random())
		m.ClientBytes(Direction(random()), random())
	}
	series := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(scrape(t, m)))
	for lines.Scan() {
		name, _, _ := strings.Cut(lines.Text(), "{")
		series[strings.TrimSuffix(name, "_bucket")]++
	}
	for name, n := range series {
		if n > limit {
			t.Errorf("%s has %d series, more than %d", name, n, limit)
		}
	}
}

func TestLogLevels(t *testing.T) {
	for level, lowest := range map[string]slog.Level{"debug": slog.LevelDebug, "": slog.LevelInfo, "INFO": slog.LevelInfo,
		"warn": slog.LevelWarn, "error": slog.LevelError} {
		l, err := NewLogger(&bytes.Buffer{}, level)
		if err != nil || !l.Enabled(context.Background(), lowest) || l.Enabled(context.Background(), lowest-1) {
			t.Errorf("level %q: %v", level, err)
		}
	}
	if _, err := NewLogger(&bytes.Buffer{}, "loud"); err == nil || !strings.Contains(err.Error(), "debug, info, warn, error") {
		t.Errorf("unknown level: %v", err)
	}
}

func TestB60_LoggerReplacesSecrets(t *testing.T) {
	const canary = "sk-canary-4711"
	var out bytes.Buffer
	l, err := NewLogger(&out, "debug")
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Authorization": {"Bearer " + canary}, "Api-Key": {canary}, "Cookie": {canary},
		"Sec-Websocket-Protocol": {"openai-insecure-api-key." + canary}, "Accept": {"text/event-stream"}}
	l.With("token", canary).WithGroup("g").Info("m", "Authorization", "Bearer "+canary, "api_key", canary, "access-token", canary,
		"refreshToken", canary, "key", []string{canary}, "password", canary, "header", header, slog.Group("inner", "client_key", canary))
	l.Info("m", "input_tokens", 17, "account", "a1", "session", "0123456789ab", "monkey", "banana")
	text := out.String()
	if strings.Contains(text, canary) {
		t.Errorf("a secret was logged: %s", text)
	}
	for _, kept := range []string{`"input_tokens":17`, `"account":"a1"`, `"session":"0123456789ab"`, `"monkey":"banana"`, "text/event-stream"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%s was not logged: %s", kept, text)
		}
	}
}
