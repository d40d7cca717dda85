package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// say changes the report of every proxy of the sample.
func (c *cluster) say(change func(pod string, s *v1alpha1.BridgeReplicaStatus)) {
	c.t.Helper()
	var pods corev1.PodList
	c.must(c.client.List(c.t.Context(), &pods, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelPolicy: samplePolicy}))
	for _, pod := range pods.Items {
		c.eventually("a report of "+pod.Name, func(ctx context.Context) error {
			var r v1alpha1.BridgeReplica
			if err := c.client.Get(ctx, client.ObjectKeyFromObject(&pod), &r); err != nil {
				return err
			}
			change(pod.Name, &r.Status)
			r.Status.ReportSequence++
			return c.client.Status().Update(ctx, &r)
		})
	}
}

func TestThePolicyShowsWhichSessionsAreStuckAndWhy(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	until := metav1.NewTime(c.clock.Now().Add(time.Minute).Truncate(time.Second))
	stuck := v1alpha1.CircuitState{Scope: v1alpha1.CircuitScopeSession, Key: "0123456789ab", State: v1alpha1.CircuitOpen,
		Reason: "IdleTimeout", Until: &until}
	first := ""
	c.say(func(pod string, s *v1alpha1.BridgeReplicaStatus) {
		s.Sessions, s.OpenCircuits = &v1alpha1.ReplicaSessions{Active: 5, Quarantined: 1}, ptr.To[int32](0)
		s.Quarantine = &v1alpha1.ReplicaQuarantine{Count: 1, Recent: []v1alpha1.QuarantineEntry{
			{Key: "ba9876543210", Reason: "AnchorDenied", Until: &until}}}
		if first == "" || first == pod {
			first, s.OpenCircuits, s.Circuits = pod, ptr.To[int32](1), []v1alpha1.CircuitState{stuck}
		}
	})
	var policy v1alpha1.BridgePolicy
	c.eventually("the circuit in the status of the policy", func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(samplePolicy), &policy); err != nil {
			return err
		}
		want := &v1alpha1.CircuitSummary{Open: 1, Top: []v1alpha1.CircuitState{stuck}}
		if diff := cmp.Diff(want, policy.Status.Circuits); diff != "" {
			return fmt.Errorf("circuits: %s", diff)
		}
		if s := policy.Status.Sessions; s.Active != 10 || s.Quarantined != 2 {
			return fmt.Errorf("sessions: %+v", s)
		}
		return nil
	})
	c.event(v1alpha1.EventCircuitOpened, samplePolicy)
	c.settle()

	// What a pod said goes with it.
	c.must(c.client.Delete(c.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: first}},
		client.GracePeriodSeconds(0)))
	c.eventually("the status without the pod's sessions", func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(samplePolicy), &policy); err != nil {
			return err
		}
		if s := policy.Status; s.Circuits.Open != 0 || len(s.Circuits.Top) > 0 || s.Sessions.Active != 5 {
			return fmt.Errorf("sessions %+v, circuits %+v", s.Sessions, s.Circuits)
		}
		return nil
	})
}

func TestAResetOfCircuitsReachesTheProxiesWithoutANewPod(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	var before, after appsv1.Deployment
	c.get(&before, samplePolicy+"-blue")
	annotate := func(value string) {
		c.edit(&v1alpha1.BridgePolicy{}, samplePolicy, func(o client.Object) {
			o.SetAnnotations(map[string]string{v1alpha1.AnnotationResetCircuits: value})
		})
	}
	told := func(want string) {
		t.Helper()
		c.eventually("the reset in the configuration of the proxies", func(ctx context.Context) error {
			var cm corev1.ConfigMap
			if err := c.client.Get(ctx, c.key(samplePolicy+"-config"), &cm); err != nil {
				return err
			}
			b, err := bundle.Decode([]byte(cm.Data[bundle.FileName]))
			if err == nil && b.ResetCircuits != want {
				err = fmt.Errorf("it is %q, want %q", b.ResetCircuits, want)
			}
			return err
		})
	}
	annotate("2026-03-01T12:00:00+01:00")
	told("2026-03-01T12:00:00+01:00")
	c.eventually("the mark on the pods", c.marked)
	c.report(samplePolicy)
	c.settle()

	annotate("now, please")
	told("")
	c.eventually("a warning that names the annotation", func(ctx context.Context) error {
		var policy v1alpha1.BridgePolicy
		if err := c.client.Get(ctx, c.key(samplePolicy), &policy); err != nil {
			return err
		}
		for _, cond := range policy.Status.Conditions {
			if cond.Type == v1alpha1.ConditionWarning &&
				(cond.Reason == v1alpha1.ReasonInvalidAnnotation || cond.Reason == v1alpha1.ReasonSeveralWarnings) {
				return nil
			}
		}
		return fmt.Errorf("conditions are %s", show(policy.Status.Conditions))
	})
	c.get(&after, samplePolicy+"-blue")
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("the Deployment changed (-before +after):\n%s", diff)
	}
}
