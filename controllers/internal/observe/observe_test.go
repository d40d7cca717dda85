package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// TestPolicySecrets: what is missing here is neither read nor watched.
func TestPolicySecrets(t *testing.T) {
	ref := func(name string) v1alpha1.SecretKeyReference {
		return v1alpha1.SecretKeyReference{Name: name, Key: "k"}
	}
	password := ref("redis")
	policy := &v1alpha1.BridgePolicy{Spec: v1alpha1.BridgePolicySpec{
		Clients: v1alpha1.Clients{KeysSecretRef: &v1alpha1.LocalObjectReference{Name: "clients"}},
		Store:   &v1alpha1.Store{Type: v1alpha1.StoreRedis, Redis: &v1alpha1.Redis{AuthSecretRef: &password}},
	}}
	pool := &v1alpha1.AccountPool{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: v1alpha1.AccountPoolSpec{Accounts: []v1alpha1.Account{
		{APIKey: &v1alpha1.APIKey{SecretRef: ref("keys")}},
		{Name: "a", OAuth: &v1alpha1.OAuth{SeedSecretRef: ref("login")}},
		{APIKey: &v1alpha1.APIKey{SecretRef: ref("keys")}},
	}}}
	for name, tc := range map[string]struct {
		policy *v1alpha1.BridgePolicy
		pool   *v1alpha1.AccountPool
		want   []string
	}{
		"of both":      {policy, pool, []string{"clients", "keys", "login", "redis", "team-login.a"}},
		"without pool": {policy, nil, []string{"clients", "redis"}},
		"of neither":   {&v1alpha1.BridgePolicy{Spec: v1alpha1.BridgePolicySpec{Store: &v1alpha1.Store{}}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, PolicySecrets(tc.policy, tc.pool)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
