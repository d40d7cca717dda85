package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// later is a time from now, by the operator's clock.
func (c *cluster) later(d time.Duration) *metav1.Time {
	t := metav1.NewTime(c.clock.Now().Add(d).Truncate(time.Second))
	return &t
}

// of makes every proxy say this of an account.
func of(account string, change func(*v1alpha1.ReplicaAccount)) func(string, *v1alpha1.BridgeReplicaStatus) {
	return func(_ string, s *v1alpha1.BridgeReplicaStatus) {
		for i := range s.Accounts {
			if s.Accounts[i].Name == account {
				change(&s.Accounts[i])
			}
		}
	}
}

// exhausted is an account whose quota is used up for an hour.
func (c *cluster) exhausted(a *v1alpha1.ReplicaAccount) {
	a.State, a.Reason = v1alpha1.AccountConditionQuotaExhausted, "QuotaExhausted"
	a.Since, a.Until, a.NextProbe = c.later(-time.Second), c.later(time.Hour), c.later(10*time.Minute)
	a.Usage = []v1alpha1.UsageWindow{{Window: "Primary", Minutes: ptr.To[int32](300), UsedPercent: 100, ResetsAt: c.later(time.Hour)}}
}

func used(c *cluster, a *v1alpha1.ReplicaAccount) {
	*a = v1alpha1.ReplicaAccount{Name: a.Name, State: v1alpha1.AccountConditionUsable, Since: c.later(0)}
}

// pool waits until the status of the pool is as check wants it.
func (c *cluster) pool(what string, check func(s v1alpha1.AccountPoolStatus) error) v1alpha1.AccountPool {
	c.t.Helper()
	var pool v1alpha1.AccountPool
	c.eventually(what, func(ctx context.Context) error {
		if err := c.client.Get(ctx, c.key(samplePool), &pool); err != nil {
			return err
		}
		return check(pool.Status)
	})
	return pool
}

// states wants the accounts of the sample to be like that.
func states(primary, backup v1alpha1.AccountCondition) func(v1alpha1.AccountPoolStatus) error {
	return func(s v1alpha1.AccountPoolStatus) error {
		if len(s.Accounts) != 2 || s.Accounts[0].State != primary || s.Accounts[1].State != backup {
			return fmt.Errorf("accounts are %+v", s.Accounts)
		}
		return nil
	}
}

// poolWrites counts the writes to the status of the pool since the last call,
// and fails the test for any other write to it.
func (c *cluster) poolWrites() (n int) {
	c.t.Helper()
	for _, write := range c.writes.take() {
		switch {
		case strings.HasSuffix(write, "/accountpools/"+samplePool+"/status"):
			n++
		case strings.Contains(write, "/accountpools/"):
			c.t.Errorf("the operator wrote %s", write)
		}
	}
	return n
}

