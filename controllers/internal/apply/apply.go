package apply

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
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
	v := versions{}
	for _, action := range actions {
		if err := a.one(ctx, owner, action, v); err != nil {
			return err
		}
	}
	return nil
}

// versions are those of the objects that were written for the plan at hand. What
// was decided about the version before holds for them, too: the write was ours.
type versions map[string]string

func (v versions) of(name, seen string) string {
	if own, ok := v[name]; ok {
		return own
	}
	return seen
}

func (a *Applier) one(ctx context.Context, owner Owner, action plan.Action, v versions) error {
	switch action := action.(type) {
	case plan.NotifyPods:
		return a.annotatePods(ctx, action.Pods, v1alpha1.FieldOwnerConfig, map[string]any{v1alpha1.AnnotationConfigHash: action.Hash})
	case plan.HoldPods:
		return a.hold(ctx, action)
	case plan.MarkSlot:
		return a.mark(ctx, action, v)
	case plan.CreateLease:
		return a.createLease(ctx, owner, action)
	case plan.RequestHandover:
		return a.requestHandover(ctx, action)
	case plan.DropAutoscaler:
		return a.dropAutoscaler(ctx, action)
	}
	for _, intent := range intents(action) {
		g := guard{on: intent.guarded}
		if g.on {
			g.seen = v.of(intent.object, intent.seen)
		}
		written, err := a.engine.apply(ctx, owner, intent.manager, intent.config, g)
		if err != nil {
			return err
		}
		if g.on && written != "" {
			v[intent.object] = written
		}
	}
	return nil
}

// Forget drops what is remembered of a policy that is gone.
func (a *Applier) Forget(policy client.ObjectKey) {
	f := effective.Fleet{Namespace: policy.Namespace, Name: policy.Name}
	names := map[string]bool{f.Name: true, f.ConfigName(): true, f.CredentialsName(): true, f.AccessName(): true, f.PreviewName(): true}
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
	// With guarded, nothing is written unless the object is the one that was seen.
	guarded      bool
	object, seen string
}

func intents(action plan.Action) []intent {
	switch a := action.(type) {
	case plan.GrantAccess:
		list := []intent{
			{manager: v1alpha1.FieldOwnerAccess, config: desired.Role(a.Fleet)},
			{manager: v1alpha1.FieldOwnerAccess, config: desired.RoleBinding(a.Fleet)},
		}
		if a.Fleet.ServiceAccountName() == a.Fleet.AccessName() {
			list = append(list, intent{manager: v1alpha1.FieldOwnerAccess, config: desired.ServiceAccount(a.Fleet)})
		}
		return list
	case plan.WriteConfig:
		return []intent{
			{manager: v1alpha1.FieldOwnerConfig, config: desired.CredentialsSecret(a.Fleet, a.Documents),
				guarded: true, object: "Secret", seen: a.Seen},
			{manager: v1alpha1.FieldOwnerConfig, config: desired.ConfigMap(a.Fleet, a.Documents)},
		}
	case plan.ApplySlot:
		return []intent{slotIntent(v1alpha1.FieldOwnerSlots, desired.Deployment(a.Slot), a.Slot, a.Seen)}
	case plan.GuardSlot:
		return []intent{{manager: v1alpha1.FieldOwnerSlots, config: desired.DisruptionBudget(a.Slot, a.Held)}}
	case plan.ScaleSlot:
		return []intent{slotIntent(v1alpha1.FieldOwnerReplicas, desired.Replicas(a.Slot, a.Replicas), a.Slot, a.Seen)}
	case plan.ApplyAutoscaler:
		return []intent{{manager: v1alpha1.FieldOwnerSlots, config: desired.Autoscaler(a.Slot)}}
	case plan.ShowPreview:
		return []intent{{manager: v1alpha1.FieldOwnerRoute, config: desired.Preview(a.Fleet, a.Slot)}}
	case plan.SwitchRoute:
		route := desired.Route{Active: a.Active, Wide: a.Wide, PromotedAt: a.PromotedAt}
		list := []intent{{manager: v1alpha1.FieldOwnerRoute, config: desired.Service(route), guarded: true, object: "Service", seen: a.Seen}}
		for _, slot := range slots {
			service := desired.SlotService(effective.Slot{Fleet: a.Active.Fleet, Slot: slot})
			list = append(list, intent{manager: v1alpha1.FieldOwnerRoute, config: service})
		}
		return list
	default:
		return nil
	}
}

func slotIntent(manager string, config runtime.ApplyConfiguration, slot effective.Slot, seen string) intent {
	return intent{manager: manager, config: config, guarded: true, object: deploymentKey(slot), seen: seen}
}

func deploymentKey(slot effective.Slot) string { return "Deployment/" + slot.ObjectName() }

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
	case apierrors.IsConflict(err), errors.Is(err, errStale), errors.Is(err, ErrPredecessor):
		// The cache is behind; another look in a moment settles it.
		return 200*time.Millisecond + rand.N(800*time.Millisecond), nil //nolint:gosec // jitter
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil
	default:
		return 0, err
	}
}
