package accountpool

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/bundle"
	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/notify"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
	"github.com/causeway-dev/causeway/controllers/internal/status"
)

// statusOf returns the pool with the status that the world amounts to, and when
// to look again (0 = when something changes). It is pure.
func statusOf(w world, now time.Time) (*v1alpha1.AccountPool, time.Duration) {
	pool := w.pool.DeepCopy()
	resolved, errs := apieffective.Pool(pool)
	_, unresolved := apieffective.Credentials(pool, nil, func(name string) (map[string][]byte, bool) {
		data, ok := w.secrets[name]
		return data, ok
	})
	merged := reports.Merge(w.reports, now)
	s := &pool.Status
	s.ObservedGeneration = pool.Generation
	s.EffectiveHash = effective.Hash(resolved)
	s.BoundPolicies = status.Bound(w.policies)
	s.Accounts = accountsOf(pool, resolved.Accounts, unresolved, merged, now)
	s.Totals = totalsOf(s.Accounts)

	l := conditions.From(s.Conditions, pool.Generation, now)
	if len(errs) > 0 {
		l.False(v1alpha1.ConditionAccepted, apieffective.Reason(errs), apieffective.Message(errs))
	} else {
		l.True(v1alpha1.ConditionAccepted, v1alpha1.ReasonValid, "The spec is valid.")
	}
	setSecretsResolved(l, unresolved)
	setUsable(l, pool, s)
	setRefreshHealthy(l, resolved.Accounts)
	reason, message, ok := conditions.Effective(apieffective.NotYetEffective(pool))
	l.Set(v1alpha1.ConditionFullyEffective, statusIf(ok), reason, message)
	l.Summarize(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "The pool can be used.",
		v1alpha1.ConditionAccepted, v1alpha1.ConditionSecretsResolved)
	s.Conditions = l.Conditions()

	var wait time.Duration
	if !merged.NextStale.IsZero() {
		wait = max(merged.NextStale.Sub(now), time.Second)
	}
	return pool, wait
}

