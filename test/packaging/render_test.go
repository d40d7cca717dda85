package packaging

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// objects are what a chart or a kustomization renders.
type objects []*unstructured.Unstructured

func parse(t *testing.T, text string) objects {
	t.Helper()
	var list objects
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		part, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return list
		}
		must(t, err)
		o := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal(part, &o.Object))
		if len(o.Object) > 0 {
			list = append(list, o)
		}
	}
}

// chart renders charts/causeway with values as of --set.
func chart(t *testing.T, values ...string) objects {
	t.Helper()
	return parse(t, helm(t, template(values...)...))
}

func template(values ...string) []string {
	args := []string{"template", "causeway", "charts/causeway", "--namespace", system}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	return args
}

// refused renders with values that must not do, and returns Helm's words.
func refused(t *testing.T, values ...string) string {
	t.Helper()
	_, err := command(t, "", helmBin, template(values...)...)
	if err == nil {
		t.Fatalf("%v: accepted", values)
	}
	return err.Error()
}

// of are the objects of a kind.
func (list objects) of(kind string) objects {
	var out objects
	for _, o := range list {
		if o.GetKind() == kind {
			out = append(out, o)
		}
	}
	return out
}

// names are NAMESPACE/NAME of each.
func (list objects) names() []string {
	var out []string
	for _, o := range list {
		out = append(out, o.GetNamespace()+"/"+o.GetName())
	}
	return out
}

// as turns an object into its type.
func as[T any](t *testing.T, o *unstructured.Unstructured) *T {
	t.Helper()
	into := new(T)
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true))
	return into
}
