package activation

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/proxy/internal/kube"
)

const (
	resource = "leases"
	// fieldManager owns what proxies write.
	fieldManager = "causeway-proxy"
)

// apiLeases is the Lease in the API server.
type apiLeases struct {
	client    rest.Interface
	namespace string
	name      string
	log       *slog.Logger
}

// Source says where the Lease is.
type Source struct {
	// Config leads to the API server.
	Config    *rest.Config
	Namespace string
	// Name of the Lease.
	Name string
	Log  *slog.Logger
}

// NewLeases makes the Leases of a bridge. The returned function lets go of its
// connections.
func NewLeases(s Source) (Leases, func(), error) {
	client, closeIdle, err := kube.Client(s.Config, coordinationv1.SchemeGroupVersion, coordinationv1.AddToScheme)
	if err != nil {
		return nil, nil, fmt.Errorf("making a client for Leases: %w", err)
	}
	return &apiLeases{client: client, namespace: s.Namespace, name: s.Name, log: s.Log}, closeIdle, nil
}

// Read implements Leases. Without a resourceVersion the API server answers from a
// quorum of etcd, not from its cache.
func (l *apiLeases) Read(ctx context.Context) (Sight, error) {
	var lease coordinationv1.Lease
	err := l.client.Get().Namespace(l.namespace).Resource(resource).Name(l.name).Do(ctx).Into(&lease)
	if err != nil {
		return Sight{}, l.explained(err)
	}
	return sightOf(&lease), nil
}

// Write implements Leases: a patch that names the version it was made for, which
// the API server refuses when the Lease has another. Holder and epoch change in one
// step, and what others keep in the Lease stays.
func (l *apiLeases) Write(ctx context.Context, s Sight) (Sight, error) {
	var holder any // null takes the field away; an empty text is not allowed
	if identity := s.Holder.String(); identity != "" {
		holder = identity
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": s.Version,
			"annotations":     map[string]string{v1alpha1.AnnotationEpoch: strconv.FormatInt(s.Epoch, 10)},
		},
		"spec": map[string]any{"holderIdentity": holder, "renewTime": s.Renewed},
	})
	if err != nil {
		return Sight{}, fmt.Errorf("encoding the activation Lease: %w", err)
	}
	var lease coordinationv1.Lease
	err = l.client.Patch(types.MergePatchType).Namespace(l.namespace).Resource(resource).Name(l.name).
		Param("fieldManager", fieldManager).Body(patch).Do(ctx).Into(&lease)
	if err != nil {
		return Sight{}, l.explained(err)
	}
	return sightOf(&lease), nil
}

// Watch implements Leases.
func (l *apiLeases) Watch(ctx context.Context, seen func(Sight)) {
	lister := cache.NewFilteredListWatchFromClient(l.client, resource, l.namespace, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, l.name).String()
	})
	logger := logr.FromSlogHandler(l.log.Handler())
	cache.NewReflectorWithOptions(lister, &coordinationv1.Lease{}, ear(seen), cache.ReflectorOptions{Name: l.name, Logger: &logger}).
		RunWithContext(klog.NewContext(ctx, logger))
}

func (l *apiLeases) explained(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		err = ErrNoLease
	case apierrors.IsConflict(err):
		err = ErrConflict
	}
	return fmt.Errorf("activation Lease %s/%s: %w", l.namespace, l.name, err)
}

// sightOf reads a Lease. An epoch that is no number is none.
func sightOf(lease *coordinationv1.Lease) Sight {
	s := Sight{Version: lease.ResourceVersion, Next: lease.Annotations[v1alpha1.AnnotationNextHolder]}
	s.Epoch, _ = strconv.ParseInt(lease.Annotations[v1alpha1.AnnotationEpoch], 10, 64)
	s.Epoch = max(s.Epoch, 0)
	if identity := lease.Spec.HolderIdentity; identity != nil {
		holder, ours := bundle.ParseHolder(*identity)
		s.Holder, s.Foreign = holder, !ours
	}
	if t := lease.Spec.RenewTime; t != nil {
		s.Renewed = t.UTC().Format(renewFormat)
	}
	return s
}

// ear is a cache.ReflectorStore that keeps nothing.
type ear func(Sight)

func (e ear) hear(obj any) error {
	if lease, ok := obj.(*coordinationv1.Lease); ok {
		e(sightOf(lease))
	}
	return nil
}

func (e ear) Add(obj any) error    { return e.hear(obj) }
func (e ear) Update(obj any) error { return e.hear(obj) }

// Delete is no news: nobody can be given authority while there is no Lease.
func (e ear) Delete(any) error { return nil }

func (e ear) Replace(list []any, _ string) error {
	for _, obj := range list {
		_ = e.hear(obj)
	}
	return nil
}

func (e ear) Resync() error { return nil }
