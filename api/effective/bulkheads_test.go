package effective_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// TestBulkheads: every lane is in the bundle, in one order, and finite unless the
// manifest says otherwise.
func TestBulkheads(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		want func(lanes map[string]*bundle.Bulkhead)
	}{
		"nothing written": {"", func(map[string]*bundle.Bulkhead) {}},
		"one lane": {"bulkheads: [{lane: Media, mode: Limited, maxConcurrent: 3}]", func(l map[string]*bundle.Bulkhead) {
			l["Media"].MaxConcurrent = 3 // the queue is the lane's own
		}},
		"all of one lane": {"bulkheads: [{lane: WebSocket, mode: Limited, maxConcurrent: 3, maxQueued: 0, queueTimeoutSeconds: 5}]",
			func(l map[string]*bundle.Bulkhead) {
				*l["WebSocket"] = bundle.Bulkhead{Lane: "WebSocket", MaxConcurrent: 3, MaxQueued: 0, QueueTimeoutSeconds: 5}
			}},
		"unlimited": {"bulkheads: [{lane: HTTP, mode: Unlimited}]", func(l map[string]*bundle.Bulkhead) {
			l["HTTP"].MaxConcurrent, l["HTTP"].MaxQueued = 0, 0
		}},
		"a short request budget": {
			"deadlines: {requestSeconds: 20}, bulkheads: [{lane: HTTP, mode: Limited, maxConcurrent: 200, queueTimeoutSeconds: 10}]",
			func(l map[string]*bundle.Bulkhead) {
				for _, b := range l {
					b.QueueTimeoutSeconds = 19
				}
				l["HTTP"].QueueTimeoutSeconds = 10
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := []bundle.Bulkhead{
				{Lane: "HTTP", MaxConcurrent: 200, MaxQueued: 400, QueueTimeoutSeconds: 30},
				{Lane: "WebSocket", MaxConcurrent: 200, MaxQueued: 400, QueueTimeoutSeconds: 30},
				{Lane: "Compact", MaxConcurrent: 32, MaxQueued: 64, QueueTimeoutSeconds: 30},
				{Lane: "Media", MaxConcurrent: 8, MaxQueued: 16, QueueTimeoutSeconds: 30},
				{Lane: "Background", MaxConcurrent: 16, MaxQueued: 32, QueueTimeoutSeconds: 30},
			}
			byLane := map[string]*bundle.Bulkhead{}
			for i := range want {
				byLane[want[i].Lane] = &want[i]
			}
			tc.want(byLane)
			circuit, errs := effective.Circuit(decodeText[v1alpha1.CircuitPolicy](t, "metadata: {name: p}\nspec: {"+tc.spec+"}"))
			if len(errs) != 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(want, circuit.Bulkheads); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
