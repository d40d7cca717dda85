// Package wake says which objects of ours are looked at again when another
// object changes. Its functions read the cache and change nothing.
package wake

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/observe"
)

// Keys names the objects to look at again when o changes.
type Keys func(ctx context.Context, o client.Object) []types.NamespacedName

// Map makes a handler of keys.
func Map(keys Keys) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		var list []reconcile.Request
		for _, key := range keys(ctx, o) {
			list = append(list, reconcile.Request{NamespacedName: key})
		}
		return list
	})
}

// Finder finds objects by their references in the cache.
type Finder struct{ Cache client.Reader }

// PoliciesOfPool are the BridgePolicies that spend a pool.
func (f Finder) PoliciesOfPool(ctx context.Context, pool client.Object) []types.NamespacedName {
	return f.policies(ctx, pool.GetNamespace(), observe.IndexPool, pool.GetName())
}

// PoliciesOfCircuit are the BridgePolicies that follow a circuit policy.
func (f Finder) PoliciesOfCircuit(ctx context.Context, circuit client.Object) []types.NamespacedName {
	return f.policies(ctx, circuit.GetNamespace(), observe.IndexCircuit, circuit.GetName())
}

// PoliciesOfSecret are the BridgePolicies that need a Secret, themselves or
// through their pool.
func (f Finder) PoliciesOfSecret(ctx context.Context, secret client.Object) []types.NamespacedName {
	keys := f.policies(ctx, secret.GetNamespace(), observe.IndexSecret, secret.GetName())
	for _, pool := range f.PoolsOfSecret(ctx, secret) {
		keys = append(keys, f.policies(ctx, pool.Namespace, observe.IndexPool, pool.Name)...)
	}
	return keys
}

// PoolsOfSecret are the AccountPools that name a Secret.
func (f Finder) PoolsOfSecret(ctx context.Context, secret client.Object) []types.NamespacedName {
	return f.found(ctx)(observe.Pools(ctx, f.Cache, secret.GetNamespace(), secret.GetName()))
}

// PoolOfPolicy is the AccountPool of a BridgePolicy.
func (f Finder) PoolOfPolicy(_ context.Context, o client.Object) []types.NamespacedName {
	policy, ok := o.(*v1alpha1.BridgePolicy)
	if !ok {
		return nil
	}
	return []types.NamespacedName{{Namespace: policy.Namespace, Name: policy.Spec.AccountPoolRef.Name}}
}

// CircuitOfPolicy is the CircuitPolicy of a BridgePolicy.
func (f Finder) CircuitOfPolicy(_ context.Context, o client.Object) []types.NamespacedName {
	policy, ok := o.(*v1alpha1.BridgePolicy)
	if !ok || policy.Spec.CircuitPolicyRef == nil {
		return nil
	}
	return []types.NamespacedName{{Namespace: policy.Namespace, Name: policy.Spec.CircuitPolicyRef.Name}}
}

// PolicyOf is the BridgePolicy of a Pod or of a BridgeReplica.
func (f Finder) PolicyOf(_ context.Context, o client.Object) []types.NamespacedName {
	name := ""
	switch o := o.(type) {
	case *v1alpha1.BridgeReplica:
		name = o.Spec.Policy
	case *corev1.Pod:
		name = o.Labels[v1alpha1.LabelPolicy]
	}
	if name == "" {
		return nil
	}
	return []types.NamespacedName{{Namespace: o.GetNamespace(), Name: name}}
}

// PoolOf is the AccountPool behind a Pod or a BridgeReplica.
func (f Finder) PoolOf(ctx context.Context, o client.Object) []types.NamespacedName {
	var keys []types.NamespacedName
	for _, key := range f.PolicyOf(ctx, o) {
		var policy v1alpha1.BridgePolicy
		if err := f.Cache.Get(ctx, key, &policy); err == nil {
			keys = append(keys, f.PoolOfPolicy(ctx, &policy)...)
		}
	}
	return keys
}

func (f Finder) policies(ctx context.Context, namespace, index, value string) []types.NamespacedName {
	return f.found(ctx)(observe.Policies(ctx, f.Cache, namespace, index, value))
}

// found logs a failure of the cache, which only a wrong set-up can cause, and
// passes on what there is.
func (f Finder) found(ctx context.Context) func([]types.NamespacedName, error) []types.NamespacedName {
	return func(keys []types.NamespacedName, err error) []types.NamespacedName {
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot look up references")
		}
		return keys
	}
}
