package integration

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// TestTheStoresPasswordReachesTheProxies: its Secret is asked for, woken by, and
// followed like every other.
func TestTheStoresPasswordReachesTheProxies(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	policy := &v1alpha1.BridgePolicy{}
	c.edit(policy, samplePolicy, func(client.Object) {
		policy.Spec.Store = &v1alpha1.Store{Type: v1alpha1.StoreRedis, Redis: &v1alpha1.Redis{
			Addresses: []string{"redis:6379"}, AuthSecretRef: &v1alpha1.SecretKeyReference{Name: "redis", Key: "password"}}}
	})
	got := c.condition(policy, samplePolicy, v1alpha1.ConditionResolvedRefs, metav1.ConditionFalse, v1alpha1.ReasonSecretNotFound)
	if want := "spec.store.redis.authSecretRef: Secret redis does not exist: create it with key password"; got.Message != want {
		t.Errorf("says %q, want %q", got.Message, want)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "redis"}, Data: map[string][]byte{"password": []byte("first\n")},
	}
	c.must(c.client.Create(t.Context(), secret))
	has := func(password string) {
		t.Helper()
		c.eventually("the password of the store", func(ctx context.Context) error {
			document, err := c.credentials(ctx)
			if err == nil && document.StorePassword != password {
				err = errors.New("it is another one")
			}
			return err
		})
	}
	has("first")
	c.condition(policy, samplePolicy, v1alpha1.ConditionResolvedRefs, metav1.ConditionTrue, v1alpha1.ReasonResolved)
	c.edit(secret, "redis", func(client.Object) { secret.Data["password"] = []byte("second") })
	has("second")

	var config corev1.ConfigMap
	c.must(c.client.Get(t.Context(), client.ObjectKey{Namespace: c.namespace, Name: samplePolicy + "-config"}, &config))
	b, err := bundle.Decode([]byte(config.Data[bundle.FileName]))
	if err != nil || b.Store.Type != bundle.StoreRedis || len(b.Store.Addresses) != 1 {
		t.Errorf("bundle with store %+v, %v", b.Store, err)
	}
}