func statusIf(ok bool) metav1.ConditionStatus {
	if ok {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func setSecretsResolved(l *conditions.List, unresolved []apieffective.Unresolved) {
	const kind = v1alpha1.ConditionSecretsResolved
	if len(unresolved) == 0 {
		l.True(kind, v1alpha1.ReasonResolved, "The credentials of all enabled accounts are resolved.")
		return
	}
	first := unresolved[0]
	message := fmt.Sprintf("Account %s: %s", first.Account, first.Message)
	if n := len(unresolved) - 1; n > 0 {
		message += fmt.Sprintf(" (and %d more)", n)
	}
	l.False(kind, first.Reason, message)
}

// accountsOf lists the accounts in the order of the manifest.
func accountsOf(
	pool *v1alpha1.AccountPool, accounts []bundle.Account, unresolved []apieffective.Unresolved, m reports.Merged, now time.Time,
) []v1alpha1.AccountStatus {
	broken := map[string]string{}
	for _, u := range unresolved {
		broken[u.Account] = u.Reason
	}
	before := map[string]v1alpha1.AccountStatus{}
	for _, a := range pool.Status.Accounts {
		before[a.Name] = a
	}
	list := make([]v1alpha1.AccountStatus, 0, len(accounts))
	for _, a := range accounts[:min(len(accounts), v1alpha1.MaxStatusAccounts)] {
		s := v1alpha1.AccountStatus{Name: a.Name, Kind: v1alpha1.AccountKind(a.Kind)}
		seen, reported := m.Accounts[a.Name]
		switch {
		case a.State == bundle.AccountDisabled:
			s.State = v1alpha1.AccountConditionDisabled
		case broken[a.Name] != "":
			s.State, s.Reason = v1alpha1.AccountConditionUnknown, broken[a.Name]
		case a.State == bundle.AccountDraining:
			s.State = v1alpha1.AccountConditionDraining
		case reported:
			s.State, s.Reason, s.Until = seen.State, seen.Reason, seen.Until
		default:
			s.State, s.Reason = v1alpha1.AccountConditionUnknown, v1alpha1.ReasonNoReports
		}
		at := metav1.NewTime(now).Rfc3339Copy()
		s.LastTransitionTime = &at
		if old, ok := before[a.Name]; ok && old.State == s.State && old.LastTransitionTime != nil {
			s.LastTransitionTime = old.LastTransitionTime
		}
		list = append(list, s)
	}
	return list
}

func totalsOf(accounts []v1alpha1.AccountStatus) *v1alpha1.AccountTotals {
	t := &v1alpha1.AccountTotals{Accounts: int32(len(accounts))} //nolint:gosec // at most 64
	for _, a := range accounts {
		switch a.State {
		case v1alpha1.AccountConditionUsable:
			t.Usable++
		case v1alpha1.AccountConditionCoolingDown, v1alpha1.AccountConditionQuotaExhausted:
			t.CoolingDown++
		case v1alpha1.AccountConditionReauthRequired:
			t.ReauthRequired++
		default:
		}
	}
	return t
}

// setUsable looks only at accounts that shall take turns.
func setUsable(l *conditions.List, pool *v1alpha1.AccountPool, s *v1alpha1.AccountPoolStatus) {
	const kind = v1alpha1.ConditionUsable
	enabled := false
	for _, a := range pool.Spec.Accounts {
		enabled = enabled || a.State == "" || a.State == v1alpha1.AccountEnabled
	}
	switch t := s.Totals; {
	case t.Usable > 0:
		l.True(kind, v1alpha1.ReasonAccountsUsable, "At least one account can take a turn.")
	case !enabled:
		l.False(kind, v1alpha1.ReasonNoAccountEnabled, "No account is enabled.")
	case t.CoolingDown > 0:
		l.False(kind, v1alpha1.ReasonAllCoolingDown, "No account can take a turn; some will by themselves, see status.accounts.")
	case t.ReauthRequired > 0:
		l.False(kind, v1alpha1.ReasonAllReauthRequired, "No account can take a turn; some need a new login.")
	default:
		l.Unknown(kind, v1alpha1.ReasonNoReports, "No proxy has reported about these accounts.")
	}
}

func setRefreshHealthy(l *conditions.List, accounts []bundle.Account) {
	const kind = v1alpha1.ConditionRefreshHealthy
	for _, a := range accounts {
		if a.Kind == bundle.KindOAuth {
			l.Unknown(kind, v1alpha1.ReasonNotYetEffective, "Logins are used as they are in their Secret; this version does not refresh them.")
			return
		}
	}
	l.True(kind, v1alpha1.ReasonNotApplicable, "No account needs to be refreshed.")
}

// eventsOf lists what people must know about accounts, from the change between
// two statuses. It is pure.
func eventsOf(before, after *v1alpha1.AccountPool) []notify.Event {
	was := map[string]v1alpha1.AccountCondition{}
	for _, a := range before.Status.Accounts {
		was[a.Name] = a.State
	}
	var list []notify.Event
	for _, a := range after.Status.Accounts {
		old := was[a.Name]
		switch {
		case old == a.State:
		case a.State == v1alpha1.AccountConditionReauthRequired:
			list = append(list, notify.Event{Warning: true, Reason: v1alpha1.EventReauthRequired, Action: v1alpha1.ActionReconcile,
				Note: fmt.Sprintf("Account %s needs a new login", a.Name)})
		case a.State == v1alpha1.AccountConditionQuotaExhausted,
			a.State == v1alpha1.AccountConditionCoolingDown && old == v1alpha1.AccountConditionUsable:
			list = append(list, notify.Event{Reason: v1alpha1.EventAccountUnusable, Action: v1alpha1.ActionReconcile,
				Note: fmt.Sprintf("Account %s takes no turns: %s", a.Name, a.State)})
		case a.State == v1alpha1.AccountConditionUsable && unusable[old]:
			list = append(list, notify.Event{Reason: v1alpha1.EventAccountRecovered, Action: v1alpha1.ActionReconcile,
				Note: fmt.Sprintf("Account %s takes turns again", a.Name)})
		}
	}
	is := conditions.Find(after.Status.Conditions, v1alpha1.ConditionSecretsResolved)
	old := conditions.Find(before.Status.Conditions, v1alpha1.ConditionSecretsResolved)
	if is.Status == metav1.ConditionFalse && (old == nil || old.Message != is.Message || old.Status != is.Status) {
		list = append(list, notify.Event{Warning: true, Reason: v1alpha1.EventRefsNotResolved, Action: v1alpha1.ActionResolve, Note: is.Message})
	}
	return list
}

var unusable = map[v1alpha1.AccountCondition]bool{
	v1alpha1.AccountConditionCoolingDown:    true,
	v1alpha1.AccountConditionQuotaExhausted: true,
	v1alpha1.AccountConditionReauthRequired: true,
}
