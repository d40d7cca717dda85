package effective_test

import (
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestTheResetOfCircuitsIsAnAnnotation(t *testing.T) {
	longest := strings.Repeat("a", v1alpha1.MaxResetToken)
	for name, tc := range map[string]struct {
		value string
		ok    bool
	}{
		"a time":             {"2026-03-01T12:00:00+01:00", true},
		"a number":           {"1772366400", true},
		"a ticket":           {"OPS-17_again.2", true},
		"the longest":        {longest, true},
		"too long":           {longest + "a", false},
		"a line break":       {"a\nb", false},
		"a final line break": {"a\n", false},
		"a space":            {"now please", false},
		"a quote":            {`a"b`, false},
		"another alphabet":   {"сейчас", false},
		"no first letter":    {"-a", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := decode[v1alpha1.BridgePolicy](t, map[string]any{
				"metadata": map[string]any{"name": "chat", "annotations": map[string]any{v1alpha1.AnnotationResetCircuits: tc.value}},
				"spec": map[string]any{"accountPoolRef": map[string]any{"name": "team"}, "replicas": 1,
					"clients": map[string]any{"keysSecretRef": map[string]any{"name": "keys"}}},
			})
			made, errs := effective.Bridge(b, bundle.Pool{}, builtIn(t))
			if len(errs) > 0 {
				t.Errorf("an annotation made the policy unacceptable: %v", errs)
			}
			warnings := effective.Warnings(b, bundle.Pool{})
			switch {
			case tc.ok && (made.ResetCircuits != tc.value || len(warnings) > 0):
				t.Errorf("proxies are told %q, warnings %v", made.ResetCircuits, warnings)
			case !tc.ok && (made.ResetCircuits != "" || len(warnings) != 1):
				t.Errorf("proxies are told %q, warnings %v", made.ResetCircuits, warnings)
			case !tc.ok:
				w := warnings[0]
				if w.Reason != v1alpha1.ReasonInvalidAnnotation || strings.Contains(w.Message, tc.value) || len(w.Message) > 512 ||
					!strings.Contains(w.Message, v1alpha1.AnnotationResetCircuits) || !strings.Contains(w.Message, "set it to") {
					t.Errorf("the warning must name the annotation and the way out, not the value: %+v", w)
				}
			}
		})
	}
}

func TestWithoutTheAnnotationNothingChanges(t *testing.T) {
	b := &v1alpha1.BridgePolicy{}
	if w := effective.AnnotationWarnings(b); len(w) > 0 {
		t.Error(w)
	}
	b.Annotations = map[string]string{v1alpha1.AnnotationResetCircuits: ""}
	if w := effective.AnnotationWarnings(b); len(w) > 0 || effective.ResetToken(b) != "" {
		t.Error("an empty value is as good as none:", w)
	}
	// A bundle without a reset is what it was before there were resets, so that
	// an upgraded operator rewrites nothing.
	raw, err := bundle.Bundle{}.Encode()
	if err != nil || strings.Contains(string(raw), "resetCircuits") {
		t.Errorf("%s %v", raw, err)
	}
}
