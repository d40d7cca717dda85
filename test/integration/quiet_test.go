package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// lists returns an empty list of every kind that the operator reads or writes.
func lists() []client.ObjectList {
	return []client.ObjectList{
		&v1alpha1.AccountPoolList{}, &v1alpha1.CircuitPolicyList{}, &v1alpha1.BridgePolicyList{}, &v1alpha1.BridgeReplicaList{},
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceAccountList{}, &corev1.ServiceList{}, &corev1.PodList{},
		&appsv1.DeploymentList{}, &policyv1.PodDisruptionBudgetList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{},
	}
}

// each calls do for every object of the namespace.
func (c *cluster) each(do func(gvk string, o client.Object)) {
	c.t.Helper()
	for _, list := range lists() {
		c.must(c.client.List(c.t.Context(), list, client.InNamespace(c.namespace)))
		c.must(meta.EachListItem(list, func(item runtime.Object) error {
			o, ok := item.(client.Object)
			if !ok {
				return fmt.Errorf("%T is no object", item)
			}
			gvk, err := apiutil.GVKForObject(o, c.scheme)
			do(gvk.Kind, o)
			return err
		}))
	}
}

// versions maps every object of the namespace to its resource version.
func (c *cluster) versions() map[string]string {
	c.t.Helper()
	found := map[string]string{}
	c.each(func(kind string, o client.Object) { found[kind+"/"+o.GetName()] = o.GetResourceVersion() })
	return found
}

// contents maps every object of the namespace to all that it says, but for the
// books that the API server keeps about its writers. A restarted operator sends
// each of its intents once; the API server ignores that, unless the writers'
// entries change their order, which depends on the second of each write.
func (c *cluster) contents() map[string]string {
	c.t.Helper()
	found := map[string]string{}
	c.each(func(kind string, o client.Object) {
		o.SetManagedFields(nil)
		o.SetResourceVersion("")
		raw, err := json.Marshal(o)
		c.must(err)
		found[kind+"/"+o.GetName()] = string(raw)
	})
	return found
}

// looks waits until each controller has looked n more times.
func (c *cluster) looks(n int, controllers ...string) {
	c.t.Helper()
	before := reconciles(c.t)
	c.eventually("another look of the operator", func(context.Context) error {
		now := reconciles(c.t)
		for _, name := range controllers {
			if now[name] < before[name]+n {
				return fmt.Errorf("%s looked %d times, want %d", name, now[name]-before[name], n)
			}
		}
		return nil
	})
}

// settle waits until the operator has looked and found nothing to do.
func (c *cluster) settle() {
	c.t.Helper()
	c.eventually("a quiet operator", func(context.Context) error {
		c.writes.take()
		c.looks(3, "bridgepolicy", "accountpool")
		if writes := c.writes.take(); len(writes) > 0 {
			return fmt.Errorf("it still writes: %v", writes)
		}
		return nil
	})
}

// reconciles counts the finished reconciles of each controller of this process.
func reconciles(t *testing.T) map[string]int {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "controller" {
					found[label.GetValue()] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return found
}

func TestApplyingTheSamplesTwiceWritesNothing(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.settle()

	before := c.versions()
	c.applySamples()
	c.looks(5, "bridgepolicy", "accountpool")

	if writes := c.writes.take(); len(writes) > 0 {
		t.Errorf("the operator wrote %v", writes)
	}
	if diff := cmp.Diff(before, c.versions()); diff != "" {
		t.Errorf("resource versions changed (-before +after):\n%s", diff)
	}
}

func TestTenIdleMinutesShowNoWrite(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.settle()

	before := c.versions()
	for range 10 {
		c.clock.SetTime(c.clock.Now().Add(time.Minute))
		c.looks(3, "bridgepolicy", "accountpool")
	}
	if writes := c.writes.take(); len(writes) > 0 {
		t.Errorf("the operator wrote %v", writes)
	}
	if diff := cmp.Diff(before, c.versions()); diff != "" {
		t.Errorf("resource versions changed (-before +after):\n%s", diff)
	}
}

func TestStatusOfChildrenCausesNoWriteToThem(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.settle()
	c.rollOut(samplePolicy, 1)
	c.condition(&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutInProgress)
	c.looks(3, "bridgepolicy")
	for _, write := range c.writes.take() {
		if !strings.HasSuffix(write, "/"+samplePolicy+"/status") {
			t.Errorf("the operator wrote %s", write)
		}
	}
}

func TestARestartedOperatorChangesNothing(t *testing.T) {
	c := newCluster(t)
	stop := c.operate()
	c.serve()
	c.settle()
	before := c.contents()
	stop()

	c.operate()
	c.settle()
	if diff := cmp.Diff(before, c.contents()); diff != "" {
		t.Errorf("objects changed (-before +after):\n%s", diff)
	}
}

func TestNothingIsStuckWhenTheOperatorIsGone(t *testing.T) {
	c := newCluster(t)
	stop := c.operate()
	c.serve()
	stop()

	c.each(func(kind string, o client.Object) {
		if f := o.GetFinalizers(); len(f) > 0 {
			t.Errorf("%s %s has finalizers %v", kind, o.GetName(), f)
		}
		for _, ref := range o.GetOwnerReferences() {
			if ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
				t.Errorf("%s %s blocks the deletion of its owner", kind, o.GetName())
			}
		}
	})
	// Parents first, as a person would, then what the garbage collector would take.
	c.each(func(_ string, o client.Object) {
		c.must(client.IgnoreNotFound(c.client.Delete(t.Context(), o, client.GracePeriodSeconds(0))))
	})
	if left := slices.Sorted(maps.Keys(c.versions())); len(left) > 0 {
		t.Errorf("still there: %s", strings.Join(left, ", "))
	}
}
