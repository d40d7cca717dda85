package packaging

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers"
)

// account is who the operator is.
const account = "system:serviceaccount:" + system + ":causeway-operator"

// operate runs the operator as the chart would: under its service account, elected,
// and with the arguments of its Deployment as far as they limit it.
func operate(t *testing.T, namespaces ...string) (stop func()) {
	t.Helper()
	cfg := rest.CopyConfig(config)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + system, "system:authenticated"},
	}
	log := &lines{}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: controllers.CacheOptions(namespaces),
		Logger:         logr.FromSlogHandler(slog.NewJSONHandler(log, nil)),
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
		LeaderElection: true, LeaderElectionID: "causeway-operator", LeaderElectionNamespace: system,
		LeaderElectionReleaseOnCancel: true,
	})
	must(t, err)
	must(t, controllers.Setup(mgr, controllers.Options{ProxyImage: "localhost/causeway-proxy:test"}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("operator ended with %v", err)
		}
		if t.Failed() {
			t.Logf("operator:\n%s", log)
		}
	})
	t.Cleanup(stop)
	return stop
}

// lines collects a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := strings.Split(l.b.String(), "\n")
	return strings.Join(all[max(0, len(all)-30):], "\n")
}

// works waits until the operator has made the proxies of a bridge, and said so: then
// its rights suffice.
func works(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "the operator in namespace "+namespace, func() error {
		var bridge v1alpha1.BridgePolicy
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "chat"}, &bridge); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(bridge.Status.Conditions, v1alpha1.ConditionResolvedRefs) {
			return fmt.Errorf("conditions %v", bridge.Status.Conditions)
		}
		return admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "chat-blue"}, &appsv1.Deployment{})
	})
}

// may asks whether the operator has a right.
func may(t *testing.T, verb, resource, namespace string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: account, Groups: []string{"system:serviceaccounts"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Namespace: namespace},
	}}
	must(t, admin.Create(t.Context(), review))
	return review.Status.Allowed
}
