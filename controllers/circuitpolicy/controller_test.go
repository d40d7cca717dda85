package circuitpolicy

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func policy(bulkheads ...v1alpha1.Bulkhead) *v1alpha1.CircuitPolicy {
	return &v1alpha1.CircuitPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "patient", Generation: 1}, Spec: v1alpha1.CircuitPolicySpec{Bulkheads: bulkheads},
	}
}

func TestStatusShowsEveryLaneAndWhichHasNoLimit(t *testing.T) {
	status := statusOf(policy(v1alpha1.Bulkhead{Lane: v1alpha1.LaneMedia, Mode: v1alpha1.BulkheadUnlimited}), nil, now).Status
	modes := map[v1alpha1.Lane]v1alpha1.BulkheadMode{}
	for _, l := range status.Effective.Lanes {
		modes[l.Lane] = l.Mode
		if (l.MaxConcurrent != nil) != (l.Mode == v1alpha1.BulkheadLimited) {
			t.Errorf("%s: %+v", l.Lane, l)
		}
	}
	want := map[v1alpha1.Lane]v1alpha1.BulkheadMode{"HTTP": "Limited", "WebSocket": "Limited", "Compact": "Limited", "Media": "Unlimited", "Background": "Limited"}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Error(diff)
	}
}

func TestTheLastAcceptedFormStaysInStatus(t *testing.T) {
	good := statusOf(policy(), []string{"chat"}, now)
	bad := good.DeepCopy()
	bad.Generation, bad.Spec.Breaker = 2, &v1alpha1.Breaker{OpenSeconds: ptr.To[int32](300), MaxOpenSeconds: ptr.To[int32](15)}
	after := statusOf(bad, []string{"chat"}, now.Add(time.Minute))
	if c := conditions.Find(after.Status.Conditions, v1alpha1.ConditionAccepted); c.Status != metav1.ConditionFalse {
		t.Fatalf("accepted: %+v", c)
	}
	if diff := cmp.Diff(good.Status.Effective, after.Status.Effective); diff != "" || after.Status.EffectiveHash != good.Status.EffectiveHash {
		t.Errorf("bridges still use the old form, and another is shown: %s", diff)
	}
}

func TestB93_TheSameAgainIsTheSame(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("policy-%03d", i))
	}
	first := statusOf(policy(), names, now)
	if diff := cmp.Diff(first, statusOf(first, names, now.Add(time.Hour))); diff != "" {
		t.Errorf("time alone changes the status: %s", diff)
	}
	if raw, err := json.Marshal(first.Status); err != nil || len(raw) > 8<<10 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
}
