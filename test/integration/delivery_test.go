package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestAnEditedSecretReachesTheProxiesWithoutANewPod(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	var before appsv1.Deployment
	c.get(&before, samplePolicy+"-blue")

	c.edit(&corev1.Secret{}, sampleKeys, func(o client.Object) {
		o.(*corev1.Secret).Data["primary"] = []byte("sk-rotated")
	})
	c.eventually("the new key in the credentials of the proxies", func(ctx context.Context) error {
		document, err := c.credentials(ctx)
		if err == nil && document.Accounts["primary"].APIKey != "sk-rotated" {
			err = fmt.Errorf("it is not there")
		}
		return err
	})
	c.eventually("the mark on the pods", c.marked)
	var after appsv1.Deployment
	c.get(&after, samplePolicy+"-blue")
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("the Deployment changed (-before +after):\n%s", diff)
	}
	c.settle()

	// The change did not come from the policy: it has a minute to arrive.
	var policy v1alpha1.BridgePolicy
	c.condition(&policy, samplePolicy, v1alpha1.ConditionProgrammed, metav1.ConditionTrue, v1alpha1.ReasonConfigAcknowledged)
	c.clock.SetTime(c.clock.Now().Add(61 * time.Second))
	c.condition(&policy, samplePolicy, v1alpha1.ConditionProgrammed, metav1.ConditionFalse, v1alpha1.ReasonConfigPending)
	c.report(samplePolicy)
	c.condition(&policy, samplePolicy, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestANewGenerationIsPendingAtOnce(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	policy := &v1alpha1.BridgePolicy{}
	c.edit(policy, samplePolicy, func(client.Object) {
		policy.Spec.Drain = &v1alpha1.Drain{SoftSeconds: ptr.To[int32](300)}
	})
	c.condition(policy, samplePolicy, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonConfigPending)
	c.report(samplePolicy)
	c.condition(policy, samplePolicy, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)

	c.edit(policy, samplePolicy, func(client.Object) {
		policy.Spec.Drain = &v1alpha1.Drain{SoftSeconds: ptr.To[int32](200)}
	})
	c.report(samplePolicy, func(s *v1alpha1.BridgeReplicaStatus) {
		s.ObservedConfig.State, s.ObservedConfig.Reason = v1alpha1.ConfigRejected, "Unreadable"
	})
	c.eventually("the refusal", func(ctx context.Context) error {
		c.report(samplePolicy, func(s *v1alpha1.BridgeReplicaStatus) {
			s.ObservedConfig.State, s.ObservedConfig.Reason = v1alpha1.ConfigRejected, "Unreadable"
		})
		if err := c.client.Get(ctx, c.key(samplePolicy), policy); err != nil {
			return err
		}
		for _, cond := range policy.Status.Conditions {
			if cond.Type == v1alpha1.ConditionReady && cond.Reason == v1alpha1.ReasonConfigRejected {
				return nil
			}
		}
		return fmt.Errorf("conditions are %s", show(policy.Status.Conditions))
	})
}

// marked says whether all pods bear the hashes of the configuration that is stored.
func (c *cluster) marked(ctx context.Context) error {
	var cm corev1.ConfigMap
	if err := c.client.Get(ctx, c.key(samplePolicy+"-config"), &cm); err != nil {
		return err
	}
	want := cm.Annotations[v1alpha1.AnnotationConfigHash] + "." + cm.Annotations[v1alpha1.AnnotationCredentialsHash]
	var pods corev1.PodList
	if err := c.client.List(ctx, &pods, client.InNamespace(c.namespace)); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if got := pod.Annotations[v1alpha1.AnnotationConfigHash]; got != want {
			return fmt.Errorf("%s has %q, want %q", pod.Name, got, want)
		}
	}
	return nil
}

// credentials reads the document of the proxies.
func (c *cluster) credentials(ctx context.Context) (bundle.Credentials, error) {
	var secret corev1.Secret
	if err := c.client.Get(ctx, c.key(samplePolicy+"-credentials"), &secret); err != nil {
		return bundle.Credentials{}, err
	}
	return bundle.DecodeCredentials(secret.Data[bundle.CredentialsFileName])
}

// edit changes an object as a user would.
func (c *cluster) edit(o client.Object, name string, change func(client.Object)) {
	c.t.Helper()
	c.eventually("the edit of "+name, func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(name), o); err != nil {
			return err
		}
		change(o)
		return c.client.Update(ctx, o)
	})
}

// canaries are what must not show up anywhere but in Secrets.
var canaries = []string{
	"sk-canary-primary", "sk-canary broken", "cwk-canary-client", "not-a-client-key-canary",
}

func TestNoCredentialLeavesItsSecret(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.edit(&corev1.Secret{}, sampleKeys, func(o client.Object) {
		o.(*corev1.Secret).Data = map[string][]byte{"primary": []byte(canaries[0]), "backup": []byte(canaries[1])}
	})
	c.edit(&corev1.Secret{}, sampleClients, func(o client.Object) {
		o.(*corev1.Secret).Data = map[string][]byte{"demo": []byte(canaries[2]), "wrong": []byte(canaries[3])}
	})
	c.condition(&v1alpha1.AccountPool{}, samplePool, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalidValue)
	c.condition(&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionResolvedRefs, metav1.ConditionFalse, v1alpha1.ReasonInvalidValue)
	c.eventually("the good key at the proxies", func(ctx context.Context) error {
		document, err := c.credentials(ctx)
		if err == nil && document.Accounts["primary"].APIKey != canaries[0] {
			err = fmt.Errorf("it is not there")
		}
		return err
	})
	c.settle()

	secrets := canaries
	if document, err := c.credentials(t.Context()); err != nil || len(document.PeerKeys) != 1 {
		t.Errorf("%d peer keys, %v", len(document.PeerKeys), err)
	} else {
		secrets = append(slices.Clone(canaries), document.PeerKeys[0])
	}
	texts := map[string]string{"log": c.logs.String(), "log of the process": processLog.String()}
	c.each(func(kind string, o client.Object) {
		if kind != "Secret" {
			texts[kind+"/"+o.GetName()] = fmt.Sprintf("%+v", o)
		}
	})
	for i, e := range c.events() {
		texts[fmt.Sprintf("Event/%d", i)] = fmt.Sprintf("%+v", e)
	}
	for where, text := range texts {
		for _, canary := range secrets {
			if strings.Contains(text, canary) || strings.Contains(text, bundle.KeyDigest(canary)) {
				t.Errorf("%s holds credential %q", where, canary)
			}
		}
	}
	var secret corev1.Secret
	c.get(&secret, samplePolicy+"-credentials")
	if raw := string(secret.Data[bundle.CredentialsFileName]); !strings.Contains(raw, canaries[0]) || strings.Contains(raw, canaries[2]) {
		t.Error("the credentials of the proxies must hold API keys, and digests of client keys instead of the keys")
	}
}
