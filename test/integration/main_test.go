package integration

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/causeway-dev/causeway/test/apiserver"
)

// config leads to the one API server of all tests of the package, with every right.
var config *rest.Config

// processLog is what the process logs outside of managers.
var processLog = &buffer{}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
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
	return apiserver.Run(m, environment, func(c *rest.Config) (func(), error) {
		config = c
		return func() {}, nil
	})
}
