package effective_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

var samples = filepath.Join("..", "..", "config", "samples")

func sample(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(samples, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestSamples decode without an unknown field, are valid together, resolve all
// their Secrets and hold only what is effective.
func TestSamples(t *testing.T) {
	pool := decodeText[v1alpha1.AccountPool](t, sample(t, "accountpool.yaml"))
	policy := decodeText[v1alpha1.CircuitPolicy](t, sample(t, "circuitpolicy.yaml"))
	bp := decodeText[v1alpha1.BridgePolicy](t, sample(t, "bridgepolicy.yaml"))
	data := map[string]map[string]string{}
	for _, text := range strings.Split(sample(t, "secrets.yaml"), "\n---\n") {
		secret := decodeText[corev1.Secret](t, text)
		data[secret.Name] = secret.StringData
	}

	effectivePool, errs := effective.Pool(pool)
	if len(errs) != 0 {
		t.Errorf("accountpool.yaml: %v", errs)
	}
	circuit, errs := effective.Circuit(policy)
	if len(errs) != 0 {
		t.Errorf("circuitpolicy.yaml: %v", errs)
	}
	b, errs := effective.Bridge(bp, effectivePool, circuit)
	if len(errs) != 0 {
		t.Errorf("bridgepolicy.yaml: %v", errs)
	}
	if _, err := b.Seal().Encode(); err != nil {
		t.Errorf("bundle: %v", err)
	}
	if bp.Spec.AccountPoolRef.Name != pool.Name || bp.Spec.CircuitPolicyRef.Name != policy.Name {
		t.Error("bridgepolicy.yaml refers to other objects than the samples")
	}
	for _, obj := range []any{pool, policy, bp} {
		if later := effective.NotYetEffective(obj); len(later) != 0 {
			t.Errorf("%T holds fields without behaviour: %v", obj, later)
		}
	}
	credentials, problems := effective.Credentials(pool, bp, secrets(data))
	if len(problems) != 0 || len(credentials.Accounts) != 2 || len(credentials.Clients) != 1 {
		t.Errorf("%d accounts, %d clients, %v", len(credentials.Accounts), len(credentials.Clients), problems)
	}
}
