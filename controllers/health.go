package controllers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/causeway-dev/causeway/controllers/internal/served"
)

// probeTimeout bounds reading a probe, not answering it.
const probeTimeout = 5 * time.Second

// addHealth serves /healthz and /readyz. The server of the manager would hold
// the reason of a failure back, and the reason is what an operator that waits
// for its definitions has to say.
func addHealth(mgr ctrl.Manager, listener net.Listener, checker *served.Checker) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) { answer(w, checker.Check(req.Context())) })
	server := &manager.Server{
		Name: "health", Listener: listener,
		Server: &http.Server{Handler: mux, ReadHeaderTimeout: probeTimeout, IdleTimeout: time.Minute},
	}
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("adding the health server: %w", err)
	}
	return nil
}

func answer(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, err)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

func newChecker(mgr ctrl.Manager, c clock.PassiveClock) (*served.Checker, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making the discovery client: %w", err)
	}
	return served.NewChecker(openapi.ToClientWithContext(d.OpenAPIV3()), c), nil
}

// Listen opens an address for Options.Health; "0" opens none.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if address == "0" || address == "" {
		return nil, nil //nolint:nilnil // no listener and no error is what "0" asks for
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("opening the health address: %w", err)
	}
	return l, nil
}
