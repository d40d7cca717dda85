package integration

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestTheSamplesBecomeABridge(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()

	var policy v1alpha1.BridgePolicy
	c.condition(&policy, samplePolicy, v1alpha1.ConditionUpToDate, metav1.ConditionTrue, v1alpha1.ReasonActiveSlotIsWanted)
	c.condition(&policy, samplePolicy, v1alpha1.ConditionReportsFresh, metav1.ConditionTrue, v1alpha1.ReasonFresh)
	s := policy.Status
	if s.ReplicaSummary != "2/2" || s.ActiveSlot != v1alpha1.SlotBlue || s.Sessions.Active != 6 || s.Reports.Fresh != 2 {
		t.Errorf("got replicas %q, slot %q, sessions %d, fresh %d, want 2/2, blue, 6, 2", s.ReplicaSummary, s.ActiveSlot, s.Sessions.Active, s.Reports.Fresh)
	}
	if len(s.Slots) != 1 || s.Slots[0].ConfigHash != s.ConfigHash || s.Slots[0].Image != proxyImage {
		t.Errorf("got slots %+v, want one that serves config %s with the operator's image", s.Slots, s.ConfigHash)
	}
	var d appsv1.Deployment
	c.get(&d, samplePolicy+"-blue")
	if *d.Spec.Replicas != 2 {
		t.Errorf("got %d replicas, want 2", *d.Spec.Replicas)
	}
	var pool v1alpha1.AccountPool
	c.get(&pool, samplePool)
	if p := pool.Status; p.Totals.Usable != 2 || p.BoundPolicies.Count != 1 || p.BoundPolicies.Names[0] != samplePolicy {
		t.Errorf("got totals %+v bound %+v, want 2 usable, bound to %s", p.Totals, p.BoundPolicies, samplePolicy)
	}
	if got := c.condition(&pool, samplePool, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady); got.Message == "" {
		t.Error("Ready has no message")
	}
}
