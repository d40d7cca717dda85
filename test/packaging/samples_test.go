package packaging

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// TestSamples: the API server takes every sample as it is, and the rules that are not
// in the schema agree with it.
func TestSamples(t *testing.T) {
	kustomizations, err := filepath.Glob(filepath.Join(root, "config", "samples", "*", "kustomization.yaml"))
	must(t, err)
	if len(kustomizations) < 5 {
		t.Fatalf("found only %v", kustomizations)
	}
	text := kubectl(t, "", "kustomize", "config/crd")
	kubectl(t, text, "apply", "--server-side", "-f", "-")
	t.Cleanup(func() { kubectl(t, text, "delete", "--wait", "--timeout=60s", "-f", "-") })
	established(t)
	folders := []string{"config/samples"}
	for _, k := range kustomizations {
		folders = append(folders, "config/samples/"+filepath.Base(filepath.Dir(k)))
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			list := parse(t, kubectl(t, "", "kustomize", folder))
			for _, o := range list {
				o := o.DeepCopy()
				o.SetNamespace("default")
				if err := admin.Create(t.Context(), o, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			judge(t, list)
		})
	}
}

// judge asks the rules that involve defaults and several objects, and whether every
// Secret that is referred to is there.
func judge(t *testing.T, list objects) {
	t.Helper()
	data := map[string]map[string][]byte{}
	for _, o := range list.of("Secret") {
		secret := as[corev1.Secret](t, o)
		data[secret.Name] = map[string][]byte{}
		for key, value := range secret.StringData {
			data[secret.Name][key] = []byte(value)
		}
	}
	has := func(ref v1alpha1.SecretKeyReference) {
		if len(data[ref.Name][ref.Key]) == 0 {
			t.Errorf("no Secret has %s/%s", ref.Name, ref.Key)
		}
	}
	pool := as[v1alpha1.AccountPool](t, list.of(v1alpha1.KindAccountPool)[0])
	bridge := as[v1alpha1.BridgePolicy](t, list.of(v1alpha1.KindBridgePolicy)[0])
	for _, a := range pool.Spec.Accounts {
		if a.APIKey != nil {
			has(a.APIKey.SecretRef)
		} else {
			has(a.OAuth.SeedSecretRef)
		}
	}
	if s := bridge.Spec.Store; s != nil && s.Redis != nil && s.Redis.AuthSecretRef != nil {
		has(*s.Redis.AuthSecretRef)
	}
	if _, ok := data[bridge.Spec.Clients.KeysSecretRef.Name]; !ok {
		t.Errorf("no Secret %s", bridge.Spec.Clients.KeysSecretRef.Name)
	}
	if bridge.Spec.AccountPoolRef.Name != pool.Name {
		t.Errorf("the bridge refers to pool %s, which is not there", bridge.Spec.AccountPoolRef.Name)
	}
	effectivePool, errs := effective.Pool(pool)
	if len(errs) != 0 {
		t.Errorf("pool: %v", errs)
	}
	circuit := bundleCircuit(t, list)
	if b, errs := effective.Bridge(bridge, effectivePool, circuit); len(errs) != 0 {
		t.Errorf("bridge: %v", errs)
	} else if _, err := b.Seal().Encode(); err != nil {
		t.Errorf("bundle: %v", err)
	}
}

func bundleCircuit(t *testing.T, list objects) bundle.Circuit {
	t.Helper()
	var policy *v1alpha1.CircuitPolicy // none = the built-in profile
	if found := list.of(v1alpha1.KindCircuitPolicy); len(found) > 0 {
		policy = as[v1alpha1.CircuitPolicy](t, found[0])
	}
	circuit, errs := effective.Circuit(policy)
	if len(errs) != 0 {
		t.Errorf("circuit policy: %v", errs)
	}
	return circuit
}
