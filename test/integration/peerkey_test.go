package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
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
	second := bundle.Credentials{}
	c.edit(&corev1.Secret{}, samplePolicy+"-credentials", func(o client.Object) {
		document, err := bundle.DecodeCredentials(o.(*corev1.Secret).Data[bundle.CredentialsFileName])
		c.must(err)
		document.PeerKeys = append([]string{"bmV3IGtleSBvZiBleGFjdGx5IHRoaXJ0eS10d28gYnk="}, document.PeerKeys...)
		second = document.Seal()
		raw, err := second.Encode()
		c.must(err)
		o.(*corev1.Secret).Data[bundle.CredentialsFileName] = raw
	})
	c.settle()
	if got := c.peerKeys(); !slices.Equal(got, second.PeerKeys) {
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
