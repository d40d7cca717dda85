package accountpool

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// poolWorld has accounts a and b whose keys exist, and one proxy that reports.
func poolWorld(change ...func(*world)) world {
	key := func(name string) *v1alpha1.APIKey {
		return &v1alpha1.APIKey{SecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: name}}
	}
	w := world{
		pool: &v1alpha1.AccountPool{
			ObjectMeta: metav1.ObjectMeta{Name: "team", Generation: 2},
			Spec: v1alpha1.AccountPoolSpec{
				Provider: v1alpha1.Provider{Type: v1alpha1.ProviderOpenAIPlatform},
				Accounts: []v1alpha1.Account{{Name: "a", APIKey: key("a")}, {Name: "b", APIKey: key("b")}},
			},
		},
		secrets:  map[string]map[string][]byte{"keys": {"a": []byte("sk-a"), "b": []byte("sk-b")}},
		policies: []string{"chat"},
	}
	reported(&w, v1alpha1.AccountConditionUsable, v1alpha1.AccountConditionUsable)
	for _, f := range change {
		f(&w)
	}
	return w
}

func reported(w *world, a, b v1alpha1.AccountCondition) {
	at := metav1.NewTime(now)
	w.reports = []reports.Report{{
		Pod: &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: at}}}},
		Replica: &v1alpha1.BridgeReplica{Status: v1alpha1.BridgeReplicaStatus{ReportedAt: &at,
			Accounts: []v1alpha1.ReplicaAccount{{Name: "a", State: a}, {Name: "b", State: b}}}},
	}}
}

func TestUsable(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		status metav1.ConditionStatus
		reason string
	}{
		"both":        {func(*world) {}, "True", v1alpha1.ReasonAccountsUsable},
		"one cools":   {func(w *world) { reported(w, "Usable", "CoolingDown") }, "True", v1alpha1.ReasonAccountsUsable},
		"both cool":   {func(w *world) { reported(w, "QuotaExhausted", "CoolingDown") }, "False", v1alpha1.ReasonAllCoolingDown},
		"both log in": {func(w *world) { reported(w, "ReauthRequired", "ReauthRequired") }, "False", v1alpha1.ReasonAllReauthRequired},
		"no reports":  {func(w *world) { w.reports = nil }, "Unknown", v1alpha1.ReasonNoReports},
		"all disabled": {func(w *world) {
			for i := range w.pool.Spec.Accounts {
				w.pool.Spec.Accounts[i].State = v1alpha1.AccountDisabled
			}
		}, "False", v1alpha1.ReasonNoAccountEnabled},
	} {
		t.Run(name, func(t *testing.T) {
			after, _ := statusOf(poolWorld(tc.change), now)
			got := conditions.Find(after.Status.Conditions, v1alpha1.ConditionUsable)
			if got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("got %s/%s, want %s/%s", got.Status, got.Reason, tc.status, tc.reason)
			}
			if !conditions.IsTrue(after.Status.Conditions, v1alpha1.ConditionReady) {
				t.Error("Usable must not be part of Ready: an exhausted quota is no fault of the manifest")
			}
		})
	}
}

func TestAnUnresolvedAccountIsUnknownAndTheOthersAreNot(t *testing.T) {
	after, _ := statusOf(poolWorld(func(w *world) { delete(w.secrets["keys"], "b") }), now)
	a, b := after.Status.Accounts[0], after.Status.Accounts[1]
	if a.State != v1alpha1.AccountConditionUsable || b.State != v1alpha1.AccountConditionUnknown || b.Reason != v1alpha1.ReasonKeyNotFound {
		t.Errorf("got %s and %s/%s, want Usable and Unknown/KeyNotFound", a.State, b.State, b.Reason)
	}
	if conditions.IsTrue(after.Status.Conditions, v1alpha1.ConditionReady) {
		t.Error("Ready must name the missing key")
	}
}

func TestTransitionTimesOfAccountsMoveWithTheirState(t *testing.T) {
	w := poolWorld()
	w.pool, _ = statusOf(w, now)
	reported(&w, "Usable", "CoolingDown")
	later := now.Add(time.Minute)
	after, _ := statusOf(w, later)
	if a, b := after.Status.Accounts[0], after.Status.Accounts[1]; !a.LastTransitionTime.Time.Equal(now) || !b.LastTransitionTime.Time.Equal(later) {
		t.Errorf("got %v and %v, want %v and %v", a.LastTransitionTime, b.LastTransitionTime, now, later)
	}
	events := eventsOf(w.pool, after)
	if len(events) != 1 || events[0].Reason != v1alpha1.EventAccountUnusable {
		t.Errorf("got %+v, want one event about b", events)
	}
}

func TestListsAreCutToTheirCaps(t *testing.T) {
	w := poolWorld(func(w *world) {
		w.policies = nil
		for i := range 40 {
			w.policies = append(w.policies, fmt.Sprintf("policy-%02d", i))
		}
	})
	after, _ := statusOf(w, now)
	if b := after.Status.BoundPolicies; b.Count != 40 || len(b.Names) != v1alpha1.MaxBoundPolicyNames || b.Omitted != 24 {
		t.Errorf("got count %d, %d names, %d omitted, want 40, 16, 24", b.Count, len(b.Names), b.Omitted)
	}
}
