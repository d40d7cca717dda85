package peer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/route"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// A replica without authority says so before it asks for the body; the sender is
// told to look again, unless it only asked whether the session is still there.
func TestT40_AReplicaWithoutAuthorityTakesNothing(t *testing.T) {
	o := newOwner(t, answer)
	o.powerless.Store(true)
	in := newOrigin(t, o.address)
	if got := in.post(t, "{}"); got.body != "served here" {
		t.Errorf("%+v", got)
	}
	in.outcome(t, telemetry.ForwardRejected)
	if o.count.Load() != 0 || in.doubts.Load() != 1 {
		t.Errorf("%d turns taken, %d doubts", o.count.Load(), in.doubts.Load())
	}
	if in.Owner(conversation) == "" {
		t.Error("a slot that takes turns is avoided like a replica that is gone")
	}
	tail := honest(o)
	tail.envelope.Tail = "resp_1"
	if _, outcome, reason := tail.send(t, o); outcome != acknowledged {
		t.Errorf("what builds on a session that is there is refused: %s %s", outcome, reason)
	}
}

// The other slot's replicas are tried in the order of their weights; one that is not
// there does not end the search.
func TestT41_ARelayGoesToWhoIsThere(t *testing.T) {
	o := newOwner(t, answer)
	in := newOrigin(t, o.address)
	other := func(members ...route.Member) { in.other.Store(route.New("origin", members)) }
	relay := func() bool {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/responses", nil)
		return in.Relay(w, r, &bridge.Request{ID: "r", Route: bridge.RouteCodex, Body: []byte("{}"), Header: http.Header{}, Stream: true,
			Runtime: in.runtime.Load()}, conversation)
	}
	if relay() {
		t.Error("relayed to nobody")
	}
	other(route.Member{Pod: "owner", Address: o.address}, route.Member{Pod: "gone", Address: "127.0.0.1:1"})
	if !relay() || o.count.Load() != 1 {
		t.Errorf("%d turns taken", o.count.Load())
	}
	other(route.Member{Pod: "gone", Address: "127.0.0.1:1"})
	if relay() {
		t.Error("relayed to who is gone")
	}
}

// A replica that leaves gives every key to its siblings.
func TestT54_WhoLeavesOwnsNothing(t *testing.T) {
	o := newOwner(t, answer)
	in := newOrigin(t, o.address)
	in.leaving.Store(true)
	for n := range 50 {
		if key := affinity.TurnStateKey("client", fmt.Sprint(n)); in.Owner(key) != o.address {
			t.Fatalf("key %d stays", n)
		}
	}
	in.table.Store(route.New("origin", []route.Member{{Pod: "origin", Address: "127.0.0.1:1"}}))
	if in.Owner(conversation) != "" {
		t.Error("without siblings turns are served here")
	}
}
