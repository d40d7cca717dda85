package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causeway-dev/causeway/controllers"
)

// An operator that is installed before the definitions must wait for them and
// say so, not crash.
func TestReadinessNamesMissingDefinitions(t *testing.T) {
	environment := &envtest.Environment{}
	bare, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	scheme, err := controllers.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	health, err := controllers.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(bare, ctrl.Options{
		Scheme: scheme, Cache: controllers.CacheOptions(nil),
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: anyName,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := controllers.Setup(mgr, controllers.Options{ProxyImage: proxyImage, Health: health}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	c := &cluster{t: t, logs: processLog}
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("operator ended with %v", err)
		}
	}()

	ready := func(ctx context.Context) error { return probe(ctx, "http://"+health.Addr().String()+"/readyz") }
	c.eventually("a readiness that names what is missing", func(ctx context.Context) error {
		err := ready(ctx)
		if err == nil || !strings.Contains(err.Error(), "custom resource definitions are missing or too old: apply those of this version of Causeway: causeway.dev/v1alpha1 is not served") {
			return fmt.Errorf("readiness is %w", errors.Join(err, errors.New("but should name the definitions")))
		}
		return nil
	})
	if _, err := envtest.InstallCRDs(bare, envtest.CRDInstallOptions{Paths: []string{filepath.Join("..", "..", "config", "crd", "bases")}}); err != nil {
		t.Fatal(err)
	}
	c.eventually("a ready operator", ready)
}

func probe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%d: %s", res.StatusCode, body)
	}
	return nil
}
