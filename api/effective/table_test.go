package effective_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/test/cel/cases"
)

var crds = filepath.Join("..", "..", "config", "crd", "bases")

// judged is what Go says to a manifest.
func judged(t *testing.T, kind string, manifest cases.Object) field.ErrorList {
	t.Helper()
	var errs field.ErrorList
	switch kind {
	case v1alpha1.KindAccountPool:
		_, errs = effective.Pool(decode[v1alpha1.AccountPool](t, manifest))
	case v1alpha1.KindCircuitPolicy:
		_, errs = effective.Circuit(decode[v1alpha1.CircuitPolicy](t, manifest))
	case v1alpha1.KindBridgePolicy:
		_, errs = effective.Bridge(decode[v1alpha1.BridgePolicy](t, manifest), bundle.Pool{}, builtIn(t))
	default:
		t.Skipf("Go does not judge a %s: only the operator writes it", kind)
	}
	return errs
}

func decode[T any](t *testing.T, manifest any) *T {
	t.Helper()
	raw, err := yaml.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	into := new(T)
	if err := yaml.UnmarshalStrict(raw, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func builtIn(t *testing.T) bundle.Circuit {
	t.Helper()
	circuit, errs := effective.Circuit(nil)
	if len(errs) != 0 {
		t.Fatalf("the built-in profile breaks its own rules: %v", errs)
	}
	return circuit
}

// TestRules holds Go to the table that the API server is held to.
func TestRules(t *testing.T) {
	for _, table := range cases.Load(t) {
		for _, c := range table.Cases {
			if c.UpdateOnly {
				continue // a transition: a folder has no past
			}
			t.Run(table.Kind+" "+c.Name, func(t *testing.T) {
				errs := withoutInvariants(judged(t, table.Kind, table.Apply(c)))
				if c.Valid() {
					if len(errs) != 0 {
						t.Errorf("refused: %v", errs)
					}
					return
				}
				at := c.Field
				if c.GoField != "" {
					at = c.GoField
				}
				found := slices.ContainsFunc(errs, func(e *field.Error) bool {
					return e.Field == at && (c.Message == "" || e.Detail == c.Message)
				})
				if !found {
					t.Errorf("want %s: %s\ngot  %v", at, c.Message, errs)
				}
			})
		}
	}
}

// withoutInvariants drops what the API server cannot know; see TestInvariants.
func withoutInvariants(errs field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(errs, func(e *field.Error) bool { return e.Origin == "invariant" })
}

// TestBounds breaks every bound of the schema once: Go has to see it as well.
func TestBounds(t *testing.T) {
	for _, table := range cases.Load(t) {
		schema := cases.Schema(t, crds, table.Kind)
		for _, full := range table.Full {
			for _, b := range cases.Bounds(schema, full, "spec") {
				t.Run(table.Kind+" "+b.Name, func(t *testing.T) {
					if isUnset(b) {
						t.Skip("an empty text is an unset one")
					}
					errs := judged(t, table.Kind, b.Object)
					found := slices.ContainsFunc(errs, func(e *field.Error) bool {
						return e.Field == b.Field || b.Missing && strings.HasPrefix(e.Field, b.Field)
					})
					if !found {
						t.Errorf("want an error at %s\ngot  %v", b.Field, errs)
					}
				})
			}
		}
	}
}

// TestEdges sets every number to its bounds, where Go must not be stricter.
func TestEdges(t *testing.T) {
	for _, table := range cases.Load(t) {
		schema := cases.Schema(t, crds, table.Kind)
		for _, full := range table.Full {
			for _, b := range cases.Edges(schema, full, "spec") {
				t.Run(table.Kind+" "+b.Name, func(t *testing.T) {
					for _, e := range withoutInvariants(judged(t, table.Kind, b.Object)) {
						if e.Field == b.Field {
							t.Errorf("refused: %v", e)
						}
					}
				})
			}
		}
	}
}

// isUnset says whether a bound is about an optional text that is empty: the types
// cannot tell it from one that was left out, and it means the same.
func isUnset(b cases.Bound) bool {
	return strings.HasSuffix(b.Name, " empty") && !strings.HasSuffix(b.Field, "]") && !strings.HasSuffix(b.Field, ".accountName")
}

func TestFullManifests(t *testing.T) {
	for _, table := range cases.Load(t) {
		for _, full := range table.Full {
			t.Run(table.Kind, func(t *testing.T) {
				if errs := judged(t, table.Kind, full); len(errs) != 0 {
					t.Errorf("refused: %v", errs)
				}
			})
		}
	}
}

func decodeText[T any](t *testing.T, text string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
	return into
}
