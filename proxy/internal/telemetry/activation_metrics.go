package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Held is how the waiting of a turn for a hand-over ended.
type Held int

// Ends of waiting.
const (
	// HeldServed: this replica got authority.
	HeldServed Held = iota
	// HeldRelayed: a replica of the other slot took the turn.
	HeldRelayed
	// HeldLate: the time to wait was over.
	HeldLate
	// HeldFull: there was no place to wait in.
	HeldFull
	// HeldGone: the client left.
	HeldGone
)

var heldNames = []string{"served", "relayed", "timeout", "full", "gone"}

func (h Held) String() string { return nameIn(heldNames, int(h)) }

// authorityModes are what a replica does with new turns.
var authorityModes = []string{"hold", "serve", "relay"}

// activationMetrics are about hand-overs between slots.
type activationMetrics struct {
	mode  *prometheus.GaugeVec
	epoch prometheus.Gauge
	held  *prometheus.HistogramVec

	mu sync.Mutex // keeps modes from being shown half
}

func newActivationMetrics() *activationMetrics {
	m := &activationMetrics{
		mode: prometheus.NewGaugeVec(prometheus.GaugeOpts(options("authority",
			"What the proxy does with new turns: 1 for the present mode, 0 for the others.")), []string{"mode"}),
		epoch: prometheus.NewGauge(prometheus.GaugeOpts(options("activation_epoch", "The epoch of the activation Lease, as last seen."))),
		held: histogram("hold_seconds", "Time that a turn waited because its proxy had no authority, until it was served or relayed.",
			waitBuckets, "outcome"),
	}
	for _, name := range heldNames {
		m.held.WithLabelValues(name)
	}
	return m
}

func (a *activationMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{a.mode, a.epoch, a.held}
}

// TurnHeld records how long a turn waited for authority.
func (m *Metrics) TurnHeld(h Held, took time.Duration) {
	m.activation.held.WithLabelValues(h.String()).Observe(max(took, 0).Seconds())
}

// Authority shows what the proxy does with new turns.
func (m *Metrics) Authority(mode string, epoch int64) {
	a := m.activation
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, name := range authorityModes {
		value := 0.
		if i == indexIn(authorityModes, mode) {
			value = 1
		}
		a.mode.WithLabelValues(name).Set(value)
	}
	a.epoch.Set(float64(epoch))
}

// WatchHeld shows how many turns wait for authority.
func (m *Metrics) WatchHeld(read func() int) {
	m.watch("turns_held", "Turns that wait because their proxy has no authority.", read)
}

// WatchRelayed shows how many turns other proxies serve for clients of this one.
func (m *Metrics) WatchRelayed(read func() int) {
	m.watch("turns_relayed", "Turns of clients of this proxy that others serve.", read)
}

func (m *Metrics) watch(name, help string, read func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts(options(name, help)), func() float64 { return float64(read()) }))
}
