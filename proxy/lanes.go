package proxy

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// watchLanes shows the waiting room in metrics, and says which lanes bound nothing:
// they protect neither this process nor the other lanes.
func (p *process) watchLanes() {
	p.accounts.Tell(waits{p.metrics})
	p.metrics.WatchLanes(func() []telemetry.LaneState {
		states := p.accounts.Lanes()
		out := make([]telemetry.LaneState, len(states))
		for i, s := range states {
			out[i] = telemetry.LaneState{
				Lane: telemetry.LaneOf(account.Scope(s.Lane)), Inflight: s.Inflight, Queued: s.Queued, Limit: s.Limits.MaxConcurrent,
			}
		}
		return out
	})
	for _, s := range p.accounts.Lanes() {
		if s.Limits.Unlimited() {
			p.log.Warn("A lane is unlimited: nothing bounds its turns at once, nor those that wait", "lane", s.Lane.String())
		}
	}
}

// waits shows in metrics how turns fare in the waiting room.
type waits struct{ metrics *telemetry.Metrics }

func (w waits) Waited(l bulkhead.Lane, took time.Duration) {
	w.metrics.QueueWait(telemetry.LaneOf(account.Scope(l)), took)
}

func (w waits) Rejected(reason string) { w.metrics.Rejected(telemetry.RejectionOf(reason)) }
