package cel

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/test/cel/cases"
)

// TestRules creates and updates every case of the table.
func TestRules(t *testing.T) {
	for _, table := range cases.Load(t) {
		t.Run(table.Kind, func(t *testing.T) {
			base := stored(t, table.Base)
			for i, c := range table.Cases {
				t.Run(c.Name, func(t *testing.T) {
					manifest := table.Apply(c)
					want := cause{field: c.Field, message: c.Message + c.Schema}
					if !c.UpdateOnly {
						o := object(manifest)
						if o.GetName() == base.GetName() {
							o.SetName(fmt.Sprintf("case-%d", i))
						}
						judge(t, create(t.Context(), o, client.DryRunAll), c, want)
					}
					if !c.CreateOnly {
						judge(t, update(t, base, manifest), c, want)
					}
				})
			}
		})
	}
}

func judge(t *testing.T, err error, c cases.Case, want cause) {
	t.Helper()
	if !c.Valid() {
		expectExactly(t, err, want)
	} else if err != nil {
		t.Errorf("refused: %v", err)
	}
}

// update is what the API server says to a manifest in the place of base.
func update(t *testing.T, base *unstructured.Unstructured, manifest cases.Object) error {
	t.Helper()
	o := object(manifest)
	o.SetResourceVersion(base.GetResourceVersion())
	return server.Update(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict"))
}

// TestBounds breaks every bound of every schema once, in spec and in status.
func TestBounds(t *testing.T) {
	for _, table := range cases.Load(t) {
		schema := cases.Schema(t, crds, table.Kind)
		for _, full := range table.Full {
			for _, b := range cases.Bounds(schema, full, "spec") {
				t.Run(table.Kind+" "+b.Name, func(t *testing.T) {
					expectAmong(t, create(t.Context(), object(b.Object), client.DryRunAll), cause{b.Field, b.Message})
				})
			}
		}
		t.Run(table.Kind+" status", func(t *testing.T) {
			base := stored(t, table.Base)
			manifest := cases.Copy(table.Base)
			manifest["status"] = table.Status
			if err := updateStatus(t, base, manifest); err != nil {
				t.Fatalf("a full status was refused: %v", err)
			}
			for _, b := range cases.Bounds(schema, manifest, "status") {
				t.Run(b.Name, func(t *testing.T) {
					expectAmong(t, updateStatus(t, base, b.Object), cause{b.Field, b.Message})
				})
			}
		})
	}
}

func updateStatus(t *testing.T, base *unstructured.Unstructured, manifest cases.Object) error {
	t.Helper()
	o := object(manifest)
	o.SetResourceVersion(base.GetResourceVersion())
	return server.Status().Update(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict"))
}

// TestB97_TheServerKeepsWhatWasWritten: a manifest comes back as it went in, with
// nothing defaulted or normalised, so that GitOps tools see no difference.
func TestB97_TheServerKeepsWhatWasWritten(t *testing.T) {
	for _, table := range cases.Load(t) {
		for _, full := range table.Full {
			o := stored(t, full)
			kept := &unstructured.Unstructured{}
			kept.SetGroupVersionKind(o.GroupVersionKind())
			if err := server.Get(t.Context(), client.ObjectKeyFromObject(o), kept); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(cases.Copy(full)["spec"], cases.Copy(kept.Object)["spec"]); diff != "" {
				t.Errorf("%s %s: -written +kept\n%s", table.Kind, o.GetName(), diff)
			}
			if err := update(t, kept, full); err != nil {
				t.Errorf("%s %s: the same manifest once more: %v", table.Kind, o.GetName(), err)
			}
		}
	}
}
