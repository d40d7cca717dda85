package integration

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestDriftOfChildrenIsCorrected(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	var deployment appsv1.Deployment
	c.edit(&deployment, samplePolicy+"-blue", func(client.Object) {
		deployment.Spec.Template.Spec.Containers[0].Image = "localhost/other:1"
		deployment.Spec.Replicas = ptr.To[int32](7)
	})
	var service corev1.Service
	c.edit(&service, samplePolicy, func(client.Object) { service.Spec.Selector[v1alpha1.LabelSlot] = "green" })
	c.edit(&corev1.Secret{}, samplePolicy+"-credentials", func(o client.Object) { o.(*corev1.Secret).Data["credentials.json"] = []byte("{}") })
	c.must(c.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: samplePolicy + "-config"}}))

	c.eventually("the wanted state", func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(samplePolicy+"-blue"), &deployment); err != nil {
			return err
		}
		if got := deployment.Spec.Template.Spec.Containers[0].Image; got != proxyImage {
			return fmt.Errorf("image is %s", got)
		}
		if *deployment.Spec.Replicas != 2 {
			return fmt.Errorf("replicas are %d", *deployment.Spec.Replicas)
		}
		if err := c.client.Get(ctx, c.key(samplePolicy), &service); err != nil {
			return err
		}
		if got := service.Spec.Selector[v1alpha1.LabelSlot]; got != "blue" {
			return fmt.Errorf("the Service selects %s", got)
		}
		if _, err := c.credentials(ctx); err != nil {
			return err
		}
		return c.client.Get(ctx, c.key(samplePolicy+"-config"), &corev1.ConfigMap{})
	})
}

func TestReplicasAreTheAutoscalersWhileThereIsOne(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	policy := &v1alpha1.BridgePolicy{}
	c.edit(policy, samplePolicy, func(client.Object) {
		policy.Spec.Replicas = nil
		policy.Spec.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 9}
	})
	c.condition(policy, samplePolicy, v1alpha1.ConditionFullyEffective, metav1.ConditionTrue, v1alpha1.ReasonAllEffective)
	c.eventually("the autoscaler of the slot", func(ctx context.Context) error {
		var h autoscalingv2.HorizontalPodAutoscaler
		if err := c.client.Get(ctx, c.key(samplePolicy+"-blue"), &h); err != nil {
			return err
		}
		if h.Spec.MaxReplicas != 9 || *h.Spec.MinReplicas != 2 || h.Spec.ScaleTargetRef.Name != samplePolicy+"-blue" {
			return fmt.Errorf("it is %+v", h.Spec)
		}
		return nil
	})
	var deployment appsv1.Deployment
	c.edit(&deployment, samplePolicy+"-blue", func(client.Object) { deployment.Spec.Replicas = ptr.To[int32](5) })
	c.looks(4, "bridgepolicy")
	c.get(&deployment, samplePolicy+"-blue")
	if *deployment.Spec.Replicas != 5 {
		t.Errorf("got %d replicas, want the 5 that somebody else set", *deployment.Spec.Replicas)
	}
	c.edit(policy, samplePolicy, func(client.Object) {
		policy.Spec.Replicas, policy.Spec.Autoscaling = ptr.To[int32](3), nil
	})
	c.eventually("no autoscaler, and the wanted size", func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(samplePolicy+"-blue"), &autoscalingv2.HorizontalPodAutoscaler{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the autoscaler is still there: %w", err)
		}
		if err := c.client.Get(ctx, c.key(samplePolicy+"-blue"), &deployment); err != nil {
			return err
		}
		if *deployment.Spec.Replicas != 3 {
			return fmt.Errorf("replicas are %d", *deployment.Spec.Replicas)
		}
		return nil
	})
}

func TestForeignObjectsAreNotAdopted(t *testing.T) {
	c := newCluster(t)
	foreign := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: samplePolicy + "-config"},
		Data:       map[string]string{"mine": "yes"},
	}
	c.must(c.client.Create(t.Context(), foreign))
	c.operate()
	c.applySamples()
	var policy v1alpha1.BridgePolicy
	got := c.condition(&policy, samplePolicy, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonAdoptionRefused)
	want := "ConfigMap chat-config exists and does not belong to this BridgePolicy: rename the policy or remove that object."
	if got.Message != want {
		t.Errorf("got %q, want %q", got.Message, want)
	}
	c.event(v1alpha1.EventAdoptionRefused, samplePolicy)
	var now corev1.ConfigMap
	c.get(&now, foreign.Name)
	if now.ResourceVersion != foreign.ResourceVersion {
		t.Error("the operator changed an object that is not its own")
	}
	c.must(c.client.Delete(t.Context(), foreign))
	c.edit(&policy, samplePolicy, func(client.Object) { policy.Annotations = map[string]string{"example.com/look": "again"} })
	c.serve()
}

