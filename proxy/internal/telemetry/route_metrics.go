package telemetry

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// routeMetrics are about circuits of upstream routes. Their key comes from the
// configuration; the first maxRouteKeys have series of their own.
type routeMetrics struct {
	transitions           *prometheus.CounterVec
	refused, inconclusive *prometheus.CounterVec

	mu   sync.Mutex // guards keys
	keys map[string]bool
}

// maxRouteKeys bounds the series of circuits: a pool has a handful of routes.
const maxRouteKeys = 64

// routeStates are the states of a circuit.
var routeStates = []string{"closed", "open", "half_open"}

func newRouteMetrics() *routeMetrics {
	return &routeMetrics{
		transitions:  counters("circuit_transitions_total", "Changes of the circuits of upstream routes.", "key", "to"),
		refused:      counters("circuit_rejections_total", "Attempts that were refused because the circuit of their route is open.", "key"),
		inconclusive: counters("circuit_probes_inconclusive_total", "Times that several probes in a row decided nothing.", "key"),
		keys:         map[string]bool{},
	}
}

func (r *routeMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.transitions, r.refused, r.inconclusive}
}

// label is the label of a key. A new key gets all its series at once, so that the
// first increment is seen as one.
func (r *routeMetrics) label(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys[key] {
		return key
	}
	if len(r.keys) >= maxRouteKeys {
		return other
	}
	r.keys[key] = true
	for _, s := range routeStates {
		r.transitions.WithLabelValues(key, s)
	}
	r.refused.WithLabelValues(key)
	r.inconclusive.WithLabelValues(key)
	return key
}

// RouteChanged counts a change of a circuit to the given state.
func (m *Metrics) RouteChanged(key, to string) {
	m.routes.transitions.WithLabelValues(m.routes.label(key), nameIn(routeStates, indexIn(routeStates, to))).Inc()
}

// RouteRefused counts an attempt that a circuit did not let through.
func (m *Metrics) RouteRefused(key string) {
	m.routes.refused.WithLabelValues(m.routes.label(key)).Inc()
}

// RouteInconclusive counts probes in a row that decided nothing.
func (m *Metrics) RouteInconclusive(key string) {
	m.routes.inconclusive.WithLabelValues(m.routes.label(key)).Inc()
}

// RouteState is the state of one circuit: closed, open or half_open.
type RouteState struct{ Key, State string }

// WatchRoutes shows at each scrape the state of every circuit, as 1 of its states.
// Call it once.
func (m *Metrics) WatchRoutes(read func() []RouteState) {
	m.registry.MustRegister(&routeGauge{
		desc: prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "circuit_state"),
			"State of the circuit of an upstream route: 1 for the one it is in.", []string{"key", "state"}, nil),
		read: read, metrics: m.routes,
	})
}

type routeGauge struct {
	desc    *prometheus.Desc
	read    func() []RouteState
	metrics *routeMetrics
}

// Describe implements prometheus.Collector.
func (g *routeGauge) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

// Collect implements prometheus.Collector. A state nobody knows is shown as none.
func (g *routeGauge) Collect(out chan<- prometheus.Metric) {
	shown := map[string]bool{}
	for _, s := range g.read() {
		key := g.metrics.label(s.Key)
		if shown[key] {
			continue
		}
		shown[key] = true
		for _, state := range routeStates {
			value := 0.0
			if state == s.State {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, value, key, state)
		}
	}
}
