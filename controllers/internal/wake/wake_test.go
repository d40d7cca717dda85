package wake

import (
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestNumbersAreNoFlip(t *testing.T) {
	base := func() v1alpha1.BridgeReplicaStatus {
		at := metav1.Now()
		return v1alpha1.BridgeReplicaStatus{
			ObservedConfig: &v1alpha1.ObservedConfig{Hash: "a", State: v1alpha1.ConfigApplied},
			Role:           v1alpha1.RoleServing, ReportedAt: &at, ReportSequence: 1,
			Sessions: &v1alpha1.ReplicaSessions{Active: 5},
			Accounts: []v1alpha1.ReplicaAccount{{Name: "a", State: v1alpha1.AccountConditionUsable, Inflight: 1}},
			Lanes:    []v1alpha1.LaneStatus{{Lane: v1alpha1.LaneHTTP, Inflight: 1}},
		}
	}
	for name, tc := range map[string]struct {
		change func(*v1alpha1.BridgeReplicaStatus)
		want   bool
	}{
		"sessions": {func(s *v1alpha1.BridgeReplicaStatus) { s.Sessions.Active = 500 }, false},
		"inflight": {func(s *v1alpha1.BridgeReplicaStatus) { s.Accounts[0].Inflight = 9; s.Lanes[0].Inflight = 9 }, false},
		"usage": {func(s *v1alpha1.BridgeReplicaStatus) {
			at := metav1.Now()
			s.Accounts[0].NextProbe, s.Accounts[0].Since = &at, &at
			s.Accounts[0].Usage = []v1alpha1.UsageWindow{{Window: "Primary", UsedPercent: 40}}
		}, false},
		"openings":      {func(s *v1alpha1.BridgeReplicaStatus) { s.Routes = []v1alpha1.RouteStatus{{Key: "a", Openings: 3}} }, false},
		"sequence":      {func(s *v1alpha1.BridgeReplicaStatus) { s.ReportSequence++ }, false},
		"drained":       {func(s *v1alpha1.BridgeReplicaStatus) { s.Sessions.Active = 0 }, true},
		"account state": {func(s *v1alpha1.BridgeReplicaStatus) { s.Accounts[0].State = v1alpha1.AccountConditionCoolingDown }, true},
		"configuration": {func(s *v1alpha1.BridgeReplicaStatus) { s.ObservedConfig.Hash = "b" }, true},
		"role":          {func(s *v1alpha1.BridgeReplicaStatus) { s.Role = v1alpha1.RoleDraining }, true},
		"circuit": {func(s *v1alpha1.BridgeReplicaStatus) {
			s.Circuits = []v1alpha1.CircuitState{{Scope: v1alpha1.CircuitScopeRoute, State: v1alpha1.CircuitOpen}}
		}, true},
		"first quarantine": {func(s *v1alpha1.BridgeReplicaStatus) { s.Quarantine = &v1alpha1.ReplicaQuarantine{Count: 1} }, true},
		"first report":     {func(s *v1alpha1.BridgeReplicaStatus) { s.ReportedAt = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := base()
			tc.change(&after)
			if got := Flipped(base(), after); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPodNoiseWakesNobody(t *testing.T) {
	ready := func(status corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}}
	}
	noisy := ready(corev1.ConditionTrue)
	noisy.ResourceVersion = "2"
	noisy.Status.Conditions[0].LastProbeTime = metav1.Now()
	for name, tc := range map[string]struct {
		before, after *corev1.Pod
		want          bool
	}{
		"probe time":  {ready(corev1.ConditionTrue), noisy, false},
		"ready flips": {ready(corev1.ConditionFalse), ready(corev1.ConditionTrue), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := PodFacts().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestARenewedLeaseWakesNobody(t *testing.T) {
	lease := func(change func(*coordinationv1.Lease)) *coordinationv1.Lease {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationEpoch: "1"}}}
		change(l)
		return l
	}
	before, now, holder := lease(func(*coordinationv1.Lease) {}), metav1.NowMicro(), "blue/a/b/c"
	for name, tc := range map[string]struct {
		after *coordinationv1.Lease
		want  bool
	}{
		"renewed":    {lease(func(l *coordinationv1.Lease) { l.Spec.RenewTime, l.Generation = &now, 2 }), false},
		"new holder": {lease(func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &holder }), true},
		"new epoch":  {lease(func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.AnnotationEpoch] = "2" }), true},
		"asked":      {lease(func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.AnnotationNextHolder] = "green" }), true},
	} {
		if got := LeaseFacts().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	if !LeaseFacts().Delete(event.DeleteEvent{Object: before}) {
		t.Error("a deleted Lease must wake")
	}
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	measured, edited := h.DeepCopy(), h.DeepCopy()
	measured.Status.CurrentReplicas, edited.Spec.MaxReplicas = 3, 4
	if AutoscalerFacts().Update(event.UpdateEvent{ObjectOld: h, ObjectNew: measured}) ||
		!AutoscalerFacts().Update(event.UpdateEvent{ObjectOld: h, ObjectNew: edited}) {
		t.Error("an autoscaler wakes by its spec, and not by what it measures")
	}
}
