// Package apply writes what a plan asks for. It decides nothing but whether a
// write can be left out because it would change nothing.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

var (
	// ErrAdoptionRefused says that an object of the wanted name exists and
	// belongs to somebody else.
	ErrAdoptionRefused = errors.New("object exists and is not owned by this BridgePolicy")
	// ErrForbidden says that the operator lacks a permission or a quota is used up.
	ErrForbidden = errors.New("the API server refused the write")
	// ErrPredecessor says that an object of a deleted BridgePolicy of the same
	// name still waits for garbage collection.
	ErrPredecessor = errors.New("object of a deleted BridgePolicy of the same name is still being removed")
	// errStale says that the object is not as it was when the plan was made.
	errStale = errors.New("the object has changed since it was looked at")
)

// Refusal says which object a human has to look at.
type Refusal struct {
	Kind, Name string
	Err        error
}

// Error names the object and the cause.
func (r *Refusal) Error() string { return fmt.Sprintf("%s %s: %v", r.Kind, r.Name, r.Err) }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Owner is the object whose children are written.
type Owner struct {
	schema.GroupVersionKind
	client.Object
}

// engine is server-side apply with one rule added: an intent that is already
// met is not sent. It is safe for concurrent use.
type engine struct {
	client client.Client // reads from the cache
	live   client.Reader // reads from the API server

	mu   sync.Mutex // guards seen
	seen map[seenKey]seenState
}

// seenKey names one intent: an object may have several managers.
type seenKey struct {
	schema.GroupVersionKind
	client.ObjectKey
	manager string
}

// seenState is the version of an object that is known to meet an intent.
type seenState struct {
	resourceVersion string
	intent          [sha256.Size]byte
}

func newEngine(c client.Client, live client.Reader) *engine {
	return &engine{client: c, live: live, seen: map[seenKey]seenState{}}
}

// guard makes a write depend on the version of the object that was decided about.
type guard struct {
	on   bool
	seen string // empty = it was not there
}

// apply brings the object to the intent of one manager. It returns the version
// that it wrote; empty = there was nothing to write.
func (e *engine) apply(
	ctx context.Context, owner Owner, manager string, config runtime.ApplyConfiguration, g guard,
) (string, error) {
	intent, digest, err := decode(config)
	if err != nil {
		return "", err
	}
	key := seenKey{intent.GroupVersionKind(), client.ObjectKeyFromObject(intent), manager}
	what := fmt.Sprintf("%s %s", key.Kind, key.Name)
	current, err := e.current(ctx, key)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", what, err)
	}
	if current != nil {
		if err := checkOwner(owner, current); err != nil {
			return "", &Refusal{key.Kind, key.Name, err}
		}
		if e.met(key, digest, intent, current) {
			writes.WithLabelValues(key.Kind, resultSkipped).Inc()
			return "", nil
		}
		if g.on && g.seen == "" && current.GetLabels()[v1alpha1.AppManagedBy] == v1alpha1.AppManagedByValue {
			return "", fmt.Errorf("applying %s: %w", what, errStale) // without our label, the cache could not show it
		}
	}
	if g.on {
		intent.SetResourceVersion(g.seen)
	}
	log.FromContext(ctx).V(1).Info("Applying "+key.Kind, key.Kind, klog.KRef(key.Namespace, key.Name), "manager", manager)
	err = e.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(intent), client.FieldOwner(manager), client.ForceOwnership)
	if err != nil {
		writes.WithLabelValues(key.Kind, resultFailed).Inc()
		if refused := classify(err); errors.Is(refused, ErrForbidden) {
			return "", &Refusal{key.Kind, key.Name, refused}
		}
		return "", fmt.Errorf("applying %s: %w", what, err)
	}
	writes.WithLabelValues(key.Kind, resultApplied).Inc()
	e.remember(key, seenState{intent.GetResourceVersion(), digest})
	return intent.GetResourceVersion(), nil
}

// met says whether the object needs no write. The object of the cache may be
// older than our own last write; then that write decides, and the watch will
// wake us when somebody else changed the object since.
func (e *engine) met(key seenKey, digest [sha256.Size]byte, intent *unstructured.Unstructured, current client.Object) bool {
	e.mu.Lock()
	state, ok := e.seen[key]
	e.mu.Unlock()
	if !ok || state.intent != digest {
		return false
	}
	if order, err := resourceversion.CompareResourceVersion(current.GetResourceVersion(), state.resourceVersion); err == nil && order <= 0 {
		return true
	}
	if _, partial := current.(*metav1.PartialObjectMetadata); partial {
		return false // the content is not in the cache; only the API server can tell
	}
	have, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return false
	}
	for field, want := range intent.Object {
		if field == "apiVersion" || field == "kind" {
			continue // the cache does not keep them
		}
		if !contains(have[field], want) {
			return false
		}
	}
	e.remember(key, seenState{current.GetResourceVersion(), digest})
	return true
}

func (e *engine) remember(key seenKey, state seenState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[key] = state
}

// forget drops what is known about the objects of an owner that is gone.
func (e *engine) forget(owner client.ObjectKey, mine func(client.ObjectKey) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for key := range e.seen {
		if key.Namespace == owner.Namespace && mine(key.ObjectKey) {
			delete(e.seen, key)
		}
	}
}

// current returns the object, or nil. The cache holds only objects with our
// label, so what is not there is looked up live before it is written over.
func (e *engine) current(ctx context.Context, key seenKey) (client.Object, error) {
	obj, err := e.empty(key.GroupVersionKind)
	if err != nil {
		return nil, err
	}
	err = e.client.Get(ctx, key.ObjectKey, obj)
	if err == nil {
		return obj, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	meta := partial(key.GroupVersionKind)
	if err := e.live.Get(ctx, key.ObjectKey, meta); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return meta, nil
}

// empty returns an object of the form that the cache holds.
func (e *engine) empty(gvk schema.GroupVersionKind) (client.Object, error) {
	if gvk == corev1.SchemeGroupVersion.WithKind("Secret") {
		return partial(gvk), nil
	}
	obj, err := e.client.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	typed, ok := obj.(client.Object)
	if !ok {
		return nil, fmt.Errorf("%s is no API object", gvk.Kind)
	}
	return typed, nil
}

func partial(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	meta := &metav1.PartialObjectMetadata{}
	meta.SetGroupVersionKind(gvk)
	return meta
}

// checkOwner refuses objects that are not ours: adopting them silently would
// overwrite what somebody else relies on.
func checkOwner(owner Owner, current client.Object) error {
	ref := metav1.GetControllerOf(current)
	switch {
	case ref != nil && ref.UID == owner.GetUID():
		return nil
	case ref != nil && ref.Kind == owner.Kind && ref.Name == owner.GetName():
		return ErrPredecessor
	default:
		return ErrAdoptionRefused
	}
}

// decode turns an apply configuration into the JSON that is sent, and its digest.
func decode(config runtime.ApplyConfiguration) (*unstructured.Unstructured, [sha256.Size]byte, error) {
	raw, err := json.Marshal(config)
	if err != nil {
		return nil, [sha256.Size]byte{}, fmt.Errorf("encoding %T: %w", config, err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, [sha256.Size]byte{}, fmt.Errorf("decoding %T: %w", config, err)
	}
	return u, sha256.Sum256(raw), nil
}

// classify marks the refusals that a human has to solve.
func classify(err error) error {
	if apierrors.IsForbidden(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("%w: %w", ErrForbidden, err)
	}
	return err
}
