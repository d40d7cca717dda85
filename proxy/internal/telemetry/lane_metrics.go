package telemetry

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Lane is a kind of traffic with limits of its own; metrics call it a scope.
type Lane int

// Lanes.
const (
	LaneHTTP Lane = iota
	LaneWebSocket
	LaneCompact
	LaneMedia
	LaneBackground
)

var laneNames = []string{"http", "websocket", "compact", "media", "background"}

func (l Lane) String() string { return nameIn(laneNames, int(l)) }

// LaneOf is the lane of that name.
func LaneOf(name string) Lane { return Lane(indexIn(laneNames, name)) }

// Rejection is why a turn was turned away for lack of room. The client sees the
// same word as the code of its error.
type Rejection int

// Rejections.
const (
	// RejectedFull: there was no place to wait in.
	RejectedFull Rejection = iota
	// RejectedLate: the time to wait was over.
	RejectedLate
)

var rejectionNames = []string{"bulkhead_full", "queue_timeout"}

func (r Rejection) String() string { return nameIn(rejectionNames, int(r)) }

// RejectionOf is the rejection of that name.
func RejectionOf(name string) Rejection { return Rejection(indexIn(rejectionNames, name)) }

// waitBuckets, in seconds: most turns do not wait, and few longer than a lane allows
// by default.
var waitBuckets = []float64{.001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10, 30}

// laneMetrics are about the waiting room. All series exist from the start.
type laneMetrics struct {
	waits      *prometheus.HistogramVec
	rejections *prometheus.CounterVec
}

func newLaneMetrics() laneMetrics {
	m := laneMetrics{
		waits: histogram("queue_wait_seconds", "Time that a turn waited for its account and its place in its lane, whatever came of it.",
			waitBuckets, "scope"),
		rejections: closedCounters("rejections_total", "Turns that were turned away for lack of room.", "reason", rejectionNames),
	}
	for _, name := range laneNames {
		m.waits.WithLabelValues(name)
	}
	return m
}

// QueueWait records how long a turn waited, served or not.
func (m *Metrics) QueueWait(l Lane, took time.Duration) {
	m.lanes.waits.WithLabelValues(l.String()).Observe(max(took, 0).Seconds())
}

// Rejected counts a turn that was turned away for lack of room.
func (m *Metrics) Rejected(r Rejection) { m.lanes.rejections.WithLabelValues(r.String()).Inc() }

// LaneState is how full a lane is.
type LaneState struct {
	Lane             Lane
	Inflight, Queued int
	// Limit of turns at once; 0 = unlimited.
	Limit int
}

// WatchLanes shows what read returns at each scrape. Call it once.
func (m *Metrics) WatchLanes(read func() []LaneState) { m.registry.MustRegister(newLaneGauges(read)) }

// laneGauges asks for all their values once per scrape.
type laneGauges struct {
	inflight, queued, limit *prometheus.Desc

	read func() []LaneState
}

func newLaneGauges(read func() []LaneState) *laneGauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"scope"}, nil)
	}
	return &laneGauges{
		inflight: desc("inflight", "Turns that have a place in their lane: from the account's lease to the client's last byte."),
		queued:   desc("queued", "Turns that wait for a place in their lane or for an account."),
		limit:    desc("inflight_limit", "Most turns at once in a lane; +Inf = unlimited."),
		read:     read,
	}
}

// Describe implements prometheus.Collector.
func (g *laneGauges) Describe(out chan<- *prometheus.Desc) {
	out <- g.inflight
	out <- g.queued
	out <- g.limit
}

// Collect implements prometheus.Collector.
func (g *laneGauges) Collect(out chan<- prometheus.Metric) {
	for _, s := range g.read() {
		limit := math.Inf(1)
		if s.Limit > 0 {
			limit = float64(s.Limit)
		}
		for desc, value := range map[*prometheus.Desc]float64{g.inflight: float64(s.Inflight), g.queued: float64(s.Queued), g.limit: limit} {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, s.Lane.String())
		}
	}
}
