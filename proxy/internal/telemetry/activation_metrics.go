package telemetry

import (
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

// newHolds is about the waiting for authority. All series exist from the start.
func newHolds() *prometheus.HistogramVec {
	holds := histogram("hold_seconds", "Time that a turn waited because its proxy had no authority, until it was served or relayed.",
		waitBuckets, "outcome")
	for _, name := range heldNames {
		holds.WithLabelValues(name)
	}
	return holds
}

// TurnHeld records how long a turn waited for authority.
func (m *Metrics) TurnHeld(h Held, took time.Duration) {
	m.holds.WithLabelValues(h.String()).Observe(max(took, 0).Seconds())
}

// WatchAuthority shows at each scrape which of the given modes a proxy is in, under
// which epoch, and how many turns wait for authority. Call it once.
func (m *Metrics) WatchAuthority(modes []string, read func() (mode string, epoch int64), held func() int) {
	m.registry.MustRegister(newStateGauge("authority", "What the proxy does with new turns: 1 for its present state, 0 for the others.",
		func(set func(string, int)) {
			present, _ := read()
			for _, mode := range modes {
				n := 0
				if mode == present {
					n = 1
				}
				set(mode, n)
			}
		}))
	m.watch("activation_epoch", "The epoch of the activation Lease, as last seen.", func() int {
		_, epoch := read()
		return int(epoch)
	})
	m.watch("turns_held", "Turns that wait because their proxy has no authority.", held)
}

// WatchRelayed shows how many turns other proxies serve for clients of this one.
func (m *Metrics) WatchRelayed(read func() int) {
	m.watch("turns_relayed", "Turns of clients of this proxy that others serve.", read)
}

func (m *Metrics) watch(name, help string, read func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts(options(name, help)), func() float64 { return float64(read()) }))
}
