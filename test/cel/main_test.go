package cel

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/causeway-dev/causeway/test/apiserver"
	"github.com/causeway-dev/causeway/test/cel/cases"
)

// crds is where the generated CRDs are, from the folder of this package.
var crds = filepath.Join("..", "..", "config", "crd", "bases")

// server is the one API server of all tests of the package.
var server client.Client

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	environment := &envtest.Environment{CRDDirectoryPaths: []string{crds}, ErrorIfCRDPathMissing: true}
	return apiserver.Run(m, environment, func(config *rest.Config) (func(), error) {
		var err error
		server, err = client.New(config, client.Options{})
		return func() {}, err
	})
}

// object makes a manifest sendable under a name of its own namespace.
func object(manifest cases.Object) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: cases.Copy(manifest)}
	o.SetNamespace(metav1.NamespaceDefault)
	return o
}

func create(ctx context.Context, o *unstructured.Unstructured, opts ...client.CreateOption) error {
	return server.Create(ctx, o, append(opts, client.FieldValidation("Strict"))...)
}

// stored creates an object and removes it with the test.
func stored(t *testing.T, manifest cases.Object) *unstructured.Unstructured {
	t.Helper()
	o := object(manifest)
	if err := create(t.Context(), o); err != nil {
		t.Fatalf("creating %s %s: %v", o.GetKind(), o.GetName(), err)
	}
	t.Cleanup(func() {
		if err := server.Delete(context.WithoutCancel(t.Context()), o); err != nil {
			t.Errorf("deleting %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	})
	return o
}

// cause is one thing that the API server found wrong.
type cause struct{ field, message string }

// value is what the API server writes before the words of a rule.
var value = regexp.MustCompile(`^(Invalid value|Unsupported value|Forbidden)` +
	`(: ("(\\.|[^"\\])*"|[-0-9.]+|true|false|null|\{.*?\}|\[.*?\]))?: `)

// causes are what the API server found wrong, or a failure of the test.
func causes(t *testing.T, err error) []cause {
	t.Helper()
	if err == nil {
		return nil
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.ErrStatus.Details == nil {
		t.Fatalf("not a validation error: %v", err)
	}
	var found []cause
	for _, c := range status.ErrStatus.Details.Causes {
		found = append(found, cause{field: c.Field, message: value.ReplaceAllString(c.Message, "")})
	}
	return found
}

// expectExactly wants one cause and its exact words.
func expectExactly(t *testing.T, err error, want cause) {
	t.Helper()
	got := causes(t, err)
	if len(got) != 1 || got[0] != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// expectAmong wants a cause at a field whose words contain some.
func expectAmong(t *testing.T, err error, want cause) {
	t.Helper()
	got := causes(t, err)
	if !slices.ContainsFunc(got, func(c cause) bool { return c.field == want.field && strings.Contains(c.message, want.message) }) {
		t.Errorf("got  %q\nwant one like %q", got, want)
	}
}
