package route

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/causeway-dev/causeway/proxy/internal/kube"
)

const resource = "endpointslices"

// Source says where the replicas of a slot are listed.
type Source struct {
	// Config leads to the API server.
	Config *rest.Config
	// Namespace and Service name the Service of the slot.
	Namespace, Service string
	// Port is the peer port of every pod.
	Port int
	Log  *slog.Logger
}

// Watch follows the ready pods until ctx ends and calls changed, from one
// goroutine, with all of them whenever they differ from before. While the API
// server cannot be reached nothing changes; it is asked again with a growing
// pause of at most a minute. Watch returns nil after ctx has ended, or an error
// at once if there is no way to ask.
func Watch(ctx context.Context, s Source, changed func([]Member)) error {
	client, closeIdle, err := kube.Client(s.Config, discoveryv1.SchemeGroupVersion, discoveryv1.AddToScheme)
	if err != nil {
		return fmt.Errorf("making a client for EndpointSlices: %w", err)
	}
	defer closeIdle()
	lister := cache.NewFilteredListWatchFromClient(client, resource, s.Namespace, func(o *metav1.ListOptions) {
		o.LabelSelector = discoveryv1.LabelServiceName + "=" + s.Service
	})
	store := &mirror{byName: map[string]*discoveryv1.EndpointSlice{}, port: s.Port, changed: changed}
	logger := logr.FromSlogHandler(s.Log.Handler())
	reflector := cache.NewReflectorWithOptions(lister, &discoveryv1.EndpointSlice{}, store,
		cache.ReflectorOptions{Name: s.Service, Logger: &logger})
	reflector.RunWithContext(klog.NewContext(ctx, logger))
	return nil
}
