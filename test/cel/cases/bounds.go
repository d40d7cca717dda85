package cases

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Bound is a manifest that breaks one bound of the schema.
type Bound struct {
	Name   string
	Object Object
	// Field at which the API server reports it.
	Field string
	// Message of the API server; empty if its wording holds the value.
	Message string
	// Missing: a required field was left out; Go may report what is below it.
	Missing bool
}

// Schema is the schema of a kind as the generated CRD has it.
func Schema(tb testing.TB, crds, kind string) Object {
	tb.Helper()
	found, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(found) == 0 {
		tb.Fatalf("no CRDs in %s: %v", crds, err)
	}
	for _, file := range found {
		raw, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema Object }
				}
			}
		}
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		if crd.Spec.Names.Kind == kind {
			return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
	}
	tb.Fatalf("no CRD of %s in %s", kind, crds)
	return nil
}

// Bounds breaks every bound of the schema below part ("spec" or "status") once,
// in a manifest that is otherwise valid. Types of Kubernetes are left to
// Kubernetes.
func Bounds(schema, manifest Object, part string) []Bound {
	w := &walker{manifest: manifest}
	node, _ := schema["properties"].(Object)[part].(Object)
	if value, ok := manifest[part]; ok {
		w.walk(node, value, trail{part})
	}
	return w.found
}

// Edges sets every number of the schema below part to each of its bounds, where
// it has to be fine, in a manifest that is otherwise valid.
func Edges(schema, manifest Object, part string) []Bound {
	w := &walker{manifest: manifest, edges: true}
	node, _ := schema["properties"].(Object)[part].(Object)
	if value, ok := manifest[part]; ok {
		w.walk(node, value, trail{part})
	}
	return w.found
}

// trail is a path of keys and indices into a manifest.
type trail []any

func (t trail) with(step any) trail { return append(slices.Clone(t), step) }

func (t trail) String() string {
	var b strings.Builder
	for i, step := range t {
		switch s := step.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", s)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, s)
		}
	}
	return b.String()
}

type walker struct {
	manifest Object
	edges    bool
	found    []Bound
}

// foreign are fields whose inside is a type of Kubernetes.
var foreign = []string{"spec.pod.affinity", "spec.pod.tolerations", "spec.pod.topologySpreadConstraints", "status.conditions"}

func (w *walker) walk(schema Object, value any, at trail) {
	if w.edges {
		w.edge(schema, at)
	} else {
		w.scalar(schema, value, at)
	}
	if slices.Contains(foreign, at.String()) {
		if list, ok := value.([]any); ok {
			w.list(schema, list, at)
		}
		return
	}
	switch v := value.(type) {
	case []any:
		w.list(schema, v, at)
		items, _ := schema["items"].(Object)
		for i, item := range v {
			w.walk(items, item, at.with(i))
		}
	case Object:
		w.object(schema, v, at)
	}
}

func (w *walker) add(name string, at trail, value any, message string) {
	w.found = append(w.found, Bound{
		Name: at.String() + " " + name, Object: replace(w.manifest, at, value), Field: at.String(), Message: message,
	})
}

func (w *walker) edge(schema Object, at trail) {
	for _, key := range []string{"minimum", "maximum"} {
		if bound, ok := schema[key].(float64); ok {
			w.add(key, at, bound, "")
		}
	}
}

func (w *walker) scalar(schema Object, value any, at trail) {
	_, isText := value.(string)
	if low, ok := schema["minimum"].(float64); ok {
		w.add("too small", at, low-1, fmt.Sprintf("should be greater than or equal to %.0f", low))
	}
	if high, ok := schema["maximum"].(float64); ok {
		w.add("too large", at, high+1, fmt.Sprintf("should be less than or equal to %.0f", high))
	}
	if choices, ok := schema["enum"].([]any); ok && isText {
		var known []string
		for _, c := range choices {
			known = append(known, fmt.Sprintf("%q", c))
		}
		w.add("unknown", at, "Bogus", "supported values: "+strings.Join(known, ", "))
		return // the length of a choice is that of the choices
	}
	if most, ok := schema["maxLength"].(float64); ok && isText {
		w.add("too long", at, strings.Repeat("a", int(most)+1), fmt.Sprintf("may not be more than %.0f bytes", most))
	}
	if least, ok := schema["minLength"].(float64); ok && isText {
		w.add("empty", at, "", fmt.Sprintf("should be at least %.0f chars long", least))
	}
}

