package effective_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// TestInvariants: relations in which at least one number is a default. Each has
// one case at the edge that holds and one beyond it that does not.
func TestInvariants(t *testing.T) {
	for name, tc := range map[string]struct {
		spec  string
		field string
		says  string
	}{
		"base backoff": {"retryCircuit: {baseBackoffSeconds: 600}", "", ""},
		"base backoff, beyond": {
			"retryCircuit: {baseBackoffSeconds: 601}",
			"spec.retryCircuit.baseBackoffSeconds",
			"baseBackoffSeconds (601) must be at most maxBackoffSeconds (600)",
		},
		"clean close": {"retryCircuit: {cleanCloseMaxBackoffSeconds: 600}", "", ""},
		"clean close, beyond": {
			"retryCircuit: {cleanCloseMaxBackoffSeconds: 601}",
			"spec.retryCircuit.cleanCloseMaxBackoffSeconds",
			"cleanCloseMaxBackoffSeconds (601) must be at most maxBackoffSeconds (600)",
		},
		"state TTL": {"retryCircuit: {stateTTLSeconds: 660}", "", ""},
		"state TTL, beyond": {
			"retryCircuit: {stateTTLSeconds: 659}",
			"spec.retryCircuit.stateTTLSeconds",
			"stateTTLSeconds (659) must be at least maxBackoffSeconds (600) + halfOpenLeaseSeconds (60)",
		},
		"open": {"breaker: {openSeconds: 300}", "", ""},
		"open, beyond": {
			"breaker: {openSeconds: 301}",
			"spec.breaker.openSeconds",
			"openSeconds (301) must be at most maxOpenSeconds (300)",
		},
		"probe verdict": {"breaker: {probeVerdictSeconds: 300}", "", ""},
		"probe verdict, beyond": {
			"breaker: {probeVerdictSeconds: 301}",
			"spec.breaker.probeVerdictSeconds",
			"probeVerdictSeconds (301) must be at most maxOpenSeconds (300)",
		},
		"ejection": {"ejection: {baseSeconds: 600}", "", ""},
		"ejection, beyond": {
			"ejection: {baseSeconds: 601}",
			"spec.ejection.baseSeconds",
			"baseSeconds (601) must be at most maxSeconds (600)",
		},
		"first event": {"deadlines: {firstEventSeconds: 11}", "", ""},
		"first event, beyond": {
			"deadlines: {firstEventSeconds: 10}",
			"spec.deadlines.firstEventSeconds",
			"firstEventSeconds (10) must be more than connectSeconds (5) + tlsSeconds (5)",
		},
		"keepalive": {"deadlines: {keepaliveSeconds: 299}", "", ""},
		"keepalive, beyond": {
			"deadlines: {keepaliveSeconds: 300}",
			"spec.deadlines.keepaliveSeconds",
			"keepaliveSeconds (300) must be less than idleSeconds (300)",
		},
		"connect": {"deadlines: {requestSeconds: 31}", "", ""},
		"connect, beyond": {
			"deadlines: {requestSeconds: 5}, bulkheads: [{lane: HTTP, mode: Unlimited}]",
			"spec.deadlines.connectSeconds",
			"connectSeconds (5) must be less than requestSeconds (5)",
		},
		"queue": {"deadlines: {requestSeconds: 31}", "", ""},
		"queue, beyond": {
			"deadlines: {requestSeconds: 30}",
			"spec.bulkheads[HTTP].queueTimeoutSeconds",
			"queueTimeoutSeconds (30) of lane HTTP must be less than deadlines.requestSeconds (30)",
		},
		"queue, unlimited": {"deadlines: {requestSeconds: 6}, bulkheads: [{lane: HTTP, mode: Unlimited}]", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := decodeText[v1alpha1.CircuitPolicy](t, "metadata: {name: patient}\nspec: {"+tc.spec+"}")
			_, errs := effective.Circuit(c)
			expect(t, errs, tc.field, tc.says)
		})
	}
}

