package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/desired"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/plan"
)

// Applier carries out the actions of plans. It is safe for concurrent use.
type Applier struct {
	engine *engine
	client client.Client
}

// New returns an Applier. c reads from the cache, live from the API server.
func New(c client.Client, live client.Reader) *Applier {
	return &Applier{engine: newEngine(c, live), client: c}
}

// Do carries out the actions in their order and stops at the first that fails:
// later ones rely on earlier ones.
func (a *Applier) Do(ctx context.Context, policy *v1alpha1.BridgePolicy, actions []plan.Action) error {
	owner := Owner{v1alpha1.GroupVersion.WithKind(v1alpha1.KindBridgePolicy), policy}
	for _, action := range actions {
		if notify, ok := action.(plan.NotifyPods); ok {
			if err := a.notify(ctx, notify); err != nil {
				return err
			}
			continue
		}
		for _, intent := range intents(action) {
			if err := a.engine.apply(ctx, owner, intent.manager, intent.config); err != nil {
				return err
			}
		}
	}
	return nil
}

// Forget drops what is remembered of a policy that is gone.
func (a *Applier) Forget(policy client.ObjectKey) {
	f := effective.Fleet{Namespace: policy.Namespace, Name: policy.Name}
	names := map[string]bool{f.Name: true, f.ConfigName(): true, f.CredentialsName(): true, f.AccessName(): true}
	for _, slot := range slots {
		names[effective.Slot{Fleet: f, Slot: slot}.ObjectName()] = true
	}
	a.engine.forget(policy, func(key client.ObjectKey) bool { return names[key.Name] })
}

var slots = []v1alpha1.SlotName{v1alpha1.SlotBlue, v1alpha1.SlotGreen}

// intent is one apply configuration with the manager of its fields. Each concern
// has a manager of its own, so that giving one up touches no other.
type intent struct {
	manager string
	config  runtime.ApplyConfiguration
}

func intents(action plan.Action) []intent {
	switch a := action.(type) {
	case plan.GrantAccess:
		list := []intent{
			{v1alpha1.FieldOwnerAccess, desired.Role(a.Fleet)},
			{v1alpha1.FieldOwnerAccess, desired.RoleBinding(a.Fleet)},
		}
		if a.Fleet.ServiceAccountName() == a.Fleet.AccessName() {
			list = append(list, intent{v1alpha1.FieldOwnerAccess, desired.ServiceAccount(a.Fleet)})
		}
		return list
	case plan.WriteConfig:
		return []intent{
			{v1alpha1.FieldOwnerConfig, desired.CredentialsSecret(a.Fleet, a.Documents)},
			{v1alpha1.FieldOwnerConfig, desired.ConfigMap(a.Fleet, a.Documents)},
		}
	case plan.ApplySlot:
		return []intent{
			{v1alpha1.FieldOwnerSlots, desired.Deployment(a.Slot)},
			{v1alpha1.FieldOwnerSlots, desired.DisruptionBudget(a.Slot)},
		}
	case plan.ScaleSlot:
		return []intent{{v1alpha1.FieldOwnerReplicas, desired.Replicas(a.Slot, a.Replicas)}}
	case plan.SwitchRoute:
		list := []intent{{v1alpha1.FieldOwnerRoute, desired.Service(a.Active)}}
		for _, slot := range slots {
			list = append(list, intent{v1alpha1.FieldOwnerRoute, desired.SlotService(effective.Slot{Fleet: a.Active.Fleet, Slot: slot})})
		}
		return list
	default:
		return nil
	}
}

// notify marks the pods. A pod that is gone by now needs no mark.
func (a *Applier) notify(ctx context.Context, n plan.NotifyPods) error {
	for _, ref := range n.Pods {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid":         ref.UID, // a precondition: never another pod of that name
			"annotations": map[string]string{v1alpha1.AnnotationConfigHash: n.Hash},
		}})
		if err != nil {
			return fmt.Errorf("encoding the mark of Pod %s: %w", ref.Name, err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
		err = a.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldOwnerConfig))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("marking Pod %s: %w", ref.Name, classify(err))
		}
	}
	return nil
}

// refusedRetry is how often a name that is taken is tried again: objects that
// are not ours are not watched.
const refusedRetry = time.Minute

// Retry maps the outcome of a reconcile to when it runs again. What a human
// has to solve does not count as an error of the operator.
func Retry(err error, wait time.Duration) (time.Duration, error) {
	switch {
	case err == nil:
		return wait, nil
	case errors.Is(err, ErrAdoptionRefused), errors.Is(err, ErrForbidden):
		return refusedRetry, nil
	case apierrors.IsConflict(err), errors.Is(err, ErrPredecessor):
		// The cache is behind; another look in a moment settles it.
		return 200*time.Millisecond + rand.N(800*time.Millisecond), nil //nolint:gosec // jitter
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil
	default:
		return 0, err
	}
}