func TestAPausedPolicyIsLeftAlone(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	policy := &v1alpha1.BridgePolicy{}
	c.edit(policy, samplePolicy, func(client.Object) { policy.Spec.Management = v1alpha1.ManagementPaused })
	c.condition(policy, samplePolicy, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPausedByUser)
	var before, after appsv1.Deployment
	c.get(&before, samplePolicy+"-blue")

	c.edit(policy, samplePolicy, func(client.Object) {
		policy.Spec.Image = &v1alpha1.Image{Reference: "localhost/causeway-proxy:next"}
		policy.Spec.Replicas = ptr.To[int32](4)
	})
	c.condition(policy, samplePolicy, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonPaused)
	c.condition(policy, samplePolicy, v1alpha1.ConditionAvailable, metav1.ConditionFalse, v1alpha1.ReasonNoReadyReplicas)
	c.get(&after, samplePolicy+"-blue")
	if before.ResourceVersion != after.ResourceVersion {
		t.Error("the operator changed the Deployment of a paused policy")
	}
	c.edit(policy, samplePolicy, func(client.Object) { policy.Spec.Management = v1alpha1.ManagementActive })
	c.eventually("the new image", func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(samplePolicy+"-green"), &after); err != nil {
			return err
		}
		if got := after.Spec.Template.Spec.Containers[0].Image; got != "localhost/causeway-proxy:next" {
			return fmt.Errorf("image is %s", got)
		}
		return nil
	})
}

func TestT52_ProxiesHaveNoVerbOnSecrets(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	user := fmt.Sprintf("system:serviceaccount:%s:%s-proxy", c.namespace, samplePolicy)
	may := func(group, resource, sub, verb string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + c.namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: c.namespace, Group: group, Resource: resource, Subresource: sub, Verb: verb,
			},
		}}
		c.must(c.client.Create(t.Context(), review))
		return review.Status.Allowed
	}
	for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"} {
		for _, resource := range []string{"secrets", "configmaps", "pods"} {
			if may("", resource, "", verb) {
				t.Errorf("proxies may %s %s", verb, resource)
			}
		}
		for sub, allowed := range map[string]map[string]bool{"": {"get": true}, "status": {"patch": true, "update": true}} {
			if got := may(v1alpha1.GroupName, "bridgereplicas", sub, verb); got != allowed[verb] {
				t.Errorf("proxies may %s bridgereplicas/%s: got %v, want %v", verb, sub, got, allowed[verb])
			}
		}
		reading := verb == "get" || verb == "list" || verb == "watch"
		if got := may("discovery.k8s.io", "endpointslices", "", verb); got != reading {
			t.Errorf("proxies may %s endpointslices: got %v, want %v", verb, got, reading)
		}
		if may("coordination.k8s.io", "leases", "", verb) {
			t.Errorf("proxies may %s any Lease", verb)
		}
	}
}

func TestReportsCountOnlyForTheirPod(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	var own v1alpha1.BridgeReplica
	c.get(&own, samplePolicy+"-blue-0")
	var pod corev1.Pod
	c.get(&pod, samplePolicy+"-blue-0")
	if ref := own.OwnerReferences; len(ref) != 1 || ref[0].UID != pod.UID || own.Spec.PodUID != string(pod.UID) {
		t.Errorf("got owners %v and podUID %s, want Pod %s", ref, own.Spec.PodUID, pod.UID)
	}
	forged := &v1alpha1.BridgeReplica{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "forged"},
		Spec:       v1alpha1.BridgeReplicaSpec{Policy: samplePolicy, Slot: v1alpha1.SlotBlue, PodUID: string(pod.UID)},
	}
	c.must(c.client.Create(t.Context(), forged))
	at := metav1.NewTime(c.clock.Now())
	forged.Status = v1alpha1.BridgeReplicaStatus{ReportedAt: &at, Sessions: &v1alpha1.ReplicaSessions{Active: 1000}}
	c.must(c.client.Status().Update(t.Context(), forged))
	c.settle()
	var policy v1alpha1.BridgePolicy
	c.get(&policy, samplePolicy)
	if got := policy.Status.Sessions.Active; got != 6 {
		t.Errorf("got %d sessions, want the 6 of real pods", got)
	}
	// One that goes by mistake comes back.
	c.must(c.client.Delete(t.Context(), &own))
	c.eventually("a new BridgeReplica", func(ctx context.Context) error {
		return c.client.Get(ctx, c.key(samplePolicy+"-blue-0"), &v1alpha1.BridgeReplica{})
	})
}
