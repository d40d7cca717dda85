package telemetry

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const namespace = "causeway_proxy"

// Seconds. Turns last from milliseconds to hours; both ends are of interest.
var (
	durationBuckets   = []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200}
	firstEventBuckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
)

// Metrics are all series of a proxy. Its methods are safe for concurrent use
// and do not fail.
type Metrics struct {
	registry *prometheus.Registry

	requests   *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	firstEvent *prometheus.HistogramVec
	attempts   *prometheus.CounterVec
	reloads    *prometheus.CounterVec
	reports    *prometheus.CounterVec
	truncated  prometheus.Counter
	unmatched  prometheus.Counter
	streams    prometheus.Gauge
	// Resolved once: bytes are counted for each event of each stream.
	upstreamBytes, clientBytes [2]prometheus.Counter

	session sessionMetrics
	lanes   laneMetrics
	routes  *routeMetrics
	holds   *prometheus.HistogramVec
	recent  recent
}

// NewMetrics registers the metrics of a proxy of the given version, and those
// of the Go runtime and the process.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: counters("requests_total", "Requests of clients that have ended.", "route", "transport", "outcome"),
		duration: histogram("request_duration_seconds", "Time from a request's arrival to its end.", durationBuckets, "route", "outcome"),
		firstEvent: histogram("time_to_first_event_seconds", "Time from a request's arrival to the first event or byte of its answer.",
			firstEventBuckets, "route", "transport"),
		attempts:  counters("upstream_attempts_total", "Attempts at the upstream that have ended.", "transport", "outcome"),
		reloads:   counters("config_reloads_total", "Configurations read after the first.", "result"),
		reports:   counters("reports_total", "Writes of the pod's BridgeReplica.", "result"),
		truncated: prometheus.NewCounter(options("truncated_total", "Streams that ended without a terminal event of the upstream.")),
		unmatched: prometheus.NewCounter(options("unmatched_events_total", "Events of upstreams that belonged to no turn and reached nobody.")),
		streams:   prometheus.NewGauge(prometheus.GaugeOpts(options("streams_open", "Streams to clients that are open."))),
		session:   newSessionMetrics(),
		lanes:     newLaneMetrics(),
		routes:    newRouteMetrics(),
		holds:     newHolds(),
	}
	upstream := counters("upstream_bytes_total", "Payload bytes exchanged with upstreams.", "direction")
	client := counters("client_bytes_total", "Payload bytes exchanged with clients.", "direction")
	for d := range m.clientBytes {
		m.upstreamBytes[d] = upstream.WithLabelValues(Direction(d).String())
		m.clientBytes[d] = client.WithLabelValues(Direction(d).String())
	}
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts(options("build_info", "Always 1; the label is the version.")), []string{"version"})
	build.WithLabelValues(version).Set(1)
	m.registry.MustRegister(m.requests, m.duration, m.firstEvent, m.attempts, m.reloads, m.reports, m.truncated, m.unmatched, m.streams,
		upstream, client, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.session.collectors()...)
	m.registry.MustRegister(m.lanes.waits, m.lanes.rejections)
	m.registry.MustRegister(m.routes.collectors()...)
	m.registry.MustRegister(m.holds)
	return m
}

func options(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(options(name, help), labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// Handler serves the metrics in the Prometheus text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// RequestDone counts a client's request that has ended, well or not.
func (m *Metrics) RequestDone(r Route, t Transport, o Outcome, took time.Duration) {
	m.requests.WithLabelValues(r.String(), t.String(), o.String()).Inc()
	m.duration.WithLabelValues(r.String(), o.String()).Observe(took.Seconds())
	if r == RouteResponses || r == RouteCodexResponses {
		m.recent.add(time.Now(), o)
	}
}

// FirstEvent records how long a client waited for the first event.
func (m *Metrics) FirstEvent(r Route, t Transport, after time.Duration) {
	m.firstEvent.WithLabelValues(r.String(), t.String()).Observe(after.Seconds())
}

// AttemptDone counts an attempt at the upstream that has ended.
func (m *Metrics) AttemptDone(t Transport, o Outcome) {
	m.attempts.WithLabelValues(t.String(), o.String()).Inc()
}

// UpstreamBytes adds n payload bytes exchanged with an upstream.
func (m *Metrics) UpstreamBytes(d Direction, n int) { m.upstreamBytes[d&1].Add(float64(max(n, 0))) }

// ClientBytes adds n payload bytes exchanged with a client.
func (m *Metrics) ClientBytes(d Direction, n int) { m.clientBytes[d&1].Add(float64(max(n, 0))) }

// StreamOpened counts an open stream until StreamClosed.
func (m *Metrics) StreamOpened() { m.streams.Inc() }

// StreamClosed ends what StreamOpened began.
func (m *Metrics) StreamClosed() { m.streams.Dec() }

// Unmatched counts an upstream event that belongs to no turn.
func (m *Metrics) Unmatched() { m.unmatched.Inc() }

// Truncated counts a stream that the upstream left without a terminal event.
func (m *Metrics) Truncated() { m.truncated.Inc() }

// ConfigReloaded counts a configuration that was read: ResultOK or ResultRejected.
func (m *Metrics) ConfigReloaded(r Result) { m.reloads.WithLabelValues(r.String()).Inc() }

// ReportWritten counts a write of the pod's report: ResultOK or ResultError.
func (m *Metrics) ReportWritten(r Result) { m.reports.WithLabelValues(r.String()).Inc() }

// WatchSockets shows how many WebSockets of clients are open.
func (m *Metrics) WatchSockets(read func() int) {
	m.watch("websockets_open", "WebSockets of clients that are open.", read)
}

// Sessions counts sessions by state.
type Sessions struct{ Active, Draining, Quarantined int }

// WatchSessions shows what read returns at each scrape. Call it once.
func (m *Metrics) WatchSessions(read func() Sessions) {
	m.registry.MustRegister(newStateGauge("sessions", "Sessions by state.", func(set func(string, int)) {
		s := read()
		set("active", s.Active)
		set("draining", s.Draining)
		set("quarantined", s.Quarantined)
	}))
}

// WatchAccounts shows at each scrape how many accounts are in each of the given
// states; read returns the state of every account. Call it once.
func (m *Metrics) WatchAccounts(states []string, read func() []string) {
	m.registry.MustRegister(newStateGauge("accounts", "Accounts of the pool by state.", func(set func(string, int)) {
		counts := make(map[string]int, len(states))
		for _, s := range read() {
			counts[s]++
		}
		for _, s := range states {
			set(s, counts[s])
		}
	}))
}

// stateGauge asks for all its values once per scrape.
type stateGauge struct {
	desc *prometheus.Desc
	read func(set func(state string, n int))
}

func newStateGauge(name, help string, read func(set func(string, int))) *stateGauge {
	return &stateGauge{desc: prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"state"}, nil), read: read}
}

// Describe implements prometheus.Collector.
func (g *stateGauge) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

// Collect implements prometheus.Collector.
func (g *stateGauge) Collect(out chan<- prometheus.Metric) {
	g.read(func(state string, n int) {
		out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), state)
	})
}
