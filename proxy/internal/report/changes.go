package report

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// What moves by less is not worth a report of its own.
const (
	probeGrain  = 30 * time.Second
	windowGrain = 2 * time.Minute
	usageGrain  = 5
)

// dates remembers when the state of each account was first seen, for those that
// do not know it themselves.
type dates map[string]dated

type dated struct {
	state string
	until time.Time
	// since is zero for a usable account against which nothing was ever held.
	since time.Time
}

// date fills in when the proxy learned of the state of each account.
func (d dates) date(accounts []Account, now time.Time) []Account {
	out := make([]Account, len(accounts))
	names := make(map[string]bool, len(accounts))
	for i, a := range accounts {
		names[a.Name] = true
		last := d[a.Name]
		next := dated{state: a.State, until: a.Until, since: last.since}
		switch usable := a.State == string(v1alpha1.AccountConditionUsable); {
		case !usable && (last.state != a.State || a.Until.Sub(last.until) > circuitGrain):
			next.since = now
		case usable && last.state != a.State:
			// Only what was held against it can be disproved.
			if next.since = now; !held[v1alpha1.AccountCondition(last.state)] {
				next.since = time.Time{}
			}
		}
		d[a.Name] = next
		if a.Since.IsZero() {
			a.Since = next.since
		}
		out[i] = a
	}
	maps.DeleteFunc(d, func(name string, _ dated) bool { return !names[name] })
	return out
}

// held are the states that evidence against an account brings about.
var held = map[v1alpha1.AccountCondition]bool{
	v1alpha1.AccountConditionCoolingDown: true, v1alpha1.AccountConditionQuotaExhausted: true, v1alpha1.AccountConditionReauthRequired: true,
}

// accountsTurned says whether an account became usable, ceased to be, or is not
// usable for another reason.
func accountsTurned(a, b []v1alpha1.ReplicaAccount) bool {
	for i := range a {
		x, y := a[i], b[i]
		usable := x.State == v1alpha1.AccountConditionUsable && y.State == x.State
		if x.Name != y.Name || x.State != y.State || x.Reason != y.Reason && !usable {
			return true
		}
	}
	return false
}

// accountsMoved says whether a number or a time of an account changed enough.
func accountsMoved(a, b []v1alpha1.ReplicaAccount) bool {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if far(x.Inflight, y.Inflight) || x.Reason != y.Reason || !x.Until.Equal(y.Until) ||
			apart(x.NextProbe, y.NextProbe, probeGrain) || usageMoved(x.Usage, y.Usage) {
			return true
		}
	}
	return false
}

func usageMoved(a, b []v1alpha1.UsageWindow) bool {
	if len(a) != len(b) {
		return true
	}
	for i := range a {
		x, y := a[i], b[i]
		d := x.UsedPercent - y.UsedPercent
		if x.Window != y.Window || d >= usageGrain || d <= -usageGrain || (x.UsedPercent == 100) != (y.UsedPercent == 100) ||
			!same(x.Minutes, y.Minutes) || apart(x.ResetsAt, y.ResetsAt, windowGrain) {
			return true
		}
	}
	return false
}

func apart(a, b *metav1.Time, grain time.Duration) bool {
	if a == nil || b == nil {
		return a != b
	}
	d := a.Sub(b.Time)
	return d > grain || d < -grain
}

// routesMoved says whether the breakers differ in more than what turned tells.
func routesMoved(a, b v1alpha1.BridgeReplicaStatus) bool {
	if len(a.Routes) != len(b.Routes) || a.RoutesOmitted != b.RoutesOmitted {
		return true
	}
	for i := range a.Routes {
		x, y := a.Routes[i], b.Routes[i]
		if x.Key != y.Key || x.State != y.State || x.Openings != y.Openings || x.Reason != y.Reason || !x.OpenUntil.Equal(y.OpenUntil) {
			return true
		}
	}
	return false
}

func lanesMoved(a, b []v1alpha1.LaneStatus) bool {
	if len(a) != len(b) {
		return true
	}
	for i := range a {
		x, y := a[i], b[i]
		if x.Lane != y.Lane || x.Mode != y.Mode || !same(x.Limit, y.Limit) || far(x.Inflight, y.Inflight) || far(x.Queued, y.Queued) {
			return true
		}
	}
	return false
}
