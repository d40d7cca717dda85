// Command objects splits manifests on stdin into one file for each object, in one
// form, so that diff can compare what two tools make of the same intent:
//
//	objects FOLDER <manifests
//
// What tells who installed an object and not what it is, is left out.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// fileMode of what is written: for the eyes of whoever runs this.
const fileMode = 0o600

// installer are labels and annotations that say who installed an object.
var installer = []string{
	"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version",
	"helm.sh/chart", "helm.sh/resource-policy",
}

func main() {
	if len(os.Args) != 2 {
		fail(errors.New("usage: objects FOLDER <manifests"))
	}
	if err := split(os.Stdin, os.Args[1]); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "objects:", err)
	os.Exit(1)
}

// split writes each object of a stream to a file of its own.
func split(in io.Reader, folder string) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		var object map[string]any
		if err := yaml.UnmarshalStrict(text, &object); err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if len(object) == 0 {
			continue // comments alone
		}
		if err := write(object, folder); err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
	}
}

func write(object map[string]any, folder string) error {
	meta, _ := object["metadata"].(map[string]any)
	kind, name := text(object["kind"]), text(meta["name"])
	if kind == "" || name == "" {
		return errors.New("an object needs kind and metadata.name")
	}
	for _, field := range []string{"labels", "annotations"} {
		pairs, _ := meta[field].(map[string]any)
		for _, key := range installer {
			delete(pairs, key)
		}
		if len(pairs) == 0 {
			delete(meta, field)
		}
	}
	parts := []string{kind, text(meta["namespace"]), name}
	path := filepath.Join(folder, strings.Join(parts, "_")+".yaml")
	out, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%s %s is there twice", kind, name)
	}
	return os.WriteFile(path, out, fileMode)
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
