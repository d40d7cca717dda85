package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// peerKeys are those in the credentials of the proxies.
func (c *cluster) peerKeys() []string {
	c.t.Helper()
	document, err := c.credentials(c.t.Context())
	c.must(err)
	if _, err := document.DecodePeerKeys(); err != nil || len(document.PeerKeys) == 0 {
		c.t.Fatalf("%d peer keys, %v", len(document.PeerKeys), err)
	}
	return document.PeerKeys
}

// addPeerKey puts another key before the one that is there, as a person does, and
// returns both.
func (c *cluster) addPeerKey() (both []string) {
	c.t.Helper()
	c.edit(&corev1.Secret{}, samplePolicy+"-credentials", func(o client.Object) {
		document, err := bundle.DecodeCredentials(o.(*corev1.Secret).Data[bundle.CredentialsFileName])
		c.must(err)
		document.PeerKeys = append([]string{"bmV3IGtleSBvZiBleGFjdGx5IHRoaXJ0eS10d28gYnk="}, document.PeerKeys...)
		both = document.PeerKeys
		raw, err := document.Seal().Encode()
		c.must(err)
		o.(*corev1.Secret).Data[bundle.CredentialsFileName] = raw
	})
	return both
}

// An operator that has not heard of the new key, and has to write the document for
// another reason, does not write over it.
func TestAPeerKeyOutlivesAStaleOperator(t *testing.T) {
	c := newCluster(t)
	hidden := &curtain{paths: []string{"/secrets"}, closed: make(chan struct{})}
	reveal := sync.OnceFunc(func() { close(hidden.closed) })
	c.operate(hidden.wrap)
	t.Cleanup(reveal) // before the operator is waited for
	c.serve()
	c.settle()
	hidden.down.Store(true)
	two := c.addPeerKey()
	c.edit(&v1alpha1.AccountPool{}, samplePool, func(o client.Object) {
		o.(*v1alpha1.AccountPool).Spec.Accounts[1].State = v1alpha1.AccountDisabled
	})
	c.looks(10, "bridgepolicy")
	if got := c.peerKeys(); !slices.Equal(got, two) {
		t.Errorf("%d keys, want the two", len(got))
	}
	hidden.down.Store(false)
	reveal()
	c.eventually("credentials without the account", func(ctx context.Context) error {
		document, err := c.credentials(ctx)
		if err == nil && (len(document.Accounts) != 1 || !slices.Equal(document.PeerKeys, two)) {
			err = fmt.Errorf("%d accounts, %d keys", len(document.Accounts), len(document.PeerKeys))
		}
		return err
	})
}

func TestThePeerKeyIsMadeOnce(t *testing.T) {
	c := newCluster(t)
	stop := c.operate()
	c.serve()
	c.settle()
	first := c.peerKeys()

	// Another change of the document keeps it, and so does another operator.
	c.edit(&corev1.Secret{}, sampleKeys, func(o client.Object) { o.(*corev1.Secret).Data["primary"] = []byte("sk-rotated") })
	c.eventually("the new key in the credentials of the proxies", func(ctx context.Context) error {
		document, err := c.credentials(ctx)
		if err == nil && document.Accounts["primary"].APIKey != "sk-rotated" {
			err = fmt.Errorf("it is not there")
		}
		return err
	})
	stop()
	c.operate()
	c.settle()
	if got := c.peerKeys(); !slices.Equal(got, first) {
		t.Error("the key changed")
	}

	// A key that a person puts before it signs from now on, and both stay.
	two := c.addPeerKey()
	c.settle()
	if got := c.peerKeys(); !slices.Equal(got, two) {
		t.Errorf("%d keys, want the two", len(got))
	}

	// A lost Secret is a new key.
	c.must(c.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: samplePolicy + "-credentials"}}))
	c.eventually("the Secret", func(ctx context.Context) error {
		_, err := c.credentials(ctx)
		return err
	})
	c.settle()
	if got := c.peerKeys(); len(got) == 0 {
		t.Error("there is no key")
	}
}
