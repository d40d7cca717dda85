package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// defaultNamespace is where kubectl would put an object that names none.
const defaultNamespace = "default"

// maxListDepth bounds Lists of Lists.
const maxListDepth = 4

const kindSecret = "Secret"

// id names an object as references do.
type id struct{ namespace, name string }

func (i id) String() string { return i.namespace + "/" + i.name }

// found is one object and where it was written.
type found[T any] struct {
	where  string // "FILE, document N: Kind/name"
	object T
}

type (
	foundPool    = found[*v1alpha1.AccountPool]
	foundCircuit = found[*v1alpha1.CircuitPolicy]
	foundBridge  = found[*v1alpha1.BridgePolicy]
	foundSecret  = found[map[string][]byte]
)

// manifests are the objects of a folder.
type manifests struct {
	pools    map[id]foundPool
	circuits map[id]foundCircuit
	bridges  map[id]foundBridge
	secrets  map[id]foundSecret
	// ignored says which documents are not ours.
	ignored []string
}

func newManifests() *manifests {
	return &manifests{
		pools:    map[id]foundPool{},
		circuits: map[id]foundCircuit{},
		bridges:  map[id]foundBridge{},
		secrets:  map[id]foundSecret{},
	}
}

// add decodes all documents of one file. It returns all errors, each with file,
// document, object and field, and none with a value of a Secret.
func (m *manifests) add(file string, raw []byte) error {
	documents, err := split(file, raw)
	errs := []error{err}
	for _, d := range documents {
		errs = append(errs, m.addObject(d.where, d.json, 0))
	}
	return errors.Join(errs...)
}

// header is what tells objects apart. Fields of a wrong type stay empty; the
// strict decoding says so later.
type header struct {
	apiVersion, kind, name string
	items                  []json.RawMessage
	isList                 bool
}

func readHeader(raw []byte) (header, bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return header{}, false
	}
	text := func(raw json.RawMessage) string {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return s
	}
	var h header
	var meta map[string]json.RawMessage
	if json.Unmarshal(fields["metadata"], &meta) == nil {
		h.name = text(meta["name"])
	}
	h.apiVersion, h.kind = text(fields["apiVersion"]), text(fields["kind"])
	if items, ok := fields["items"]; ok && strings.HasSuffix(h.kind, "List") {
		h.isList = json.Unmarshal(items, &h.items) == nil
	}
	return h, true
}

func (m *manifests) addObject(where string, raw []byte, depth int) error {
	h, isObject := readHeader(raw)
	switch {
	case !isObject:
		return fmt.Errorf("%s: not a Kubernetes object: begin with apiVersion, kind and metadata", where)
	case h.apiVersion == "" || h.kind == "":
		return fmt.Errorf("%s: apiVersion or kind is missing: every object begins with both", where)
	case h.isList && depth < maxListDepth:
		errs := make([]error, 0, len(h.items))
		for i, item := range h.items {
			errs = append(errs, m.addObject(fmt.Sprintf("%s: items[%d]", where, i), item, depth+1))
		}
		return errors.Join(errs...)
	}
	where = fmt.Sprintf("%s: %s/%s", where, shown(h.kind), shown(h.name))
	group, _, _ := strings.Cut(h.apiVersion, "/")
	switch {
	case h.apiVersion == v1alpha1.GroupVersion.String():
		return m.addOurs(where, h, raw)
	case group == v1alpha1.GroupName || ours(h.kind):
		return fmt.Errorf("%s: apiVersion: not known for this kind: use %s", where, v1alpha1.GroupVersion)
	case h.apiVersion == "v1" && h.kind == kindSecret:
		return m.addSecret(where, raw)
	default:
		m.ignored = append(m.ignored, where+" is ignored: a proxy reads AccountPool, CircuitPolicy, BridgePolicy and Secret")
		return nil
	}
}

func ours(kind string) bool {
	switch kind {
	case v1alpha1.KindAccountPool, v1alpha1.KindCircuitPolicy, v1alpha1.KindBridgePolicy, v1alpha1.KindBridgeReplica:
		return true
	}
	return false
}