func (w *walker) list(schema Object, value []any, at trail) {
	if w.edges {
		return
	}
	if most, ok := schema["maxItems"].(float64); ok && len(value) > 0 {
		long := make([]any, 0, int(most)+1)
		for range int(most) + 1 {
			long = append(long, value[0])
		}
		w.add("too many", at, long, fmt.Sprintf("must have at most %.0f items", most))
	}
	if _, ok := schema["minItems"].(float64); ok {
		w.add("none", at, []any{}, "should have at least 1 items")
	}
}

func (w *walker) object(schema, value Object, at trail) {
	if !w.edges {
		w.shape(schema, at)
	}
	properties, _ := schema["properties"].(Object)
	for _, name := range slices.SortedFunc(maps.Keys(value), cmp.Compare[string]) {
		if property, ok := properties[name].(Object); ok {
			w.walk(property, value[name], at.with(name))
		}
	}
}

func (w *walker) shape(schema Object, at trail) {
	if most, ok := schema["maxProperties"].(float64); ok {
		long := Object{}
		for i := range int(most) + 1 {
			long[fmt.Sprintf("k%d", i)] = "1"
		}
		w.add("too many", at, long, fmt.Sprintf("must have at most %.0f items", most))
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		child := at.with(name)
		w.found = append(w.found, Bound{
			Name: child.String() + " missing", Object: replace(w.manifest, child, nil),
			Field: child.String(), Message: "Required value", Missing: true,
		})
	}
}

// replace is a copy of a manifest with one value changed; nil removes it.
func replace(manifest Object, at trail, value any) Object {
	out := Copy(manifest)
	var node any = out
	for _, step := range at[:len(at)-1] {
		switch s := step.(type) {
		case int:
			node = node.([]any)[s] //nolint:forcetypeassert // the trail was made from the manifest
		default:
			node = node.(Object)[fmt.Sprint(s)] //nolint:forcetypeassert // the trail was made from the manifest
		}
	}
	switch last := at[len(at)-1].(type) {
	case int:
		node.([]any)[last] = value //nolint:forcetypeassert // the trail was made from the manifest
	default:
		if value == nil {
			delete(node.(Object), fmt.Sprint(last)) //nolint:forcetypeassert // the trail was made from the manifest
		} else {
			node.(Object)[fmt.Sprint(last)] = value //nolint:forcetypeassert // the trail was made from the manifest
		}
	}
	return out
}

// Fields lists the fields of a schema below part, with "[]" for list elements;
// types of Kubernetes are one field.
func Fields(schema Object, part string) []string {
	var found []string
	node, _ := schema["properties"].(Object)[part].(Object)
	listFields(node, part, &found)
	slices.Sort(found)
	return found
}

func listFields(schema Object, at string, found *[]string) {
	*found = append(*found, at)
	if slices.Contains(foreign, at) {
		return
	}
	if items, ok := schema["items"].(Object); ok && items["type"] == "object" {
		listFields(items, at+"[]", found)
	}
	properties, _ := schema["properties"].(Object)
	for name, property := range properties {
		if child, ok := property.(Object); ok {
			listFields(child, at+"."+name, found)
		}
	}
}

// Has says whether a manifest sets a field that Fields named.
func Has(value any, field string) bool {
	name, rest, deeper := strings.Cut(field, ".")
	name, listed := strings.CutSuffix(name, "[]")
	object, ok := value.(Object)
	if !ok {
		return false
	}
	next, ok := object[name]
	if !ok {
		return false
	}
	if !listed {
		return !deeper || Has(next, rest)
	}
	elements, _ := next.([]any)
	return slices.ContainsFunc(elements, func(e any) bool { return !deeper || Has(e, rest) })
}
