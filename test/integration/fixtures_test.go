package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigsyaml "sigs.k8s.io/yaml"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// samples are the files of config/samples, in the order in which they are applied.
var samples = []string{"secrets.yaml", "accountpool.yaml", "circuitpolicy.yaml", "bridgepolicy.yaml"}

// Names in the samples.
const (
	samplePolicy  = "chat"
	samplePool    = "team"
	sampleCircuit = "patient"
	sampleKeys    = "openai-keys"
	sampleClients = "chat-clients"
)

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func manifest(t *testing.T, into any, path ...string) {
	t.Helper()
	if err := sigsyaml.UnmarshalStrict(read(t, path...), into); err != nil {
		t.Fatalf("%s: %v", filepath.Join(path...), err)
	}
}

// applySamples does what kubectl apply -k config/samples does.
func (c *cluster) applySamples() {
	c.t.Helper()
	for _, file := range samples {
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(read(c.t, "config", "samples", file)), 4096)
		for {
			u := &unstructured.Unstructured{}
			err := decoder.Decode(u)
			if errors.Is(err, io.EOF) {
				break
			}
			c.must(err)
			u.SetNamespace(c.namespace)
			c.must(c.client.Apply(c.t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubectl"), client.ForceOwnership))
		}
	}
}

// runPods plays the kubelet and the controller of Deployments: n ready pods of
// the slot, and a Deployment that says so.
func (c *cluster) runPods(policy string, n int) {
	c.t.Helper()
	var d appsv1.Deployment
	c.eventually("Deployment of the slot", func(ctx context.Context) error {
		return c.client.Get(ctx, c.key(policy+"-blue"), &d)
	})
	for i := range n {
		template := d.Spec.Template.DeepCopy()
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
		pod.Namespace, pod.Name = c.namespace, fmt.Sprintf("%s-blue-%d", policy, i)
		c.must(c.client.Create(c.t.Context(), pod))
		before := pod.DeepCopy() // the operator marks it meanwhile
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.clock.Now()),
		}}
		c.must(c.client.Status().Patch(c.t.Context(), pod, client.MergeFrom(before)))
	}
	c.rollOut(policy, n)
}

// rollOut makes the Deployment say that n replicas of its newest template run.
func (c *cluster) rollOut(policy string, n int) {
	c.t.Helper()
	c.eventually("status of the Deployment", func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := c.client.Get(ctx, c.key(policy+"-blue"), &d); err != nil {
			return err
		}
		count := int32(n)
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: count,
			UpdatedReplicas: count, ReadyReplicas: count, AvailableReplicas: count}
		return c.client.Status().Update(ctx, &d)
	})
}

// report plays the proxies: every BridgeReplica acknowledges what the policy's
// ConfigMap and Secret hold now, and says that all accounts are usable.
func (c *cluster) report(policy string, change ...func(*v1alpha1.BridgeReplicaStatus)) {
	c.t.Helper()
	var pods corev1.PodList
	c.must(c.client.List(c.t.Context(), &pods, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelPolicy: policy}))
	var cm corev1.ConfigMap
	c.get(&cm, policy+"-config")
	for _, pod := range pods.Items {
		c.eventually("BridgeReplica of "+pod.Name, func(ctx context.Context) error {
			var r v1alpha1.BridgeReplica
			if err := c.client.Get(ctx, client.ObjectKeyFromObject(&pod), &r); err != nil {
				return err
			}
			at, before := metav1.NewTime(c.clock.Now()), r.Status.ObservedConfig
			r.Status = v1alpha1.BridgeReplicaStatus{
				ObservedConfig: &v1alpha1.ObservedConfig{
					Hash:            cm.Annotations[v1alpha1.AnnotationConfigHash],
					CredentialsHash: cm.Annotations[v1alpha1.AnnotationCredentialsHash],
					State:           v1alpha1.ConfigApplied,
				},
				Role:     v1alpha1.RoleServing,
				Sessions: &v1alpha1.ReplicaSessions{Active: 3},
				Accounts: []v1alpha1.ReplicaAccount{
					{Name: "primary", State: v1alpha1.AccountConditionUsable},
					{Name: "backup", State: v1alpha1.AccountConditionUsable},
				},
				ReportSequence: r.Status.ReportSequence + 1, ReportedAt: &at,
			}
			for _, f := range change {
				f(&r.Status)
			}
			if equality.Semantic.DeepEqual(before, r.Status.ObservedConfig) {
				return nil
			}
			return c.client.Status().Update(ctx, &r)
		})
	}
}

// acknowledge reports, as proxies do, whatever configuration comes, until the
// bridge is Ready.
func (c *cluster) acknowledge() {
	c.t.Helper()
	c.eventually("a ready bridge", func(ctx context.Context) error {
		c.report(samplePolicy)
		var policy v1alpha1.BridgePolicy
		if err := c.client.Get(ctx, c.key(samplePolicy), &policy); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(policy.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != policy.Generation {
			return fmt.Errorf("conditions are %s", show(policy.Status.Conditions))
		}
		return nil
	})
}

// serve brings the samples up until everything is Ready.
func (c *cluster) serve() {
	c.t.Helper()
	c.applySamples()
	c.runPods(samplePolicy, 2)
	c.acknowledge()
	// The operator notes that the slot serves, which is a new generation of it.
	c.noted(samplePolicy+"-blue", v1alpha1.AnnotationPromotedAt)
	c.rollOut(samplePolicy, 2)
	c.condition(&v1alpha1.AccountPool{}, samplePool, v1alpha1.ConditionUsable, metav1.ConditionTrue, v1alpha1.ReasonAccountsUsable)
	c.condition(&v1alpha1.CircuitPolicy{}, sampleCircuit, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

// noted waits until the operator has noted something on a Deployment.
func (c *cluster) noted(name, annotation string) {
	c.t.Helper()
	c.eventually(annotation+" on "+name, func(ctx context.Context) error {
		var d appsv1.Deployment
		if err := c.client.Get(ctx, c.key(name), &d); err != nil {
			return err
		}
		if d.Annotations[annotation] == "" {
			return fmt.Errorf("annotations are %v", d.Annotations)
		}
		return nil
	})
}

// condition waits until an object has a condition of its current generation.
func (c *cluster) condition(o client.Object, name, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	c.t.Helper()
	var found metav1.Condition
	c.eventually(fmt.Sprintf("%s=%s/%s of %s", kind, status, reason, name), func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(name), o); err != nil {
			return err
		}
		list := conditionsOf(o)
		got := meta.FindStatusCondition(list, kind)
		if got == nil || got.Status != status || got.Reason != reason || got.ObservedGeneration != o.GetGeneration() {
			return fmt.Errorf("conditions are %s", show(list))
		}
		found = *got
		return nil
	})
	return found
}

func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *v1alpha1.AccountPool:
		return o.Status.Conditions
	case *v1alpha1.CircuitPolicy:
		return o.Status.Conditions
	case *v1alpha1.BridgePolicy:
		return o.Status.Conditions
	default:
		return nil
	}
}

func show(list []metav1.Condition) string {
	out := ""
	for _, c := range list {
		out += fmt.Sprintf("\n  %s=%s/%s gen %d: %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)
	}
	return out
}