func (m *manifests) addOurs(where string, h header, raw []byte) error {
	switch h.kind {
	case v1alpha1.KindAccountPool:
		var o v1alpha1.AccountPool
		return keep(m.pools, where, &o, &o.ObjectMeta, decodeStrict(raw, &o))
	case v1alpha1.KindCircuitPolicy:
		var o v1alpha1.CircuitPolicy
		return keep(m.circuits, where, &o, &o.ObjectMeta, decodeStrict(raw, &o))
	case v1alpha1.KindBridgePolicy:
		var o v1alpha1.BridgePolicy
		return keep(m.bridges, where, &o, &o.ObjectMeta, decodeStrict(raw, &o))
	case v1alpha1.KindBridgeReplica:
		m.ignored = append(m.ignored, where+" is ignored: it is a report, not a setting")
		return nil
	default:
		return fmt.Errorf("%s: kind: not known: use AccountPool, CircuitPolicy or BridgePolicy", where)
	}
}

// keep files an object under its name, unless it is broken or there already.
func keep[T any](into map[id]found[T], where string, object T, meta *metav1.ObjectMeta, problems []string) error {
	if len(problems) > 0 {
		errs := make([]error, len(problems))
		for i, p := range problems {
			errs[i] = fmt.Errorf("%s: %s", where, p)
		}
		return errors.Join(errs...)
	}
	if meta.Name == "" {
		return fmt.Errorf("%s: metadata.name: missing: give the object a name", where)
	}
	if meta.Namespace == "" {
		meta.Namespace = defaultNamespace
	}
	key := id{meta.Namespace, meta.Name}
	if earlier, twice := into[key]; twice {
		return fmt.Errorf("%s: metadata.name: also in %s: keep one of them", where, earlier.where)
	}
	into[key] = found[T]{where: where, object: object}
	return nil
}

// decodeStrict decodes JSON and returns what is wrong, by field.
func decodeStrict(raw []byte, into any) []string {
	strict, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return []string{typeProblem(raw, into)}
	}
	problems := make([]string, 0, len(strict))
	for _, e := range strict {
		var f kjson.FieldError
		switch {
		case !errors.As(e, &f):
			problems = append(problems, "a field is not known or set twice")
		case strings.HasPrefix(e.Error(), "duplicate"):
			problems = append(problems, shownPath(f.FieldPath())+": set twice: remove one")
		default:
			problems = append(problems, shownPath(f.FieldPath())+": unknown field: check its spelling and its indentation")
		}
	}
	return problems
}

// typeProblem says which field has a value of the wrong type. Only the standard
// decoder tells that apart from its text, which may quote the value.
func typeProblem(raw []byte, into any) string {
	var wrong *json.UnmarshalTypeError
	if !errors.As(json.Unmarshal(raw, into), &wrong) || wrong.Field == "" {
		return "a value does not have the form of its field: times are RFC 3339, quantities like 500m or 1Gi"
	}
	got, _, _ := strings.Cut(wrong.Value, " ") // a number may follow
	return fmt.Sprintf("%s: must be %s, is %s", shownPath(wrong.Field), wanted(wrong.Type.Kind().String()), got)
}

func wanted(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "a whole number"
	case kind == "string":
		return "text"
	case kind == "slice":
		return "a list"
	case kind == "map", kind == "struct", kind == "ptr":
		return "an object with fields"
	default:
		return "of another type"
	}
}

// Names are shown if they look like names: what stands in a wrong place may be
// a key that was pasted there.
var (
	nameLike = regexp.MustCompile(`^[A-Za-z0-9][-.A-Za-z0-9]{0,62}$`)
	pathLike = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,39}(\[[0-9]{1,6}\])*$`)
)

func shown(name string) string {
	if !nameLike.MatchString(name) {
		return "?"
	}
	return name
}

func shownPath(path string) string {
	steps := strings.Split(path, ".")
	for i, s := range steps {
		if !pathLike.MatchString(s) {
			steps[i] = "?"
		}
	}
	return strings.Join(steps, ".")
}
