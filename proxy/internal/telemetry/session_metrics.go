package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// sessionMetrics are about what happens to sessions. All series exist from the
// start, so that the first increment is seen as one.
type sessionMetrics struct {
	strikes, suppressions, probes, retired, replays, storeErrors, forwards *prometheus.CounterVec

	fenced prometheus.Counter
}

func newSessionMetrics() sessionMetrics {
	return sessionMetrics{
		strikes: closedCounters("strikes_total", "Attempts that a retry circuit counted against their session.", "class", strikeNames),
		suppressions: closedCounters("suppressions_total", "Turns that were refused before dispatch for the state of their session.",
			"reason", suppressionNames),
		probes:      closedCounters("probes_total", "Probes of half-open circuits that have ended.", "outcome", probeNames),
		retired:     closedCounters("anchors_retired_total", "Anchors that are no longer used.", "cause", retireNames),
		replays:     closedCounters("replays_total", "Turns that were run or answered again, by what made it legal.", "proof", proofNames),
		storeErrors: closedCounters("store_errors_total", "Operations of the store that failed.", "op", storeOpNames),
		forwards:    closedCounters("peer_forwards_total", "Turns that were handed to another proxy.", "outcome", forwardNames),
		fenced: prometheus.NewCounter(options("fenced_writes_total",
			"Writes that the store refused because the session, or authority, had gone to another proxy.")),
	}
}

// closedCounters are counters with one label of a closed set.
func closedCounters(name, help, label string, values []string) *prometheus.CounterVec {
	c := counters(name, help, label)
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

func (s sessionMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.strikes, s.suppressions, s.probes, s.retired, s.replays, s.storeErrors, s.forwards, s.fenced}
}

// Strike counts an attempt that a retry circuit holds against its session.
func (m *Metrics) Strike(c StrikeClass) { m.session.strikes.WithLabelValues(c.String()).Inc() }

// Suppressed counts a turn that was refused before dispatch.
func (m *Metrics) Suppressed(s Suppression) {
	m.session.suppressions.WithLabelValues(s.String()).Inc()
}

// Probe counts a probe that has ended.
func (m *Metrics) Probe(o ProbeOutcome) { m.session.probes.WithLabelValues(o.String()).Inc() }

// AnchorRetired counts an anchor that is no longer used.
func (m *Metrics) AnchorRetired(c RetireCause) { m.session.retired.WithLabelValues(c.String()).Inc() }

// Replayed counts a turn that was run, or answered, again.
func (m *Metrics) Replayed(p Proof) { m.session.replays.WithLabelValues(p.String()).Inc() }

// FencedWrite counts a write that came too late to count.
func (m *Metrics) FencedWrite() { m.session.fenced.Inc() }

// StoreFailed counts an operation of the store that failed.
func (m *Metrics) StoreFailed(o StoreOp) { m.session.storeErrors.WithLabelValues(o.String()).Inc() }

// PeerForward counts a turn that was handed to another proxy.
func (m *Metrics) PeerForward(o ForwardOutcome) {
	m.session.forwards.WithLabelValues(o.String()).Inc()
}

// WatchCircuits shows at each scrape how many retry circuits are open and half
// open. Call it once.
func (m *Metrics) WatchCircuits(read func() (open, halfOpen int)) {
	m.registry.MustRegister(newStateGauge("circuits", "Retry circuits that are not closed, by state.", func(set func(string, int)) {
		open, halfOpen := read()
		set("open", open)
		set("half_open", halfOpen)
	}))
}

// StoreState is how far the store is behind what this proxy knows.
type StoreState struct {
	// OutboxItems wait to be written, the oldest for OutboxAge.
	OutboxItems int
	OutboxAge   time.Duration
	// Leases are the keys this proxy owns.
	Leases int
	// RenewLate is by how much the renewal that is most overdue is overdue; 0 =
	// none is.
	RenewLate time.Duration
}

// WatchStore shows what read returns at each scrape. Call it once.
func (m *Metrics) WatchStore(read func() StoreState) { m.registry.MustRegister(newStoreGauges(read)) }

// storeGauges asks for all their values once per scrape.
type storeGauges struct {
	items, age, leases, late *prometheus.Desc

	read func() StoreState
}

func newStoreGauges(read func() StoreState) *storeGauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, nil, nil)
	}
	return &storeGauges{
		items:  desc("store_outbox_items", "Writes that wait for the store."),
		age:    desc("store_outbox_age_seconds", "Age of the oldest write that waits for the store."),
		leases: desc("store_leases", "Session keys that this proxy owns."),
		late:   desc("store_lease_renew_late_seconds", "By how much the most overdue renewal of a lease is overdue."),
		read:   read,
	}
}

// Describe implements prometheus.Collector.
func (g *storeGauges) Describe(out chan<- *prometheus.Desc) {
	out <- g.items
	out <- g.age
	out <- g.leases
	out <- g.late
}

// Collect implements prometheus.Collector.
func (g *storeGauges) Collect(out chan<- prometheus.Metric) {
	s := g.read()
	gauge := func(desc *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, max(value, 0))
	}
	gauge(g.items, float64(s.OutboxItems))
	gauge(g.age, s.OutboxAge.Seconds())
	gauge(g.leases, float64(s.Leases))
	gauge(g.late, s.RenewLate.Seconds())
}
