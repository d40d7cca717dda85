package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// The largest pool behind a large fleet, in which everything goes wrong at once.
func TestB94_SizesAndWritesOfALargePoolAreBounded(t *testing.T) {
	const accounts, replicas, limit = 64, 32, 64 << 10
	c := newCluster(t)
	c.operate()
	c.applySamples()
	name := func(i int) string { return fmt.Sprintf("%s-%02d", strings.Repeat("a", 37), i) }
	c.edit(&v1alpha1.AccountPool{}, samplePool, func(o client.Object) {
		pool := o.(*v1alpha1.AccountPool)
		key := pool.Spec.Accounts[0].APIKey
		pool.Spec.Accounts = nil
		for i := range accounts {
			pool.Spec.Accounts = append(pool.Spec.Accounts, v1alpha1.Account{Name: name(i), APIKey: key})
		}
	})
	c.edit(&v1alpha1.BridgePolicy{}, samplePolicy, func(o client.Object) { o.(*v1alpha1.BridgePolicy).Spec.Replicas = ptr.To[int32](replicas) })
	c.runPods(samplePolicy, replicas)
	c.acknowledge()
	// each gives every account of every proxy, one proxy after the other.
	each := func(change func(replica, i int, a *v1alpha1.ReplicaAccount)) {
		replica := 0
		c.say(func(_ string, s *v1alpha1.BridgeReplicaStatus) {
			s.Accounts = nil
			for i := range accounts {
				a := v1alpha1.ReplicaAccount{Name: name(i), State: v1alpha1.AccountConditionUsable, Inflight: int32(replica)}
				for _, window := range []string{"Primary", "Secondary", "Requests", "Tokens"} {
					a.Usage = append(a.Usage, v1alpha1.UsageWindow{
						Window: window, Minutes: ptr.To[int32](10080), UsedPercent: 100, ResetsAt: c.later(time.Hour)})
				}
				change(replica, i, &a)
				s.Accounts = append(s.Accounts, a)
			}
			replica++
		})
	}
	usable := func(n int32) {
		t.Helper()
		c.pool(fmt.Sprintf("%d usable accounts", n), func(s v1alpha1.AccountPoolStatus) error {
			if s.Totals == nil || s.Totals.Usable != n {
				return fmt.Errorf("totals are %+v", s.Totals)
			}
			return nil
		})
	}
	each(func(int, int, *v1alpha1.ReplicaAccount) {})
	usable(accounts)
	c.settle()
	c.writes.take()

	each(func(replica, i int, a *v1alpha1.ReplicaAccount) {
		a.Since, a.NextProbe = c.later(0), c.later(10*time.Minute)
		a.Until = c.later(time.Hour + time.Duration(replica%4)*time.Second)
		switch i % 3 {
		case 0:
			a.State, a.Reason = v1alpha1.AccountConditionQuotaExhausted, "QuotaExhausted"
		case 1:
			a.State, a.Reason = v1alpha1.AccountConditionReauthRequired, "AuthRejected"
		default:
			a.State, a.Reason = v1alpha1.AccountConditionCoolingDown, strings.Repeat("R", 64)
		}
	})
	usable(0)
	c.looks(3, "accountpool")
	if n := c.poolWrites(); n > 2 {
		t.Errorf("%d writes of the pool for one change that %d proxies report", n, replicas)
	}
	var events int
	for _, e := range c.events() {
		if e.Regarding.Kind == v1alpha1.KindAccountPool {
			events++
		}
	}
	if events > 6 {
		t.Errorf("%d events about %d accounts", events, accounts)
	}
	c.eventually("the sizes", func(context.Context) error {
		c.each(func(kind string, o client.Object) {
			o.SetManagedFields(nil)
			raw, err := json.Marshal(o)
			c.must(err)
			if len(raw) > limit && kind != "ConfigMap" && kind != "Pod" {
				t.Errorf("%s %s has %d bytes", kind, o.GetName(), len(raw))
			}
			if kind == v1alpha1.KindAccountPool || kind == v1alpha1.KindBridgePolicy {
				t.Logf("%s %s has %d bytes", kind, o.GetName(), len(raw))
			}
		})
		return nil
	})
	c.condition(&v1alpha1.AccountPool{}, samplePool, v1alpha1.ConditionUsable, metav1.ConditionFalse, v1alpha1.ReasonAllCoolingDown)
}
