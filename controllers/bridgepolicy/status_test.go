package bridgepolicy

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/apply"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world has a policy whose two pods are ready and whose slot is rolled out.
func world(change ...func(*plan.World)) plan.World {
	w := plan.World{
		ProxyImage: "image",
		Policy: &v1alpha1.BridgePolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "chat", Generation: 4},
			Spec: v1alpha1.BridgePolicySpec{
				AccountPoolRef: v1alpha1.LocalObjectReference{Name: "team"},
				Clients:        v1alpha1.Clients{Mode: v1alpha1.ClientsOpen},
			},
		},
		Pool: &v1alpha1.AccountPool{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v1alpha1.AccountPoolSpec{
			Provider: v1alpha1.Provider{Type: v1alpha1.ProviderOpenAIPlatform},
			Accounts: []v1alpha1.Account{{Name: "a", APIKey: &v1alpha1.APIKey{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: "a"}}}},
		}},
		Secrets: map[string]map[string][]byte{"keys": {"a": []byte("sk-x")}},
	}
	w.Slots = map[v1alpha1.SlotName]*appsv1.Deployment{"blue": {
		ObjectMeta: metav1.ObjectMeta{Generation: 1, Annotations: map[string]string{v1alpha1.AnnotationRevision: plan.Next(w, now).Fleet.Revision}},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2},
	}}
	for i := range 2 {
		w.Reports = append(w.Reports, reports.Report{Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", i), Labels: map[string]string{v1alpha1.LabelSlot: "blue"}},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}}},
		}})
	}
	for _, f := range change {
		f(&w)
	}
	return w
}

func unready(n int) func(*plan.World) {
	return func(w *plan.World) {
		for i := range n {
			w.Reports[i].Pod.Status.Conditions = nil
		}
	}
}

func waiting(reason string) func(*plan.World) {
	return func(w *plan.World) {
		unready(2)(w)
		w.Reports[0].Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	}
}

