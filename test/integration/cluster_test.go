package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causeway-dev/causeway/controllers"
)

const (
	proxyImage = "localhost/causeway-proxy:test"
	// patience bounds every wait for the operator; it is long because a busy
	// machine must not fail a test, and no test waits for it when all is well.
	patience = 30 * time.Second
	// resync makes the operator look at everything again and again.
	resync = 200 * time.Millisecond
)

// anyName lets one operator follow the other in one process.
var anyName = ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}

// cluster is a namespace of the API server and what a test does in it.
type cluster struct {
	t         *testing.T
	client    client.Client // with every right
	namespace string
	scheme    *runtime.Scheme
	clock     *clocktesting.FakePassiveClock
	writes    *recorder
	logs      *buffer
}

// newCluster makes a namespace.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	scheme, err := controllers.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, scheme: scheme, writes: &recorder{}, logs: &buffer{},
		clock: clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second))}
	if c.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	c.must(c.client.Create(t.Context(), ns))
	c.namespace = ns.Name
	return c
}

// operate runs the operator in the namespace, under its own role and nothing
// more, until the test ends or the returned function is called. Tests may change
// how it reaches the API server.
func (c *cluster) operate(change ...func(*rest.Config)) (stop func()) {
	c.t.Helper()
	logger := logr.FromSlogHandler(slog.NewJSONHandler(c.logs, &slog.HandlerOptions{Level: slog.Level(-4)}))
	period := resync
	options := controllers.CacheOptions([]string{c.namespace})
	options.SyncPeriod = &period
	cfg := c.operatorConfig()
	for _, f := range change {
		f(cfg)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: c.scheme, Cache: options, Logger: logger,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: anyName,
	})
	c.must(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	c.must(controllers.Setup(mgr, controllers.Options{ProxyImage: proxyImage, Clock: c.clock}))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("operator ended with %v", err)
		}
	})
	c.t.Cleanup(stop)
	return stop
}

// operatorConfig is a client configuration that has the operator's role in the
// namespace and records every write.
func (c *cluster) operatorConfig() *rest.Config {
	c.t.Helper()
	name := "operator-" + c.namespace
	var role rbacv1.ClusterRole
	manifest(c.t, &role, "config", "rbac", "role.yaml")
	local := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}, Rules: role.Rules}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}
	for _, o := range []client.Object{local, binding} {
		if err := c.client.Create(c.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			c.t.Fatal(err)
		}
	}
	cfg := rest.CopyConfig(config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:authenticated"}}
	cfg.Wrap(c.writes.wrap)
	return cfg
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.namespace, Name: name}
}

func (c *cluster) get(o client.Object, name string) {
	c.t.Helper()
	c.must(c.client.Get(c.t.Context(), c.key(name), o))
}

// eventually waits until check returns no error.
func (c *cluster) eventually(what string, check func(ctx context.Context) error) {
	c.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(c.t.Context(), 25*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		if err := check(ctx); err == nil || ctx.Err() == nil {
			last = err // what was wrong tells more than that time is up
		}
		return last == nil, nil
	})
	if err != nil {
		c.t.Fatalf("waiting for %s: %v\nlast lines of the operator:\n%s", what, errors.Join(last, err), c.logs.tail(30))
	}
}

// recorder notes the writes of the operator that were not refused as outdated.
type recorder struct {
	mu   sync.Mutex
	list []string
}

func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		res, err := next.RoundTrip(req)
		// What was decided on an old state is refused, and writes nothing.
		if req.Method != http.MethodGet && (err != nil || res.StatusCode != http.StatusConflict) {
			r.mu.Lock()
			r.list = append(r.list, fmt.Sprintf("%s %s", req.Method, req.URL.Path))
			r.mu.Unlock()
		}
		return res, err
	})
}

// take returns the writes since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// buffer collects logs.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *buffer) tail(n int) string {
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
