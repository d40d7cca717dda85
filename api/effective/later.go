package effective

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// laterField is a field that is accepted and has no behaviour yet.
type laterField struct {
	// path to the field from the root of the manifest. A list element is chosen
	// by "[*]" (any) or "[key=value]".
	path string
	// unless lists values that do have their behaviour, or that ask for what
	// happens anyway.
	unless []string
}

// later is what manifests may say before it means anything, by kind; at present
// nothing. Whoever makes a field effective deletes its line; the condition
// FullyEffective follows.
var later = map[string][]laterField{}

// NotYetEffective lists the JSON paths that are set in obj, accepted, and without
// behaviour in this version, in a stable order. obj is a pointer to one of the
// kinds of v1alpha1; of any other object nothing is listed.
func NotYetEffective(obj any) []string {
	var kind string
	switch obj.(type) {
	case *v1alpha1.AccountPool:
		kind = v1alpha1.KindAccountPool
	case *v1alpha1.CircuitPolicy:
		kind = v1alpha1.KindCircuitPolicy
	case *v1alpha1.BridgePolicy:
		kind = v1alpha1.KindBridgePolicy
	default:
		return nil
	}
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil // plain types without channels or functions always marshal
	}
	var manifest map[string]any
	if err := json.Unmarshal(raw, &manifest); err != nil {
		return nil
	}
	var found []string
	for _, f := range later[kind] {
		if isSet(manifest, strings.Split(f.path, "."), f.unless) {
			found = append(found, f.path)
		}
	}
	return found
}

func isSet(node map[string]any, path []string, unless []string) bool {
	name, key, listed := strings.Cut(path[0], "[")
	value, ok := node[name]
	if !ok {
		return false
	}
	if listed {
		elements, _ := value.([]any)
		return slices.ContainsFunc(elements, func(e any) bool {
			element, ok := e.(map[string]any)
			return ok && chosen(element, strings.TrimSuffix(key, "]")) && isSetBelow(element, path[1:], unless)
		})
	}
	return isSetBelow(value, path[1:], unless)
}

func isSetBelow(value any, path []string, unless []string) bool {
	if len(path) == 0 {
		return !slices.Contains(unless, fmt.Sprint(value))
	}
	node, ok := value.(map[string]any)
	return ok && isSet(node, path, unless)
}

// chosen says whether a list element matches "*" or "key=value".
func chosen(element map[string]any, selector string) bool {
	key, want, keyed := strings.Cut(selector, "=")
	return !keyed || fmt.Sprint(element[key]) == want
}
