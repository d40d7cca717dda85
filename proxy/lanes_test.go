package proxy

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

func TestLanesAreShown(t *testing.T) {
	var log bytes.Buffer
	logger, err := telemetry.NewLogger(&log, "info")
	if err != nil {
		t.Fatal(err)
	}
	rt := &config.Runtime{}
	rt.Bundle.Pool.Accounts = []bundle.Account{{Name: "a", State: bundle.AccountEnabled}}
	rt.Bundle.Circuit.Bulkheads = []bundle.Bulkhead{{Lane: "HTTP"}, {Lane: "Media", MaxConcurrent: 1}}
	rt.Credentials.Accounts = map[string]bundle.Credential{"a": {APIKey: "sk"}}
	p := &process{log: logger, accounts: account.NewRegistry(clock.RealClock{}), metrics: telemetry.NewMetrics("v")}
	p.accounts.Update(rt)
	p.watchLanes()

	for _, l := range bulkhead.Lanes() {
		name, shown := l.String(), telemetry.LaneOf(account.Scope(l)).String()
		if shown != strings.ToLower(name) {
			t.Errorf("lane %s is shown as %q", name, shown)
		}
		if says := strings.Contains(log.String(), `"lane":"`+name+`"`); says != (name == "HTTP") {
			t.Errorf("the log tells that %s is unlimited: %t", name, says)
		}
	}
	lease, err := p.accounts.Acquire(t.Context(), account.Want{Lane: bulkhead.Media})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := p.accounts.Acquire(ctx, account.Want{Lane: bulkhead.Media}); err == nil {
		t.Fatal("two in a lane of one")
	}
	w := httptest.NewRecorder()
	p.metrics.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	for _, line := range []string{
		`causeway_proxy_inflight{scope="media"} 1`,
		`causeway_proxy_inflight_limit{scope="media"} 1`,
		`causeway_proxy_inflight_limit{scope="http"} +Inf`,
		`causeway_proxy_queue_wait_seconds_count{scope="media"} 2`,
		`causeway_proxy_rejections_total{reason="bulkhead_full"} 1`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("missing %s", line)
		}
	}
	lease.Release()
}
