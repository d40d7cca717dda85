package reports

import (
	"cmp"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// Account is the merged view of one account.
type Account struct {
	State  v1alpha1.AccountCondition
	Reason string
	// Since is when the proxy that says so learned it; nil = not known.
	Since *metav1.Time
	Until *metav1.Time
	// NextProbe is when the first proxy tries whether the state has ended.
	NextProbe *metav1.Time
	// Usage of the quota windows, by name; what no proxy knows is not listed.
	Usage []v1alpha1.UsageWindow
}

// mergeAccount makes one view of what fresh replicas say of one account:
//
//  1. Who does not know it, or has not heard yet that its state in the spec has
//     changed, counts only if nobody else speaks, and so does a claim whose time
//     is over, or that is about a credential that others have replaced already.
//  2. A proof that it cannot be used (quota, login) counts for all replicas, the
//     newest first, until a replica has used it after that.
//  3. Else it is usable if any replica can use it: a failed connect of one says
//     nothing about the others.
//  4. Else it cools down until the last replica takes it again.
//
// The order of the claims does not matter.
func mergeAccount(claims []v1alpha1.ReplicaAccount, now time.Time) Account {
	counts := heard(claims, now)
	best := slices.MinFunc(counts, func(a, b v1alpha1.ReplicaAccount) int { return stronger(a, b, lastUse(counts)) })
	merged := Account{State: best.State, Reason: best.Reason, Since: best.Since, Until: best.Until, Usage: mergeUsage(claims, now)}
	for _, c := range counts {
		if c.State == best.State && c.NextProbe != nil && (merged.NextProbe == nil || c.NextProbe.Before(merged.NextProbe)) {
			merged.NextProbe = c.NextProbe
		}
	}
	return merged
}

// What a claim is worth: nothing said, nothing known any more, said for sure.
const (
	silent = iota
	lapsed
	firm
)

// heard are the claims of the best standing that there is.
func heard(claims []v1alpha1.ReplicaAccount, now time.Time) []v1alpha1.ReplicaAccount {
	var newest int64
	for _, c := range claims {
		newest = max(newest, c.CredentialGeneration)
	}
	best := silent
	for _, c := range claims {
		best = max(best, standing(c, newest, now))
	}
	return slices.DeleteFunc(slices.Clone(claims), func(c v1alpha1.ReplicaAccount) bool { return standing(c, newest, now) < best })
}

// standing of a claim, newest being the latest credential that anybody has.
func standing(c v1alpha1.ReplicaAccount, newest int64, now time.Time) int {
	rejected := c.State == v1alpha1.AccountConditionReauthRequired
	switch {
	case c.State == v1alpha1.AccountConditionUsable:
		return firm
	case !passing(c.State) && !rejected:
		return silent // Unknown; Disabled and Draining are the spec's word, which the reader has at first hand
	case c.Until != nil && !now.Before(c.Until.Time), rejected && c.CredentialGeneration < newest:
		return lapsed
	default:
		return firm
	}
}

func passing(s v1alpha1.AccountCondition) bool {
	return s == v1alpha1.AccountConditionCoolingDown || s == v1alpha1.AccountConditionQuotaExhausted
}

func proof(s v1alpha1.AccountCondition) bool {
	return s == v1alpha1.AccountConditionQuotaExhausted || s == v1alpha1.AccountConditionReauthRequired
}

// lastUse is when a replica last found out that the account can be used again.
func lastUse(claims []v1alpha1.ReplicaAccount) int64 {
	var last int64
	for _, c := range claims {
		if c.State == v1alpha1.AccountConditionUsable {
			last = max(last, unix(c.Since))
		}
	}
	return last
}

// rank orders claims as the rules of mergeAccount do; the lowest counts.
func rank(c v1alpha1.ReplicaAccount, used int64) int {
	switch {
	case proof(c.State) && (used == 0 || unix(c.Since) >= used):
		return 0
	case c.State == v1alpha1.AccountConditionUsable:
		return 1
	default:
		return 2
	}
}

func stronger(a, b v1alpha1.ReplicaAccount, used int64) int {
	ra, rb := rank(a, used), rank(b, used)
	if ra != rb {
		return cmp.Compare(ra, rb)
	}
	if ra == 0 {
		if newer := cmp.Compare(unix(b.Since), unix(a.Since)); newer != 0 {
			return newer
		}
	}
	return cmp.Or(
		cmp.Compare(severity[b.State], severity[a.State]),
		cmp.Compare(unix(b.Until), unix(a.Until)),
		cmp.Compare(a.Reason, b.Reason),
		cmp.Compare(unix(b.Since), unix(a.Since)),
	)
}

// severity orders account states: what needs a human before what passes by
// itself, before what is fine.
var severity = map[v1alpha1.AccountCondition]int{
	v1alpha1.AccountConditionUnknown:        0,
	v1alpha1.AccountConditionUsable:         1,
	v1alpha1.AccountConditionDraining:       2,
	v1alpha1.AccountConditionDisabled:       3,
	v1alpha1.AccountConditionCoolingDown:    4,
	v1alpha1.AccountConditionQuotaExhausted: 5,
	v1alpha1.AccountConditionReauthRequired: 6,
}

// sameWindow is how far apart replicas may see the end of one window: the hint
// they got it from is relative, and so is its rounding.
const sameWindow = 2 * time.Minute

// mergeUsage takes of each window what is newest: the window that ends last, and
// within one window the highest use, since it never falls. A window that is over
// is not known any more.
func mergeUsage(claims []v1alpha1.ReplicaAccount, now time.Time) []v1alpha1.UsageWindow {
	byName := map[string][]v1alpha1.UsageWindow{}
	for _, c := range claims {
		for _, u := range c.Usage {
			if u.ResetsAt == nil || now.Before(u.ResetsAt.Time) {
				byName[u.Window] = append(byName[u.Window], u)
			}
		}
	}
	names := slices.Sorted(maps.Keys(byName))
	var list []v1alpha1.UsageWindow
	for _, name := range names[:min(len(names), v1alpha1.MaxUsageWindows)] {
		list = append(list, newest(byName[name]))
	}
	return list
}

func newest(seen []v1alpha1.UsageWindow) v1alpha1.UsageWindow {
	last := slices.MaxFunc(seen, func(a, b v1alpha1.UsageWindow) int { return cmp.Compare(unix(a.ResetsAt), unix(b.ResetsAt)) })
	best := last
	for _, u := range seen {
		if unix(last.ResetsAt)-unix(u.ResetsAt) > int64(sameWindow.Seconds()) {
			continue
		}
		best.UsedPercent = max(best.UsedPercent, u.UsedPercent)
		if u.Minutes != nil && (best.Minutes == nil || *best.Minutes < *u.Minutes) {
			best.Minutes = u.Minutes
		}
	}
	return best
}
