package observe

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// Observer reads the world of a BridgePolicy. It is safe for concurrent use.
type Observer struct {
	cache      client.Reader
	secrets    *Secrets
	proxyImage string
	fresh      freshKeys
}

// New returns an Observer. proxyImage is the image that the operator was
// released with.
func New(cache client.Reader, secrets *Secrets, proxyImage string) *Observer {
	return &Observer{cache: cache, secrets: secrets, proxyImage: proxyImage}
}

// Read observes everything a plan needs.
func (o *Observer) Read(ctx context.Context, policy *v1alpha1.BridgePolicy) (plan.World, error) {
	w := plan.World{Policy: policy, ProxyImage: o.proxyImage}
	f := effective.NewFleet(policy, o.proxyImage)
	var err error
	if w.Pool, err = get(ctx, o.cache, f.Namespace, policy.Spec.AccountPoolRef.Name, &v1alpha1.AccountPool{}); err != nil {
		return w, err
	}
	if ref := policy.Spec.CircuitPolicyRef; ref != nil {
		if w.Circuit, err = get(ctx, o.cache, f.Namespace, ref.Name, &v1alpha1.CircuitPolicy{}); err != nil {
			return w, err
		}
	}
	if w.Secrets, err = o.secrets.Read(ctx, f.Namespace, PolicySecrets(policy, w.Pool)); err != nil {
		return w, err
	}
	if err := o.readCredentials(ctx, f, &w); err != nil {
		return w, err
	}
	if w.Config, err = get(ctx, o.cache, f.Namespace, f.ConfigName(), &corev1.ConfigMap{}); err != nil {
		return w, err
	}
	if err := o.readSlots(ctx, f, &w); err != nil {
		return w, err
	}
	w.Reports, err = Reports(ctx, o.cache, types.NamespacedName{Namespace: f.Namespace, Name: f.Name})
	return w, err
}

// readSlots reads what says which slot serves, and how far another one has come.
func (o *Observer) readSlots(ctx context.Context, f effective.Fleet, w *plan.World) error {
	w.Slots = map[v1alpha1.SlotName]*appsv1.Deployment{}
	w.Autoscalers = map[v1alpha1.SlotName]*autoscalingv2.HorizontalPodAutoscaler{}
	for _, slot := range []v1alpha1.SlotName{v1alpha1.SlotBlue, v1alpha1.SlotGreen} {
		name := effective.Slot{Fleet: f, Slot: slot}.ObjectName()
		d, err := get(ctx, o.cache, f.Namespace, name, &appsv1.Deployment{})
		if err != nil {
			return err
		}
		if d != nil {
			w.Slots[slot] = d
		}
		h, err := get(ctx, o.cache, f.Namespace, name, &autoscalingv2.HorizontalPodAutoscaler{})
		if err != nil {
			return err
		}
		if h != nil && metav1.IsControlledBy(h, w.Policy) {
			w.Autoscalers[slot] = h
		}
	}
	var err error
	if w.Service, err = get(ctx, o.cache, f.Namespace, f.Name, &corev1.Service{}); err != nil {
		return err
	}
	if w.Preview, err = get(ctx, o.cache, f.Namespace, f.PreviewName(), &corev1.Service{}); err != nil {
		return err
	}
	lease, err := get(ctx, o.cache, f.Namespace, apieffective.ActivationLease(f.Name), &coordinationv1.Lease{})
	if lease != nil && metav1.IsControlledBy(lease, w.Policy) {
		w.Lease = lease // one of somebody else is refused when ours is to be made
	}
	return err
}

// readCredentials reads the credentials document back for the peer keys in it,
// which exist nowhere else.
func (o *Observer) readCredentials(ctx context.Context, f effective.Fleet, w *plan.World) error {
	data, version, err := o.secrets.Own(ctx, types.NamespacedName{Namespace: f.Namespace, Name: f.CredentialsName()})
	if err != nil {
		return err
	}
	policy := types.NamespacedName{Namespace: f.Namespace, Name: f.Name}
	w.Credentials, w.CredentialsVersion = data[bundle.CredentialsFileName], version
	if plan.HasPeerKeys(w.Credentials) {
		o.fresh.drop(policy)
		return nil
	}
	w.FreshPeerKey = o.fresh.of(policy)
	return nil
}

// Forget drops what is remembered of a policy that is gone.
func (o *Observer) Forget(policy types.NamespacedName) { o.fresh.drop(policy) }

// Reports returns the live pods of a policy with what they report.
func Reports(ctx context.Context, cache client.Reader, policy types.NamespacedName) ([]reports.Report, error) {
	var pods corev1.PodList
	if err := cache.List(ctx, &pods, client.InNamespace(policy.Namespace), client.MatchingFields{IndexPolicy: policy.Name}); err != nil {
		return nil, fmt.Errorf("listing Pods: %w", err)
	}
	var replicas v1alpha1.BridgeReplicaList
	if err := cache.List(ctx, &replicas, client.InNamespace(policy.Namespace), client.MatchingFields{IndexPolicy: policy.Name}); err != nil {
		return nil, fmt.Errorf("listing BridgeReplicas: %w", err)
	}
	return reports.Join(pointers(pods.Items), pointers(replicas.Items)), nil
}

func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}

// get returns the object, or nil when it does not exist.
func get[T client.Object](ctx context.Context, cache client.Reader, namespace, name string, into T) (T, error) {
	var none T
	err := cache.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return into, nil
}

// PolicySecrets names the Secrets that a policy and its pool refer to, sorted.
// pool may be nil.
func PolicySecrets(policy *v1alpha1.BridgePolicy, pool *v1alpha1.AccountPool) []string {
	var names []string
	if ref := policy.Spec.Clients.KeysSecretRef; ref != nil {
		names = append(names, ref.Name)
	}
	if s := policy.Spec.Store; s != nil && s.Redis != nil && s.Redis.AuthSecretRef != nil {
		names = append(names, s.Redis.AuthSecretRef.Name)
	}
	if pool != nil {
		names = append(names, PoolSecrets(pool)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// PoolSecrets names the Secrets that a pool refers to and those in which the
// operator keeps its logins, sorted.
func PoolSecrets(pool *v1alpha1.AccountPool) []string {
	var names []string
	for _, a := range pool.Spec.Accounts {
		if a.APIKey != nil {
			names = append(names, a.APIKey.SecretRef.Name)
		}
		if a.OAuth != nil {
			names = append(names, a.OAuth.SeedSecretRef.Name, apieffective.LoginSecretName(pool.Name, a.Name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
