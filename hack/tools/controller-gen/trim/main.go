// SPDX-License-Identifier: Apache-2.0

// Command trim drops the descriptions below some fields of a generated
// CustomResourceDefinition: those that Kubernetes wrote for its own types. They
// are half of the size of a CRD that embeds affinity, and a CRD has to stay far
// below the 256 KiB that client-side apply can store.
//
//	trim FILE FIELD...
//
// FIELD is a dotted path of properties, as in spec.pod.affinity. The field keeps
// its own description. A field that does not exist is an error.
package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: trim FILE FIELD...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "trim:", err)
		os.Exit(1)
	}
}

func run(file string, fields []string) error {
	raw, err := os.ReadFile(file) //nolint:gosec // the file is an argument of a build tool
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, schema := range schemas(crd) {
		for _, field := range fields {
			if err := trim(schema, strings.Split(field, ".")); err != nil {
				return fmt.Errorf("%s: %s: %w", file, field, err)
			}
		}
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte("---\n"), out...), 0o644) //nolint:gosec // a manifest, not a secret
}

func schemas(crd map[string]any) []map[string]any {
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	var found []map[string]any
	for _, v := range versions {
		version, _ := v.(map[string]any)
		schema, _ := version["schema"].(map[string]any)
		root, ok := schema["openAPIV3Schema"].(map[string]any)
		if ok {
			found = append(found, root)
		}
	}
	return found
}

func trim(node map[string]any, path []string) error {
	for _, name := range path {
		properties, _ := node["properties"].(map[string]any)
		next, ok := properties[name].(map[string]any)
		if !ok {
			return fmt.Errorf("no field %q", name)
		}
		node = next
	}
	own := node["description"]
	drop(node)
	node["description"] = own
	return nil
}

// drop removes the text, not a property that happens to be called description.
func drop(node any) {
	switch n := node.(type) {
	case map[string]any:
		if _, isText := n["description"].(string); isText {
			delete(n, "description")
		}
		for _, child := range n {
			drop(child)
		}
	case []any:
		for _, child := range n {
			drop(child)
		}
	}
}