func TestConditions(t *testing.T) {
	type want struct {
		kind   string
		status metav1.ConditionStatus // empty = absent
		reason string
	}
	refusal := &apply.Refusal{Kind: "Service", Name: "chat", Err: apply.ErrAdoptionRefused}
	for name, tc := range map[string]struct {
		change   func(*plan.World)
		applyErr error
		want     []want
	}{
		"rolled out": {func(*plan.World) {}, nil, []want{
			{v1alpha1.ConditionAvailable, "True", v1alpha1.ReasonMinimumReplicasReady},
			{v1alpha1.ConditionUpToDate, "True", v1alpha1.ReasonActiveSlotIsWanted},
			{v1alpha1.ConditionReconciling, "", ""}, {v1alpha1.ConditionStalled, "", ""}, {v1alpha1.ConditionPaused, "", ""},
			{v1alpha1.ConditionWarning, "True", v1alpha1.ReasonSeveralWarnings},
		}},
		"one of two is drained away": {unready(1), nil, []want{{v1alpha1.ConditionAvailable, "True", v1alpha1.ReasonMinimumReplicasReady}}},
		"nobody is ready":            {unready(2), nil, []want{{v1alpha1.ConditionAvailable, "False", v1alpha1.ReasonNoReadyReplicas}}},
		"the image is not there": {waiting("ImagePullBackOff"), nil, []want{
			{v1alpha1.ConditionAvailable, "False", v1alpha1.ReasonImagePullFailed},
			{v1alpha1.ConditionReady, "False", v1alpha1.ReasonImagePullFailed}, // more telling than Programmed=Unknown
		}},
		"the proxy crashes": {waiting("CrashLoopBackOff"), nil, []want{{v1alpha1.ConditionAvailable, "False", v1alpha1.ReasonCrashLooping}}},
		"scaled to zero": {func(w *plan.World) { w.Policy.Spec.Replicas = ptr.To[int32](0); w.Reports = nil }, nil, []want{
			{v1alpha1.ConditionAvailable, "True", v1alpha1.ReasonScaledToZero}}},
		"rollout in progress": {func(w *plan.World) { w.Slots["blue"].Status.UpdatedReplicas = 1 }, nil, []want{
			{v1alpha1.ConditionUpToDate, "False", v1alpha1.ReasonRolloutInProgress},
			{v1alpha1.ConditionReconciling, "True", v1alpha1.ReasonRolloutInProgress},
		}},
		"rollout failed, users are served": {func(w *plan.World) {
			w.Slots["blue"].Status.UpdatedReplicas = 1
			w.Slots["blue"].Status.Conditions = []appsv1.DeploymentCondition{{
				Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
		}, nil, []want{
			{v1alpha1.ConditionAvailable, "True", v1alpha1.ReasonMinimumReplicasReady},
			{v1alpha1.ConditionUpToDate, "False", v1alpha1.ReasonRolloutFailed},
			{v1alpha1.ConditionStalled, "True", v1alpha1.ReasonProgressDeadlineExceeded},
			{v1alpha1.ConditionReconciling, "", ""},
		}},
		"adoption refused": {func(*plan.World) {}, refusal, []want{
			{v1alpha1.ConditionStalled, "True", v1alpha1.ReasonAdoptionRefused}, {v1alpha1.ConditionReconciling, "", ""}}},
		"waiting for references": {func(w *plan.World) { w.Pool = nil }, nil, []want{
			{v1alpha1.ConditionReconciling, "True", v1alpha1.ReasonWaitingForRefs}, {v1alpha1.ConditionStalled, "", ""}}},
		"not accepted": {func(w *plan.World) { w.Policy.Spec.Drain = &v1alpha1.Drain{PodGraceSeconds: ptr.To[int32](60)} }, nil, []want{
			{v1alpha1.ConditionReady, "False", v1alpha1.ReasonInvariantViolated},
			{v1alpha1.ConditionStalled, "True", v1alpha1.ReasonInvalidSpec}, {v1alpha1.ConditionReconciling, "", ""}}},
		"paused": {func(w *plan.World) {
			w.Policy.Spec.Management = v1alpha1.ManagementPaused
			w.Policy.Spec.Image = &v1alpha1.Image{Reference: "next"}
		}, nil, []want{
			{v1alpha1.ConditionPaused, "True", v1alpha1.ReasonPausedByUser},
			{v1alpha1.ConditionUpToDate, "False", v1alpha1.ReasonPaused},
			{v1alpha1.ConditionAvailable, "True", v1alpha1.ReasonMinimumReplicasReady},
			{v1alpha1.ConditionReconciling, "", ""},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := world(tc.change)
			got := statusOf(w, plan.Next(w, now), tc.applyErr, now).Status.Conditions
			if got[0].Type != v1alpha1.ConditionReady {
				t.Errorf("first is %s, want Ready", got[0].Type)
			}
			for _, want := range tc.want {
				c := conditions.Find(got, want.kind)
				switch {
				case c == nil && want.status != "":
					t.Errorf("%s is absent, want %s/%s", want.kind, want.status, want.reason)
				case c != nil && (c.Status != want.status || c.Reason != want.reason):
					t.Errorf("%s is %s/%s, want %q/%s", want.kind, c.Status, c.Reason, want.status, want.reason)
				}
			}
			for _, c := range got {
				if c.Reason == "" || c.ObservedGeneration != 4 || len(c.Message) > 512 {
					t.Errorf("the API server would refuse, or nobody understand: %+v", c)
				}
			}
		})
	}
}

func TestStatusIsStable(t *testing.T) {
	w := world()
	first := statusOf(w, plan.Next(w, now), nil, now)
	w.Policy = first
	later := now.Add(time.Minute)
	second := statusOf(w, plan.Next(w, later), nil, later)
	if diff := cmp.Diff(first.Status, second.Status); diff != "" {
		t.Errorf("status changed with time alone (-first +second):\n%s", diff)
	}
}
