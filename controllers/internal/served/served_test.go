package served

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/openapi"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"
)

// document makes what an API server serves of the CRDs of this repository.
func document(t *testing.T, change func(kind string, schema map[string]any) bool) []byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	schemas := map[string]any{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema map[string]any }
				}
			}
		}
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			t.Fatal(err)
		}
		kind, schema := crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		schema["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": "causeway.dev", "version": "v1alpha1", "kind": kind}}
		if change(kind, schema) {
			schemas["dev.causeway.v1alpha1."+kind] = schema
		}
	}
	raw, err := json.Marshal(map[string]any{"components": map[string]any{"schemas": schemas}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func all(string, map[string]any) bool { return true }

func TestJudge(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(kind string, schema map[string]any) bool
		want   string // part of the error; empty = none
	}{
		"the CRDs of this version": {all, ""},
		"a kind is missing":        {func(kind string, _ map[string]any) bool { return kind != "CircuitPolicy" }, "not served: CircuitPolicy"},
		"a field is missing": {func(kind string, schema map[string]any) bool {
			if kind == "AccountPool" {
				spec := schema["properties"].(map[string]any)["spec"].(map[string]any)
				provider := spec["properties"].(map[string]any)["provider"].(map[string]any)
				delete(provider["properties"].(map[string]any), "caBundle")
			}
			return true
		}, "not served: AccountPool.spec.provider.caBundle"},
		"a field of a list is missing": {func(kind string, schema map[string]any) bool {
			if kind == "AccountPool" {
				spec := schema["properties"].(map[string]any)["spec"].(map[string]any)
				accounts := spec["properties"].(map[string]any)["accounts"].(map[string]any)
				delete(accounts["items"].(map[string]any)["properties"].(map[string]any), "limits")
			}
			return true
		}, "not served: AccountPool.spec.accounts.limits"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Judge(document(t, tc.change))
			if tc.want == "" {
				if err != nil {
					t.Errorf("got %v, want none", err)
				}
				return
			}
			if !errors.Is(err, ErrMissing) || !strings.HasSuffix(err.Error(), tc.want) {
				t.Errorf("got %v, want ErrMissing with %q", err, tc.want)
			}
		})
	}
}

// server counts questions.
type server struct {
	openapi.GroupVersionWithContext
	document []byte
	asked    int
}

func (s *server) PathsWithContext(context.Context) (map[string]openapi.GroupVersionWithContext, error) {
	s.asked++
	if s.document == nil {
		return nil, nil
	}
	return map[string]openapi.GroupVersionWithContext{"apis/causeway.dev/v1alpha1": s}, nil
}

func (s *server) SchemaWithContext(context.Context, string) ([]byte, error) { return s.document, nil }

func TestReadinessFollowsTheServer(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	s := &server{}
	c := NewChecker(s, clock)
	if err := c.Check(t.Context()); !errors.Is(err, ErrMissing) {
		t.Errorf("without CRDs: got %v, want ErrMissing", err)
	}
	s.document = document(t, all)
	clock.SetTime(clock.Now().Add(keepBad))
	for range 10 {
		if err := c.Check(t.Context()); err != nil {
			t.Errorf("with CRDs: got %v, want none", err)
		}
	}
	if s.asked != 2 {
		t.Errorf("asked %d times, want 2: probes must not load the API server", s.asked)
	}
}
