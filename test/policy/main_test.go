package policy

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/test/apiserver"
)

// patience bounds every wait; it is long because a busy machine must not fail a test.
const patience = 30 * time.Second

var (
	// config leads to the one API server of all tests of the package, with every right.
	config *rest.Config
	scheme = runtime.NewScheme()
	admin  client.Client
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	// Policies ask who may do what, and so does the server.
	environment.ControlPlane.GetAPIServer().Configure().Set("authorization-mode", "RBAC")
	return apiserver.Run(m, environment, func(c *rest.Config) (func(), error) {
		config = c
		return func() {}, nil
	})
}

// installed has the policies installed and waits until they are in force. The first
// test does it and not TestMain: go's cache of results notices a change of a file that
// a test has read, and of no other.
var installed = sync.OnceValue(func() error {
	ctx := context.Background()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	var err error
	if admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "policy", "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no files: %w", err)
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		if err := install(ctx, file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return inForce(ctx)
})

func install(ctx context.Context, file string) error {
	raw, err := os.ReadFile(file) //nolint:gosec // a file of this repository
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(raw)), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); err == io.EOF { //nolint:errorlint // the decoder does not wrap it
			return nil
		} else if err != nil {
			return err
		}
		if err := admin.Create(ctx, o, client.FieldValidation("Strict")); err != nil {
			return err
		}
	}
}

// inForce waits until the server knows the policies: it reads them from a cache.
func inForce(ctx context.Context) error {
	broken := lease("default", "canary-activation", state{epoch: "nonsense"})
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := admin.Create(ctx, broken.DeepCopy(), client.DryRunAll)
		return apierrors.IsInvalid(err), nil
	})
}

// namespace makes one for a test.
func namespace(t *testing.T) string {
	t.Helper()
	if err := installed(); err != nil {
		t.Fatal("installing config/policy:", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "policy-"}}
	must(t, admin.Create(t.Context(), ns))
	return ns.Name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// expect holds an answer of the server to the words it must contain; none = accepted.
func expect(t *testing.T, err error, words string) {
	t.Helper()
	switch {
	case words == "" && err != nil:
		t.Errorf("refused: %v", err)
	case words != "" && err == nil:
		t.Errorf("accepted; want a refusal with %q", words)
	case words != "" && !strings.Contains(err.Error(), words):
		t.Errorf("refused with other words:\n%v\nwant %q", err, words)
	}
}
