package observe

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// Names of the indexes of the cache.
const (
	// IndexPolicy finds Pods and BridgeReplicas by their BridgePolicy.
	IndexPolicy = "policy"
	// IndexPool and IndexCircuit find BridgePolicies by what they refer to.
	IndexPool    = "pool"
	IndexCircuit = "circuit"
	// IndexSecret finds AccountPools and BridgePolicies by the Secrets that they
	// name themselves.
	IndexSecret = "secret"
)

// AddIndexes registers the indexes; it must run before the cache starts.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		name   string
		values client.IndexerFunc
	}{
		{&corev1.Pod{}, IndexPolicy, func(o client.Object) []string { return one(o.GetLabels()[v1alpha1.LabelPolicy]) }},
		{&v1alpha1.BridgeReplica{}, IndexPolicy, func(o client.Object) []string {
			r, _ := o.(*v1alpha1.BridgeReplica)
			return one(r.Spec.Policy)
		}},
		{&v1alpha1.BridgePolicy{}, IndexPool, func(o client.Object) []string {
			p, _ := o.(*v1alpha1.BridgePolicy)
			return one(p.Spec.AccountPoolRef.Name)
		}},
		{&v1alpha1.BridgePolicy{}, IndexCircuit, func(o client.Object) []string { return one(circuitName(o)) }},
		{&v1alpha1.BridgePolicy{}, IndexSecret, func(o client.Object) []string {
			p, _ := o.(*v1alpha1.BridgePolicy)
			return PolicySecrets(p, nil)
		}},
		{&v1alpha1.AccountPool{}, IndexSecret, func(o client.Object) []string {
			p, _ := o.(*v1alpha1.AccountPool)
			return PoolSecrets(p)
		}},
	} {
		if err := indexer.IndexField(ctx, index.object, index.name, index.values); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", index.object, index.name, err)
		}
	}
	return nil
}

func circuitName(o client.Object) string {
	p, ok := o.(*v1alpha1.BridgePolicy)
	if !ok || p.Spec.CircuitPolicyRef == nil {
		return ""
	}
	return p.Spec.CircuitPolicyRef.Name
}

func one(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// Policies returns the names of the BridgePolicies of an index value.
func Policies(ctx context.Context, cache client.Reader, namespace, index, value string) ([]types.NamespacedName, error) {
	var list v1alpha1.BridgePolicyList
	if err := cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{index: value}); err != nil {
		return nil, fmt.Errorf("listing BridgePolicies by %s: %w", index, err)
	}
	return names(pointers(list.Items)), nil
}

// Pools returns the names of the AccountPools that refer to a Secret.
func Pools(ctx context.Context, cache client.Reader, namespace, secret string) ([]types.NamespacedName, error) {
	var list v1alpha1.AccountPoolList
	if err := cache.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{IndexSecret: secret}); err != nil {
		return nil, fmt.Errorf("listing AccountPools by Secret: %w", err)
	}
	return names(pointers(list.Items)), nil
}

func names[T client.Object](items []T) []types.NamespacedName {
	list := make([]types.NamespacedName, len(items))
	for i, o := range items {
		list[i] = client.ObjectKeyFromObject(o)
	}
	return list
}
