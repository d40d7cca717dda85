package packaging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/causeway-dev/causeway/controllers"
	"github.com/causeway-dev/causeway/test/apiserver"
)

const (
	// patience bounds every wait; it is long because a busy machine must not fail a test.
	patience = 60 * time.Second
	// system is the namespace of the operator.
	system = "causeway-system"
)

var (
	root    = filepath.Join("..", "..")
	assets  = os.Getenv("KUBEBUILDER_ASSETS")
	helmBin = os.Getenv("CAUSEWAY_HELM")
	config  *rest.Config // leads to the one API server of all tests, with every right
	admin   client.Client
	scheme  *runtime.Scheme
	kube    string // the path of a kubeconfig, for Helm and kubectl
	home    string // where Helm keeps what it keeps
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if assets == "" || helmBin == "" {
		fmt.Fprintln(os.Stderr, "KUBEBUILDER_ASSETS or CAUSEWAY_HELM is not set, so there is no API server to test against, or no Helm: "+
			"run make test-charts, which provides both")
		return 1
	}
	ctrl.SetLogger(logr.Discard())
	folder, err := os.MkdirTemp("", "causeway-packaging-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	kube, home = filepath.Join(folder, "kubeconfig"), folder
	environment := &envtest.Environment{} // without CRDs: the charts bring them
	environment.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "RBAC")
	return apiserver.Run(m, environment, func(c *rest.Config) (func(), error) {
		config = c
		return prepare(environment)
	})
}

// prepare connects everybody and starts the controllers that clean up.
func prepare(environment *envtest.Environment) (stop func(), err error) {
	if scheme, err = controllers.NewScheme(); err != nil {
		return nil, err
	}
	if admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	user, err := environment.AddUser(envtest.User{Name: "packager", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		return nil, err
	}
	text, err := user.KubeConfig()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(kube, text, 0o600); err != nil {
		return nil, err
	}
	manager := exec.Command(filepath.Join(assets, "kube-controller-manager"),
		"--kubeconfig="+kube, "--leader-elect=false", "--secure-port=0",
		"--controllers=namespace-controller,garbage-collector-controller,validatingadmissionpolicy-status-controller")
	log := &bytes.Buffer{}
	manager.Stdout, manager.Stderr = log, log
	if err := manager.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = manager.Process.Kill()
		_ = manager.Wait() // killed, of course
		if os.Getenv("SHOW_CONTROLLERS") != "" {
			fmt.Fprintln(os.Stderr, log)
		}
	}, nil
}

// command runs a program and returns what it printed.
func command(t *testing.T, stdin, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...) // cleans up, too
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kube, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	cmd.Stdin = strings.NewReader(stdin)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, problems.String())
	}
	return out.String(), err
}

// helm runs Helm, which must succeed.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t, "", helmBin, args...)
	must(t, err)
	return out
}

// kubectl runs kubectl, which must succeed.
func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := command(t, stdin, filepath.Join(assets, "kubectl"), args...)
	must(t, err)
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until check returns no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, errors.Join(last, err))
	}
}