func TestBridgeInvariants(t *testing.T) {
	for name, tc := range map[string]struct {
		spec    string
		request int // seconds, of the circuit policy
		field   string
		says    string
	}{
		"drain deadline": {"rollout: {type: BlueGreen, blueGreen: {drainDeadlineSeconds: 60}}", 60, "", ""},
		"drain deadline, beyond": {
			"rollout: {type: BlueGreen, blueGreen: {drainDeadlineSeconds: 60}}",
			61,
			"spec.rollout.blueGreen.drainDeadlineSeconds",
			"drainDeadlineSeconds (60) must be at least deadlines.requestSeconds (61)",
		},
		"drain deadline, none": {"rollout: {type: BlueGreen, blueGreen: {drainDeadlineSeconds: 60}}", 0, "", ""},
		"drain deadline, unset": {
			"",
			21601,
			"spec.rollout.blueGreen.drainDeadlineSeconds",
			"drainDeadlineSeconds (21600) must be at least deadlines.requestSeconds (21601)",
		},
		"rolling update": {"rollout: {type: RollingUpdate}", 21601, "", ""},
		"pod grace":      {"drain: {podGraceSeconds: 70}", 0, "", ""},
		"pod grace, beyond": {
			"drain: {podGraceSeconds: 69}",
			0,
			"spec.drain.podGraceSeconds",
			"podGraceSeconds (69) must be at least preStopSeconds (15) + endpointLagSeconds (15) + 40",
		},
		"lease": {"activation: {renewDeadlineSeconds: 20}", 0, "", ""},
		"lease, beyond": {
			"activation: {renewDeadlineSeconds: 21}",
			0,
			"spec.activation.leaseDurationSeconds",
			"leaseDurationSeconds (30) must be at least 1.5 times renewDeadlineSeconds (21)",
		},
		"retry period": {"activation: {retryPeriodSeconds: 6}", 0, "", ""},
		"retry period, beyond": {
			"activation: {retryPeriodSeconds: 7}",
			0,
			"spec.activation.renewDeadlineSeconds",
			"renewDeadlineSeconds (20) must be at least 3 times retryPeriodSeconds (7)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := bridge(t, tc.spec)
			circuit := builtIn(t)
			circuit.Deadlines.RequestSeconds = tc.request
			_, errs := effective.Bridge(b, bundle.Pool{}, circuit)
			expect(t, errs, tc.field, tc.says)
		})
	}
}

// bridge is a minimal BridgePolicy with some more of its spec.
func bridge(t *testing.T, spec string) *v1alpha1.BridgePolicy {
	t.Helper()
	text := "metadata: {name: chat}\nspec: {accountPoolRef: {name: team}, clients: {keysSecretRef: {name: k}}"
	if spec != "" {
		text += ", " + spec
	}
	return decodeText[v1alpha1.BridgePolicy](t, text+"}")
}

func expect(t *testing.T, errs field.ErrorList, at, says string) {
	t.Helper()
	if at == "" {
		if len(errs) != 0 || effective.Reason(errs) != v1alpha1.ReasonValid || effective.Message(errs) != "" {
			t.Errorf("refused: %v", errs)
		}
		return
	}
	if len(errs) != 1 || errs[0].Field != at || !strings.HasPrefix(errs[0].Detail, says) {
		t.Fatalf("got  %v\nwant %s: %s", errs, at, says)
	}
	if got := effective.Reason(errs); got != v1alpha1.ReasonInvariantViolated {
		t.Errorf("reason %s", got)
	}
	if got := effective.Message(errs); !strings.Contains(got, says) {
		t.Errorf("message %q", got)
	}
}

func TestReason(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want string }{
		"valid":     {"", v1alpha1.ReasonValid},
		"invariant": {"drain: {podGraceSeconds: 69}", v1alpha1.ReasonInvariantViolated},
		"reserved":  {"pod: {labels: {causeway.dev/slot: x}}", v1alpha1.ReasonReservedLabel},
		"invalid":   {"pod: {labels: {causeway.dev/slot: x}}, replicas: 1001", v1alpha1.ReasonInvalidSpec},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := effective.Bridge(bridge(t, tc.spec), bundle.Pool{}, builtIn(t))
			if got := effective.Reason(errs); got != tc.want {
				t.Errorf("got %s, want %s: %v", got, tc.want, errs)
			}
		})
	}
}

func TestMessageIsShort(t *testing.T) {
	errs := field.ErrorList{
		field.Invalid(field.NewPath("spec"), field.OmitValueType{}, strings.Repeat("ü", 400)),
		field.Required(field.NewPath("spec", "a"), ""),
	}
	got := effective.Message(errs)
	if len(got) > 512 || !strings.HasSuffix(got, "ü... (and 1 more)") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// TestHashDoesNotDependOnOrder of bulkheads in the manifest.
func TestHashDoesNotDependOnOrder(t *testing.T) {
	var hashes []string
	for _, list := range []string{
		"[{lane: Media, mode: Unlimited}, {lane: HTTP, mode: Limited, maxConcurrent: 9}]",
		"[{lane: HTTP, mode: Limited, maxConcurrent: 9}, {lane: Media, mode: Unlimited}]",
	} {
		circuit, errs := effective.Circuit(decodeText[v1alpha1.CircuitPolicy](t, "metadata: {name: p}\nspec: {bulkheads: "+list+"}"))
		if len(errs) != 0 {
			t.Fatal(errs)
		}
		hashes = append(hashes, bundle.Bundle{Circuit: circuit}.Seal().Hash)
	}
	if hashes[0] != hashes[1] {
		t.Errorf("hashes differ: %v", hashes)
	}
}
