package cel

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/causeway-dev/causeway/test/cel/cases"
)

// maxCRD is the largest CRD in bytes: client-side apply stores a copy in an
// annotation, of which there are at most 256 KiB.
const maxCRD = 100_000

// maxRuleMessage is the longest message of a rule, in characters.
const maxRuleMessage = 120

func TestCRDsAreSmall(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) != 4 {
		t.Fatalf("want 4 CRDs, found %v: %v", files, err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() >= maxCRD {
			t.Errorf("%s has %d bytes, at most %d are allowed", file, info.Size(), maxCRD)
		}
	}
}

var index = regexp.MustCompile(`\[\d+\]`)

// TestEveryRuleHasACase makes sure that a new rule cannot come without its test.
func TestEveryRuleHasACase(t *testing.T) {
	for _, table := range cases.Load(t) {
		tested := map[string]bool{}
		for _, c := range table.Cases {
			tested[index.ReplaceAllString(c.Field, "[]")+": "+c.Message] = true
		}
		eachSchema(cases.Schema(t, crds, table.Kind), "", func(at string, schema cases.Object) {
			rules, _ := schema["x-kubernetes-validations"].([]any)
			for _, r := range rules {
				rule, _ := r.(cases.Object)
				message := fmt.Sprint(rule["message"])
				if at == "" {
					at = "<nil>"
				}
				if !tested[at+": "+message] {
					t.Errorf("%s: no case breaks the rule at %s: %s", table.Kind, at, message)
				}
				if n := utf8.RuneCountInString(message); n > maxRuleMessage {
					t.Errorf("%s: the message at %s has %d characters, at most %d are allowed", table.Kind, at, n, maxRuleMessage)
				}
			}
		})
	}
}

// TestEveryFieldIsSetSomewhere makes sure that TestBounds reaches every bound.
func TestEveryFieldIsSetSomewhere(t *testing.T) {
	for _, table := range cases.Load(t) {
		schema := cases.Schema(t, crds, table.Kind)
		for _, field := range cases.Fields(schema, "spec") {
			set := false
			for _, full := range table.Full {
				set = set || cases.Has(full, field)
			}
			if !set {
				t.Errorf("%s: no full manifest sets %s", table.Kind, field)
			}
		}
		for _, field := range cases.Fields(schema, "status") {
			if !cases.Has(cases.Object{"status": table.Status}, field) {
				t.Errorf("%s: the full status does not set %s", table.Kind, field)
			}
		}
	}
}

// TestHouseRules: every text, list and map has a bound, every list says how it
// merges, and there is no default, boolean or float.
func TestHouseRules(t *testing.T) {
	for _, table := range cases.Load(t) {
		eachSchema(cases.Schema(t, crds, table.Kind), "", func(at string, schema cases.Object) {
			if !strings.HasPrefix(at, "spec") && !strings.HasPrefix(at, "status") || isKubernetes(at) {
				return
			}
			require := func(ok bool, what string) {
				t.Helper()
				if !ok {
					t.Errorf("%s: %s: %s", table.Kind, at, what)
				}
			}
			has := func(key string) bool { _, ok := schema[key]; return ok }
			require(!has("default"), "has a default")
			switch schema["type"] {
			case "boolean", "number":
				require(false, "is a boolean or a float: use an enum or an integer")
			case "string":
				require(has("maxLength") || has("enum") || schema["format"] == "date-time", "has no maxLength")
			case "array":
				require(has("maxItems"), "has no maxItems")
				require(has("x-kubernetes-list-type"), "has no listType")
			case "object":
				require(!has("additionalProperties") || has("maxProperties"), "has no maxProperties")
			}
		})
	}
}

// isKubernetes says whether a field is inside a type that Kubernetes owns, or the
// value of a map, whose size is bounded by a rule.
func isKubernetes(at string) bool {
	for _, prefix := range []string{
		"spec.pod.affinity.", "spec.pod.tolerations[", "spec.pod.topologySpreadConstraints[", "status.conditions[",
	} {
		if strings.HasPrefix(at, prefix) {
			return true
		}
	}
	return strings.HasSuffix(at, "{}")
}

// eachSchema visits a schema and all below it: "a.b" for a property, "[]" for
// list elements, "{}" for values of a map.
func eachSchema(schema cases.Object, at string, visit func(string, cases.Object)) {
	visit(at, schema)
	properties, _ := schema["properties"].(cases.Object)
	for name, p := range properties {
		if property, ok := p.(cases.Object); ok {
			eachSchema(property, strings.TrimPrefix(at+"."+name, "."), visit)
		}
	}
	if items, ok := schema["items"].(cases.Object); ok {
		eachSchema(items, at+"[]", visit)
	}
	if values, ok := schema["additionalProperties"].(cases.Object); ok {
		eachSchema(values, at+"{}", visit)
	}
}