func TestB42_APoolSaysWhichAccountIsUnusableWhyUntilWhenAndWhatToDo(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.say(of("primary", c.exhausted))
	c.say(of("backup", func(a *v1alpha1.ReplicaAccount) {
		a.State, a.Reason, a.Since = v1alpha1.AccountConditionReauthRequired, "AuthRejected", c.later(0)
	}))
	pool := c.pool("both accounts to be unusable", states("QuotaExhausted", "ReauthRequired"))
	s := pool.Status
	primary, backup := s.Accounts[0], s.Accounts[1]
	if primary.Until == nil || primary.NextProbe == nil || len(primary.Usage) != 1 || primary.Usage[0].UsedPercent != 100 ||
		!strings.Contains(primary.Message, v1alpha1.AnnotationResetCooldowns+"=primary=$(date") {
		t.Errorf("primary: %+v", primary)
	}
	if backup.Until != nil || len(backup.Usage) > 0 || !strings.Contains(backup.Message, "key backup of Secret "+sampleKeys) {
		t.Errorf("backup: %+v", backup)
	}
	t.Run("B54: no account is left, and the manifest is not at fault", func(t *testing.T) {
		c.condition(&pool, samplePool, v1alpha1.ConditionUsable, metav1.ConditionFalse, v1alpha1.ReasonAllCoolingDown)
		c.condition(&pool, samplePool, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
		c.condition(&v1alpha1.BridgePolicy{}, samplePolicy, v1alpha1.ConditionUpstreamHealthy, metav1.ConditionFalse, v1alpha1.ReasonReauthRequired)
	})
	c.event(v1alpha1.EventAccountUnusable, samplePool)
	c.event(v1alpha1.EventReauthRequired, samplePool)
	if row := c.row("accountpools", samplePool); row["Usable"] != "0" || !strings.Contains(row["Unusable"], "primary: QuotaExhausted until 20") ||
		!strings.Contains(row["Unusable"], "; backup: ReauthRequired") {
		t.Errorf("kubectl get shows %v", row)
	}
	c.say(of("primary", func(a *v1alpha1.ReplicaAccount) { used(c, a) }))
	c.say(of("backup", func(a *v1alpha1.ReplicaAccount) { used(c, a) }))
	c.condition(&pool, samplePool, v1alpha1.ConditionUsable, metav1.ConditionTrue, v1alpha1.ReasonAccountsUsable)
	c.event(v1alpha1.EventAccountRecovered, samplePool)
	if row := c.row("accountpools", samplePool); row["Unusable"] != "<none>" && row["Unusable"] != "" {
		t.Errorf("kubectl get shows %v", row)
	}
}

// row is what kubectl get -o wide shows of an object.
func (c *cluster) row(resource, name string) map[string]string {
	c.t.Helper()
	cfg := rest.CopyConfig(config)
	cfg.APIPath, cfg.GroupVersion = "/apis", &v1alpha1.GroupVersion
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	api, err := rest.RESTClientFor(cfg)
	c.must(err)
	raw, err := api.Get().Namespace(c.namespace).Resource(resource).Name(name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(c.t.Context()).Raw()
	c.must(err)
	var table metav1.Table
	c.must(json.Unmarshal(raw, &table))
	row := map[string]string{}
	for i, column := range table.ColumnDefinitions {
		if cell := table.Rows[0].Cells[i]; cell != nil {
			row[column.Name] = fmt.Sprint(cell)
		}
	}
	return row
}

// One change is seen by every replica a little later, and a little differently.
func TestB51_AChangeIsAtMostTwoWrites(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.settle()
	c.writes.take()
	var pods corev1.PodList
	c.must(c.client.List(t.Context(), &pods, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelPolicy: samplePolicy}))
	// one makes a single proxy speak, and lets the operator look at it.
	one := func(pod int, change func(*v1alpha1.ReplicaAccount)) {
		t.Helper()
		c.say(func(name string, s *v1alpha1.BridgeReplicaStatus) {
			if name == pods.Items[pod].Name {
				of("primary", change)(name, s)
			}
		})
		c.looks(3, "accountpool")
	}
	one(0, c.exhausted)
	one(1, func(a *v1alpha1.ReplicaAccount) {
		c.exhausted(a)
		a.Until, a.NextProbe = c.later(time.Hour+2*time.Second), c.later(10*time.Minute-9*time.Second)
		a.Usage[0].ResetsAt = c.later(time.Hour + 70*time.Second)
	})
	c.pool("the account to be exhausted", states("QuotaExhausted", "Usable"))
	c.looks(3, "accountpool")
	if n := c.poolWrites(); n < 1 || n > 2 {
		t.Errorf("%d writes for one quota, want 1 or 2", n)
	}
	first := c.pool("the account", states("QuotaExhausted", "Usable")).Status.Accounts[0].LastTransitionTime

	c.clock.SetTime(c.clock.Now().Add(time.Minute))
	one(1, func(a *v1alpha1.ReplicaAccount) { used(c, a) }) // its probe succeeded
	one(0, func(a *v1alpha1.ReplicaAccount) { used(c, a) })
	back := c.pool("the account to be back", states("Usable", "Usable"))
	c.looks(3, "accountpool")
	if n := c.poolWrites(); n < 1 || n > 2 {
		t.Errorf("%d writes for one recovery, want 1 or 2", n)
	}
	if at := back.Status.Accounts[0].LastTransitionTime; !first.Before(at) {
		t.Errorf("transition at %v, then %v", first, at)
	}
	// A replica that cannot connect is no word about the account.
	one(0, func(a *v1alpha1.ReplicaAccount) {
		a.State, a.Reason, a.Until = v1alpha1.AccountConditionCoolingDown, "ConnectFailed", c.later(30*time.Second)
	})
	if n := c.poolWrites(); n > 0 {
		t.Errorf("%d writes for what one replica could not reach", n)
	}
}

func TestB93_NumbersOfProxiesWriteNoPool(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	c.say(of("primary", c.exhausted))
	c.pool("the account to be exhausted", states("QuotaExhausted", "Usable"))
	c.settle()
	c.writes.take()
	for i := range 10 {
		c.say(of("primary", func(a *v1alpha1.ReplicaAccount) {
			a.Inflight = int32(i)
			a.Until = c.later(time.Hour + time.Duration(i%3)*time.Second)
			a.Usage[0].ResetsAt = c.later(time.Hour - time.Duration(i)*time.Second)
		}))
	}
	c.looks(3, "accountpool")
	if n := c.poolWrites(); n > 0 {
		t.Errorf("%d writes though nothing changed", n)
	}
}

func TestTheOpenBreakerOfARouteShowsOnThePolicy(t *testing.T) {
	c := newCluster(t)
	c.operate()
	c.serve()
	route := v1alpha1.CircuitState{Scope: v1alpha1.CircuitScopeRoute, Key: "0123456789ab", Name: "chatgpt.com/codex-responses/websocket",
		State: v1alpha1.CircuitOpen, Reason: "ConnectFailure", Until: c.later(time.Minute)}
	c.say(func(_ string, s *v1alpha1.BridgeReplicaStatus) {
		s.OpenCircuits, s.Circuits = ptr.To[int32](1), []v1alpha1.CircuitState{route}
		s.Routes = []v1alpha1.RouteStatus{{Key: route.Name, State: v1alpha1.RouteOpen, OpenUntil: route.Until, Openings: 2, Reason: route.Reason}}
		s.Lanes = []v1alpha1.LaneStatus{{Lane: v1alpha1.LaneHTTP, Inflight: 7, Queued: 1, Mode: v1alpha1.BulkheadLimited, Limit: ptr.To[int32](7)},
			{Lane: v1alpha1.LaneCompact, Mode: v1alpha1.BulkheadUnlimited}}
	})
	var policy v1alpha1.BridgePolicy
	c.condition(&policy, samplePolicy, v1alpha1.ConditionUpstreamHealthy, metav1.ConditionFalse, v1alpha1.ReasonCircuitOpen)
	if s := policy.Status.Circuits; s.Open != 1 || len(s.Top) != 1 || s.Top[0].Name != route.Name || s.Top[0].Scope != v1alpha1.CircuitScopeRoute {
		t.Errorf("circuits: %+v, want one route, however many proxies see it", s)
	}
	c.event(v1alpha1.EventCircuitOpened, samplePolicy)
}
