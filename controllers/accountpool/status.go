package accountpool

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/bundle"
	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/conditions"
	"github.com/causeway-dev/causeway/controllers/internal/effective"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
	"github.com/causeway-dev/causeway/controllers/internal/status"
)

// statusOf returns the pool with the status that the world amounts to, and when
// to look again (0 = when something changes). It is pure.
func statusOf(w world, now time.Time) (*v1alpha1.AccountPool, time.Duration) {
	pool := w.pool.DeepCopy()
	resolved, errs := apieffective.Pool(pool)
	lookup := func(name string) (map[string][]byte, bool) {
		data, ok := w.secrets[name]
		return data, ok
	}
	_, unresolved := apieffective.Credentials(pool, nil, lookup)
	merged := reports.Merge(w.reports, now)
	s := &pool.Status
	s.ObservedGeneration = pool.Generation
	s.EffectiveHash = hashOf(resolved)
	s.BoundPolicies = status.Bound(w.policies)
	s.Accounts = accountsOf(pool, resolved.Accounts, findings{unresolved, merged, lookup}, now)
	s.Totals = totalsOf(s.Accounts)
	s.Unusable = unusableOf(s.Accounts)

	l := conditions.From(s.Conditions, pool.Generation, now)
	if len(errs) > 0 {
		l.False(v1alpha1.ConditionAccepted, apieffective.Reason(errs), apieffective.Message(errs))
	} else {
		l.True(v1alpha1.ConditionAccepted, v1alpha1.ReasonValid, "The spec is valid.")
	}
	setSecretsResolved(l, unresolved)
	setUsable(l, s)
	setRefreshHealthy(l, pool, lookup)
	for _, warning := range apieffective.PoolWarnings(pool) {
		l.True(v1alpha1.ConditionWarning, warning.Reason, warning.Message)
	}
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

// hashOf leaves out what is a wish and no setting.
func hashOf(p bundle.Pool) string {
	p.ResetCooldowns = ""
	return effective.Hash(p)
}

func statusIf(ok bool) metav1.ConditionStatus {
	if ok {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// setSecretsResolved is about what manifests refer to; how a login fares that was
// found is told by RefreshHealthy.
func setSecretsResolved(l *conditions.List, unresolved []apieffective.Unresolved) {
	const kind = v1alpha1.ConditionSecretsResolved
	missing := slices.DeleteFunc(slices.Clone(unresolved), func(u apieffective.Unresolved) bool { return !ofManifest[u.Reason] })
	if len(missing) == 0 {
		l.True(kind, v1alpha1.ReasonResolved, "The credentials of all enabled accounts are resolved.")
		return
	}
	first := missing[0]
	message := fmt.Sprintf("Account %s: %s", first.Account, first.Message)
	if n := len(missing) - 1; n > 0 {
		message += fmt.Sprintf(" (and %d more)", n)
	}
	l.False(kind, first.Reason, message)
}

// ofManifest are the reasons that a change of a manifest or of its Secret ends.
var ofManifest = map[string]bool{
	v1alpha1.ReasonSecretNotFound: true, v1alpha1.ReasonKeyNotFound: true,
	v1alpha1.ReasonInvalidValue: true, v1alpha1.ReasonNotAllowed: true,
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

// setRefreshHealthy tells of the login that is in the worst state, of the first
// such in the manifest.
func setRefreshHealthy(l *conditions.List, pool *v1alpha1.AccountPool, lookup apieffective.Lookup) {
	const kind = v1alpha1.ConditionRefreshHealthy
	logins := loginsOf(pool, lookup)
	if len(logins) == 0 {
		l.True(kind, v1alpha1.ReasonNotApplicable, "No account needs to be refreshed.")
		return
	}
	worst, troubled := logins[0], 0
	for _, one := range logins {
		if trouble[one.login.State] > trouble[worst.login.State] {
			worst = one
		}
		if trouble[one.login.State] > 0 {
			troubled++
		}
	}
	if worst.login.State == "" {
		l.Unknown(kind, v1alpha1.ReasonLoginPending, fmt.Sprintf("Account %s: its login has not been taken over yet.", worst.account.Name))
		return
	}
	if troubled == 0 {
		l.True(kind, v1alpha1.ReasonRefreshing, "All logins are refreshed in time.")
		return
	}
	reason, message := worst.login.Problem(worst.account)
	if troubled > 1 {
		message += " (other accounts have trouble, too; status.accounts says which)"
	}
	l.False(kind, reason, fmt.Sprintf("Account %s: %s.", worst.account.Name, message))
}

// accountLogin is an account with what the operator keeps of its login; the
// state is empty when it keeps nothing.
type accountLogin struct {
	account *v1alpha1.Account
	login   apieffective.Login
}

// loginsOf are the logins of all OAuth accounts that shall take turns.
func loginsOf(pool *v1alpha1.AccountPool, lookup apieffective.Lookup) []accountLogin {
	var list []accountLogin
	for i := range pool.Spec.Accounts {
		a := &pool.Spec.Accounts[i]
		if a.OAuth == nil || a.State == v1alpha1.AccountDisabled {
			continue
		}
		login, _ := apieffective.HeldLogin(pool.Name, a.Name, lookup)
		list = append(list, accountLogin{account: a, login: login})
	}
	return list
}

// trouble orders states of logins by who has to act: a human before the operator.
var trouble = map[apieffective.LoginState]int{
	apieffective.LoginUnreachable: 1,
	apieffective.LoginUncertain:   2,
	apieffective.LoginRefused:     3,
	apieffective.LoginReauth:      4,
}
