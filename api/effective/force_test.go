package effective_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestT16_ForcedCircuitsAreAnAnnotation(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	many := strings.TrimSuffix(strings.Repeat("h=Open@2026-03-01T12:00:00Z,", v1alpha1.MaxForcedCircuits+1), ",")
	for name, tc := range map[string]struct {
		value string
		want  []bundle.ForcedCircuit
		fault string
	}{
		"a host": {"api.openai.com=Open@2026-03-01T12:00:00Z", []bundle.ForcedCircuit{{Route: "api.openai.com", State: "Open", Until: noon}}, ""},
		"two, one of them a route with a port": {
			"chatgpt.com/codex-responses/websocket=Closed@2026-03-01T13:00:00+01:00, 10.0.0.1:8080=Open@2026-03-01T12:00:00Z",
			[]bundle.ForcedCircuit{{Route: "chatgpt.com/codex-responses/websocket", State: "Closed", Until: noon}, {Route: "10.0.0.1:8080", State: "Open", Until: noon}}, ""},
		"no end":           {"api.openai.com=Open", nil, "entry 1 has no end"},
		"a duration":       {"api.openai.com=Open@60s", nil, "entry 1 has no end"},
		"no state":         {"api.openai.com", nil, "entry 1 has a state that"},
		"another state":    {"a=Open@2026-03-01T12:00:00Z,b=Ajar@2026-03-01T12:00:00Z", nil, "entry 2 has a state that"},
		"half a route":     {"api.openai.com/responses=Open@2026-03-01T12:00:00Z", nil, "entry 1 names no route"},
		"a secret":         {"sk-CANARY x=Open@2026-03-01T12:00:00Z", nil, "entry 1 names no route"},
		"a comma too many": {"a=Open@2026-03-01T12:00:00Z,", nil, "entry 2 names no route"},
		"too many":         {many, nil, "more than 16"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.BridgePolicy{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationForceCircuits: tc.value}}}
			if diff := cmp.Diff(tc.want, effective.ForcedCircuits(b)); diff != "" {
				t.Error(diff)
			}
			warnings := effective.AnnotationWarnings(b)
			if tc.fault == "" {
				if len(warnings) > 0 {
					t.Errorf("warnings %v of what can be used", warnings)
				}
				return
			}
			if len(warnings) != 1 || warnings[0].Reason != v1alpha1.ReasonInvalidAnnotation {
				t.Fatalf("warnings %v", warnings)
			}
			for _, part := range []string{v1alpha1.AnnotationForceCircuits, tc.fault, "set it to"} {
				if m := warnings[0].Message; !strings.Contains(m, part) || strings.Contains(m, "CANARY") || len(m) > 512 {
					t.Errorf("%q does not say %q, or says too much", m, part)
				}
			}
		})
	}
	both := &v1alpha1.BridgePolicy{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		v1alpha1.AnnotationForceCircuits: "x", v1alpha1.AnnotationResetCircuits: "no token"}}}
	if w := effective.AnnotationWarnings(both); len(w) != 2 {
		t.Error("two bad annotations are", len(w), "warnings:", fmt.Sprint(w))
	}
	raw, err := bundle.Bundle{}.Encode()
	if err != nil || strings.Contains(string(raw), "forceCircuits") {
		t.Errorf("a bundle without a force is no longer what it was: %s %v", raw, err)
	}
}
