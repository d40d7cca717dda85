package telemetry

import (
	"strings"
	"testing"
	"time"
)

func TestLaneMetrics(t *testing.T) {
	m := NewMetrics("v")
	m.QueueWait(LaneOf("WebSocket"), 2*time.Second)
	m.QueueWait(LaneMedia, -time.Second)
	m.QueueWait(Lane(99), time.Second)
	m.Rejected(RejectionOf("queue_timeout"))
	m.Rejected(RejectionOf("no such reason"))
	m.WatchLanes(func() []LaneState {
		return []LaneState{{Lane: LaneHTTP, Inflight: 3, Queued: 2, Limit: 3}, {Lane: LaneBackground, Inflight: 1}}
	})
	text := scrape(t, m)
	for _, line := range []string{
		`causeway_proxy_queue_wait_seconds_sum{scope="websocket"} 2`,
		`causeway_proxy_queue_wait_seconds_sum{scope="media"} 0`,
		`causeway_proxy_queue_wait_seconds_count{scope="other"} 1`,
		`causeway_proxy_queue_wait_seconds_count{scope="compact"} 0`,
		`causeway_proxy_rejections_total{reason="queue_timeout"} 1`,
		`causeway_proxy_rejections_total{reason="bulkhead_full"} 0`,
		`causeway_proxy_rejections_total{reason="other"} 1`,
		`causeway_proxy_inflight{scope="http"} 3`,
		`causeway_proxy_queued{scope="http"} 2`,
		`causeway_proxy_inflight_limit{scope="http"} 3`,
		`causeway_proxy_inflight_limit{scope="background"} +Inf`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("missing %s", line)
		}
	}
}
