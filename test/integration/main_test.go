package integration

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// config leads to the one API server of all tests of the package, with every right.
var config *rest.Config

// processLog is what the process logs outside of managers.
var processLog = &buffer{}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS is not set, so there is no API server to test against: run make test, which provides it")
		return 1
	}
	// What does not go through the logger of a manager; see the canary test.
	logger := logr.FromSlogHandler(slog.NewJSONHandler(processLog, nil))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	// Rights are tested, too: the operator runs under its own role.
	environment.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "RBAC")
	var err error
	if config, err = environment.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "starting the API server:", err)
		return 1
	}
	defer func() {
		if err := environment.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the API server:", err)
		}
	}()
	config.QPS, config.Burst = -1, -1
	return m.Run()
}
