package telemetry

import (
	"strconv"
	"strings"
	"testing"
)

func TestRouteMetrics(t *testing.T) {
	m := NewMetrics("v")
	const key = "chatgpt.com/codex-responses/http"
	m.RouteRefused(key)
	m.RouteChanged(key, "open")
	m.RouteChanged(key, "surprise")
	m.RouteInconclusive(key)
	m.WatchRoutes(func() []RouteState { return []RouteState{{key, "half_open"}, {key, "open"}, {"h", "surprise"}} })
	text := scrape(t, m)
	for _, line := range []string{
		`causeway_proxy_circuit_rejections_total{key="` + key + `"} 1`,
		`causeway_proxy_circuit_transitions_total{key="` + key + `",to="open"} 1`,
		`causeway_proxy_circuit_transitions_total{key="` + key + `",to="closed"} 0`,
		`causeway_proxy_circuit_transitions_total{key="` + key + `",to="other"} 1`,
		`causeway_proxy_circuit_probes_inconclusive_total{key="` + key + `"} 1`,
		`causeway_proxy_circuit_state{key="` + key + `",state="half_open"} 1`,
		`causeway_proxy_circuit_state{key="` + key + `",state="open"} 0`,
		`causeway_proxy_circuit_state{key="h",state="closed"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("missing %s", line)
		}
	}
}

func TestT65_RouteMetricsAreBounded(t *testing.T) {
	m := NewMetrics("v")
	var all []RouteState
	for i := range 10_000 {
		key := "host" + strconv.Itoa(i)
		m.RouteRefused(key)
		m.RouteChanged(key, "open")
		all = append(all, RouteState{key, "open"})
	}
	m.WatchRoutes(func() []RouteState { return all })
	text := scrape(t, m)
	if n := strings.Count(text, "causeway_proxy_circuit_"); n > 8*(maxRouteKeys+10) {
		t.Errorf("%d series of circuits", n)
	}
	if !strings.Contains(text, `causeway_proxy_circuit_rejections_total{key="other"} 9936`) {
		t.Error("what is beyond the bound is not counted")
	}
}
