package accountpool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/bundle"
	apieffective "github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers/internal/reports"
)

// What moves by less than this is shown as it was: replicas round a hint each on
// their own, and a status must not be written for that.
const (
	sameTime    = 5 * time.Second
	sameProbe   = 30 * time.Second
	sameWindow  = 2 * time.Minute
	samePercent = 5
)

// findings are what is known of accounts besides their manifest.
type findings struct {
	unresolved []apieffective.Unresolved
	reports    reports.Merged
	lookup     apieffective.Lookup
}

// accountsOf lists the accounts in the order of the manifest.
func accountsOf(pool *v1alpha1.AccountPool, accounts []bundle.Account, f findings, now time.Time) []v1alpha1.AccountStatus {
	broken := map[string]apieffective.Unresolved{}
	for _, u := range f.unresolved {
		broken[u.Account] = u
	}
	before := map[string]v1alpha1.AccountStatus{}
	for _, a := range pool.Status.Accounts {
		before[a.Name] = a
	}
	list := make([]v1alpha1.AccountStatus, 0, len(accounts))
	for i, a := range accounts[:min(len(accounts), v1alpha1.MaxStatusAccounts)] {
		seen, reported := f.reports.Accounts[a.Name]
		s := judge(a, broken[a.Name], seen, reported)
		if login, ok := apieffective.HeldLogin(pool.Name, a.Name, f.lookup); ok {
			s = renewed(s, login)
		}
		s = steady(s, before[a.Name], now)
		s.Message = cut(sentence(pool.Name, s, &pool.Spec.Accounts[i], broken[a.Name]), v1alpha1.MaxAccountMessage)
		list = append(list, s)
	}
	return list
}

// judge weighs what the manifest says, what the Secrets hold and what the
// proxies report, in this order.
func judge(a bundle.Account, broken apieffective.Unresolved, seen reports.Account, reported bool) v1alpha1.AccountStatus {
	s := v1alpha1.AccountStatus{Name: a.Name, Kind: v1alpha1.AccountKind(a.Kind), Usage: seen.Usage}
	switch {
	case a.State == bundle.AccountDisabled:
		s.State = v1alpha1.AccountConditionDisabled
	case broken.Reason == v1alpha1.ReasonReauthRequired:
		s.State, s.Reason = v1alpha1.AccountConditionReauthRequired, broken.Reason
	case broken.Reason != "":
		s.State, s.Reason = v1alpha1.AccountConditionUnknown, broken.Reason
	case a.State == bundle.AccountDraining:
		s.State = v1alpha1.AccountConditionDraining
	case !reported:
		s.State, s.Reason = v1alpha1.AccountConditionUnknown, v1alpha1.ReasonNoReports
	case seen.State == v1alpha1.AccountConditionDisabled || seen.State == v1alpha1.AccountConditionDraining:
		s.State, s.Reason = v1alpha1.AccountConditionUnknown, v1alpha1.ReasonConfigPending
	default:
		s.State, s.Reason, s.Until, s.NextProbe = seen.State, seen.Reason, seen.Until, seen.NextProbe
	}
	return s
}

// renewed is the account of a login that the operator can refresh: that proxies
// see its token rejected makes the operator refresh it, and asks nothing of a human.
func renewed(s v1alpha1.AccountStatus, login apieffective.Login) v1alpha1.AccountStatus {
	refreshed := login.State == apieffective.LoginRefreshing || login.State == apieffective.LoginUnreachable
	if s.State == v1alpha1.AccountConditionReauthRequired && s.Reason != v1alpha1.ReasonReauthRequired && !gone[s.Reason] && refreshed {
		s.State, s.Reason = v1alpha1.AccountConditionCoolingDown, reasonTokenRejected
	}
	return s
}

// steady keeps what is shown already where the new value tells nothing more.
func steady(s, old v1alpha1.AccountStatus, now time.Time) v1alpha1.AccountStatus {
	at := metav1.NewTime(now).Rfc3339Copy()
	s.LastTransitionTime = &at
	if old.State == s.State {
		if old.LastTransitionTime != nil {
			s.LastTransitionTime = old.LastTransitionTime
		}
		s.Until = unless(old.Until, s.Until, sameTime)
		s.NextProbe = unless(old.NextProbe, s.NextProbe, sameProbe)
	}
	for i, u := range s.Usage {
		at := slices.IndexFunc(old.Usage, func(o v1alpha1.UsageWindow) bool { return o.Window == u.Window })
		if at >= 0 && sameUsage(old.Usage[at], u) {
			s.Usage[i] = old.Usage[at]
		}
	}
	return s
}

// unless is the old time if the new one is about the same.
func unless(old, is *metav1.Time, distance time.Duration) *metav1.Time {
	if old == nil || is == nil {
		return is
	}
	if d := is.Sub(old.Time); d > distance || d < -distance {
		return is
	}
	return old
}

// sameUsage says whether nobody would act on the difference. That a window is
// used up is worth a write.
func sameUsage(old, is v1alpha1.UsageWindow) bool {
	d := is.UsedPercent - old.UsedPercent
	return d > -samePercent && d < samePercent && (is.UsedPercent == 100) == (old.UsedPercent == 100) &&
		(old.Minutes == nil) == (is.Minutes == nil) && (old.Minutes == nil || *old.Minutes == *is.Minutes) &&
		(old.ResetsAt == nil) == (is.ResetsAt == nil) && unless(old.ResetsAt, is.ResetsAt, sameWindow) == old.ResetsAt
}

// wanted says whether the account shall take turns and is known not to.
func wanted(s v1alpha1.AccountStatus) bool {
	switch s.State {
	case v1alpha1.AccountConditionUsable, v1alpha1.AccountConditionDisabled, v1alpha1.AccountConditionDraining:
		return false
	default:
		return s.Reason != v1alpha1.ReasonNoReports && s.Reason != v1alpha1.ReasonConfigPending
	}
}

// unusableOf is the line that kubectl get shows: as many accounts as fit, in the
// order of the manifest.
func unusableOf(accounts []v1alpha1.AccountStatus) string {
	var parts []string
	for _, a := range accounts {
		if !wanted(a) {
			continue
		}
		text := fmt.Sprintf("%s: %s", a.Name, a.State)
		if a.State == v1alpha1.AccountConditionUnknown {
			text = fmt.Sprintf("%s: %s", a.Name, a.Reason)
		}
		if a.Until != nil {
			text += " until " + minute(a.Until).Format("2006-01-02T15:04Z")
		}
		parts = append(parts, text)
	}
	const more = len("; and 64 more")
	line := ""
	for i, p := range parts {
		separated := strings.TrimPrefix(line+"; "+p, "; ")
		room := v1alpha1.MaxUnusable
		if i < len(parts)-1 {
			room -= more
		}
		if len(separated) > room {
			return fmt.Sprintf("%s; and %d more", line, len(parts)-i)
		}
		line = separated
	}
	return line
}

// minute rounds up, so that what is said to be over by then is.
func minute(t *metav1.Time) time.Time {
	up := t.UTC().Truncate(time.Minute)
	if up.Before(t.Time) {
		up = up.Add(time.Minute)
	}
	return up
}
