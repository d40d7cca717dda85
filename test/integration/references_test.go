package integration

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// events returns the events of the namespace.
func (c *cluster) events() []eventsv1.Event {
	c.t.Helper()
	var list eventsv1.EventList
	c.must(c.client.List(c.t.Context(), &list, client.InNamespace(c.namespace)))
	return list.Items
}

func (c *cluster) event(reason, object string) {
	c.t.Helper()
	c.eventually("event "+reason+" on "+object, func(context.Context) error {
		for _, e := range c.events() {
			if e.Reason == reason && e.Regarding.Name == object {
				return nil
			}
		}
		return fmt.Errorf("there is none")
	})
}

func TestBadInputIsNamedInConditions(t *testing.T) {
	type expectation struct {
		object          client.Object
		name            string
		kind            string
		reason, message string
	}
	for name, tc := range map[string]struct {
		spoil func(c *cluster)
		want  []expectation
	}{
		"unknown pool": {
			spoil: func(c *cluster) {
				c.must(c.client.Delete(c.t.Context(), &v1alpha1.AccountPool{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: samplePool}}))
			},
			want: []expectation{{&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonAccountPoolNotFound,
				`AccountPool "team" does not exist in this namespace: create it or correct spec.accountPoolRef.name.`}},
		},
		"unknown circuit policy": {
			spoil: func(c *cluster) {
				c.must(c.client.Delete(c.t.Context(), &v1alpha1.CircuitPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: sampleCircuit}}))
			},
			want: []expectation{{&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonCircuitPolicyNotFound,
				`CircuitPolicy "patient" does not exist in this namespace: create it or correct spec.circuitPolicyRef.name.`}},
		},
		"missing Secret of accounts": {
			spoil: func(c *cluster) {
				c.must(c.client.Delete(c.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: sampleKeys}}))
			},
			want: []expectation{
				{&v1alpha1.AccountPool{}, samplePool, v1alpha1.ConditionSecretsResolved, v1alpha1.ReasonSecretNotFound,
					"Account primary: Secret openai-keys does not exist: create it with key primary (and 1 more)"},
				{&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonSecretNotFound,
					"Secret openai-keys does not exist: create it with key primary (and 1 more)"},
			},
		},
		"missing Secret of clients": {
			spoil: func(c *cluster) {
				c.must(c.client.Delete(c.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: sampleClients}}))
			},
			want: []expectation{{&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonSecretNotFound,
				"Secret chat-clients of clients.keysSecretRef does not exist: create it with one key per client"}},
		},
		"wrong key name": {
			spoil: func(c *cluster) {
				c.edit(&corev1.Secret{}, sampleKeys, func(o client.Object) { delete(o.(*corev1.Secret).Data, "backup") })
			},
			want: []expectation{
				{&v1alpha1.AccountPool{}, samplePool, v1alpha1.ConditionSecretsResolved, v1alpha1.ReasonKeyNotFound,
					"Account backup: Secret openai-keys has no key backup: it has primary"},
				{&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonKeyNotFound,
					"Secret openai-keys has no key backup: it has primary"},
			},
		},
		"invariant between a written and a defaulted number": {
			spoil: func(c *cluster) {
				policy := &v1alpha1.BridgePolicy{}
				c.edit(policy, samplePolicy, func(client.Object) {
					policy.Spec.Drain = &v1alpha1.Drain{PodGraceSeconds: ptr.To[int32](60)}
				})
			},
			want: []expectation{{&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionAccepted, v1alpha1.ReasonInvariantViolated,
				"spec.drain.podGraceSeconds: Invalid value: podGraceSeconds (60) must be at least preStopSeconds (15) + endpointLagSeconds (15) + 40: raise it or lower the others"}},
		},
		"invariant of a circuit policy": {
			spoil: func(c *cluster) {
				circuit := &v1alpha1.CircuitPolicy{}
				c.edit(circuit, sampleCircuit, func(client.Object) {
					circuit.Spec.RetryCircuit = &v1alpha1.RetryCircuit{StateTTLSeconds: ptr.To[int32](60)}
				})
			},
			want: []expectation{
				{&v1alpha1.CircuitPolicy{}, sampleCircuit, v1alpha1.ConditionAccepted, v1alpha1.ReasonInvariantViolated, ""},
				{&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonCircuitPolicyNotAccepted,
					`CircuitPolicy "patient" is not accepted; its last accepted form stays in force.`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.operate()
			c.serve()
			tc.spoil(c)
			for _, want := range tc.want {
				got := c.condition(want.object, want.name, want.kind, metav1.ConditionFalse, want.reason)
				if want.message != "" && got.Message != want.message {
					t.Errorf("%s of %s says\n%s\nwant\n%s", want.kind, want.name, got.Message, want.message)
				}
				c.condition(want.object, want.name, v1alpha1.ConditionReady, metav1.ConditionFalse, want.reason)
			}
		})
	}
}

func TestWhatIsMissingWakesTheOperatorWhenItComes(t *testing.T) {
	c := newCluster(t)
	c.operate()
	policy := &v1alpha1.BridgePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: samplePolicy},
		Spec: v1alpha1.BridgePolicySpec{
			AccountPoolRef: v1alpha1.LocalObjectReference{Name: samplePool},
			Clients:        v1alpha1.Clients{KeysSecretRef: &v1alpha1.LocalObjectReference{Name: sampleClients}},
		},
	}
	c.must(c.client.Create(t.Context(), policy))
	c.condition(policy, samplePolicy, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonAccountPoolNotFound)
	c.condition(policy, samplePolicy, v1alpha1.ConditionReconciling, metav1.ConditionTrue, v1alpha1.ReasonWaitingForRefs)
	c.event(v1alpha1.EventRefsNotResolved, samplePolicy)

	c.serve() // the other samples, and the policy in full
	c.event(v1alpha1.EventSlotCreated, samplePolicy)
	c.event(v1alpha1.EventConfigProgrammed, samplePolicy)
}

func TestOneUnresolvedAccountLeavesTheOthersAtWork(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.edit(&corev1.Secret{}, sampleKeys, func(o client.Object) { delete(o.(*corev1.Secret).Data, "backup") })
	c.eventually("credentials of the other account alone", func(ctx context.Context) error {
		document, err := c.credentials(ctx)
		if err != nil {
			return err
		}
		if _, ok := document.Accounts["backup"]; ok || document.Accounts["primary"].APIKey == "" {
			return fmt.Errorf("accounts are not as wanted")
		}
		return nil
	})
	var pool v1alpha1.AccountPool
	c.eventually("the pool says which account lacks what", func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(samplePool), &pool); err != nil {
			return fmt.Errorf("reading the pool: %w", err)
		}
		for _, a := range pool.Status.Accounts {
			if a.Name == "backup" && a.State == v1alpha1.AccountConditionUnknown && a.Reason == v1alpha1.ReasonKeyNotFound {
				return nil
			}
		}
		return fmt.Errorf("accounts are %+v", pool.Status.Accounts)
	})
	c.condition(&pool, samplePool, v1alpha1.ConditionUsable, metav1.ConditionTrue, v1alpha1.ReasonAccountsUsable)
}
