// Package cases is the one table of rules of the custom resources. Package cel
// holds the API server to it and package effective holds Go to it, so that the
// two cannot drift.
//
// Each file is about one kind and holds
//
//	base    a minimal valid manifest
//	full    valid manifests that together set every field of the spec
//	status  a status that sets every field
//	cases   changes of base
//
// A case is a merge patch of base (null removes) and what is wrong with the
// result: the field and the message of the rule, or schema instead of message if
// it is the wording of the API server. A case without either is valid.
package cases

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"testing"

	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// Object is a manifest.
type Object = map[string]any

// Table is all about one kind.
type Table struct {
	Kind   string   `json:"kind"`
	Base   Object   `json:"base"`
	Full   []Object `json:"full"`
	Status Object   `json:"status"`
	Cases  []Case   `json:"cases"`
}

// Case is one change of Base.
type Case struct {
	Name string `json:"name"`
	Set  Object `json:"set"`
	// Field is what the API server names; empty means that the case is valid.
	Field string `json:"field"`
	// GoField is what Go names, if it is another one.
	GoField string `json:"goField"`
	// Message is the exact message of a rule, in the API server and in Go.
	Message string `json:"message"`
	// Schema is the exact message of the API server; Go has its own words.
	Schema string `json:"schema"`
	// CreateOnly: as an update of Base another rule speaks first.
	CreateOnly bool `json:"createOnly"`
	// UpdateOnly: a transition rule, which Go does not judge.
	UpdateOnly bool `json:"updateOnly"`
}

// Valid says whether the case is to be accepted.
func (c Case) Valid() bool { return c.Field == "" }

// Load reads all tables, in a stable order.
func Load(tb testing.TB) []Table {
	tb.Helper()
	entries, err := files.ReadDir(".")
	if err != nil {
		tb.Fatal(err)
	}
	var tables []Table
	for _, entry := range entries {
		raw, err := files.ReadFile(path.Base(entry.Name()))
		if err != nil {
			tb.Fatal(err)
		}
		var table Table
		if err := yaml.UnmarshalStrict(raw, &table); err != nil {
			tb.Fatalf("%s: %v", entry.Name(), err)
		}
		tables = append(tables, table)
	}
	return tables
}

// Apply is Base with a case applied.
func (t Table) Apply(c Case) Object {
	merged, _ := merge(Copy(t.Base), c.Set).(Object)
	return merged
}

// merge applies an RFC 7396 merge patch.
func merge(target, patch any) any {
	changes, ok := patch.(Object)
	if !ok {
		return patch
	}
	into, ok := target.(Object)
	if !ok {
		into = Object{}
	}
	for key, value := range changes {
		if value == nil {
			delete(into, key)
			continue
		}
		into[key] = merge(into[key], value)
	}
	return into
}

// Copy is a deep copy.
func Copy(o Object) Object {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("a manifest that came from YAML has to marshal: %v", err))
	}
	var out Object
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(fmt.Sprintf("a manifest that was marshalled has to unmarshal: %v", err))
	}
	return out
}
