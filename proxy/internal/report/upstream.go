package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Account is how one account is for this proxy.
type Account struct {
	Name string
	// State is one of v1alpha1.AccountCondition*, Reason one CamelCase word.
	State, Reason string
	// Since is when that was learned on which State is based; zero = when the
	// reporter first saw it.
	Since time.Time
	// Until is when State ends by itself; zero = not by itself.
	Until time.Time
	// NextProbe is when a turn is let through to see whether State has ended
	// already; zero = none is.
	NextProbe time.Time
	// Inflight counts live turns.
	Inflight int
	// Generation is the operator's number of the credential that State is about; 0
	// = it has none.
	Generation int64
	// Usage of the quota windows that are known.
	Usage []Window
}

// Window is how much of one quota window is used.
type Window struct {
	// Name is one CamelCase word of at most 16 letters.
	Name string
	// Length of the window; 0 = not known.
	Length time.Duration
	// UsedPercent is cut to 0..100.
	UsedPercent float64
	// ResetsAt is when it begins anew; zero = not known.
	ResetsAt time.Time
}

// Route is the breaker of one upstream route.
type Route struct {
	// Key is host, API family and transport.
	Key string
	// State is one of v1alpha1.Route*, or that in snake_case; a route in any other
	// is counted and not listed.
	State string
	// OpenUntil is when the next probe is let through; zero = turns are.
	OpenUntil time.Time
	// Openings in a row.
	Openings int
	// Reason is why it is open or half open, in CamelCase or snake_case.
	Reason string
}

// Lane is how full one lane is.
type Lane struct {
	// Lane is one of v1alpha1.Lane*; any other is left out.
	Lane             string
	Inflight, Queued int
	// Limit of turns at once; 0 = unlimited.
	Limit int
}

var (
	routeKey  = regexp.MustCompile(`^[-A-Za-z0-9.:_/\[\]]+$`)
	snakeWord = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

func setAccounts(out *v1alpha1.BridgeReplicaStatus, accounts []Account) {
	for _, a := range accounts[:min(len(accounts), v1alpha1.MaxStatusAccounts)] {
		out.Accounts = append(out.Accounts, v1alpha1.ReplicaAccount{
			Name: a.Name, Inflight: count(a.Inflight), State: v1alpha1.AccountCondition(a.State), Reason: word(a.Reason, ""),
			Since: second(a.Since), Until: second(a.Until), NextProbe: second(a.NextProbe), Usage: usageOf(a.Usage),
			CredentialGeneration: max(a.Generation, 0),
		})
	}
}

// usageOf lists windows by name, each once.
func usageOf(windows []Window) []v1alpha1.UsageWindow {
	var list []v1alpha1.UsageWindow
	for _, w := range windows {
		if len(w.Name) > v1alpha1.MaxUsageWindow || !camelWord.MatchString(w.Name) {
			continue
		}
		u := v1alpha1.UsageWindow{Window: w.Name, UsedPercent: percent(w.UsedPercent), ResetsAt: second(w.ResetsAt)}
		if minutes := int32(min(w.Length/time.Minute, v1alpha1.MaxUsageMinutes)); minutes > 0 { //nolint:gosec // bounded just now
			u.Minutes = &minutes
		}
		list = append(list, u)
	}
	slices.SortStableFunc(list, func(a, b v1alpha1.UsageWindow) int { return cmp.Compare(a.Window, b.Window) })
	list = slices.CompactFunc(list, func(a, b v1alpha1.UsageWindow) bool { return a.Window == b.Window })
	return list[:min(len(list), v1alpha1.MaxUsageWindows)]
}

// percent rounds down: what is not used up must not look like it.
func percent(used float64) int32 {
	if !(used > 0) { // also NaN
		return 0
	}
	return int32(min(used, 100))
}

// routesOf lists the routes, those that stop traffic first.
func routesOf(routes []Route) (list []v1alpha1.RouteStatus, omitted int32) {
	for _, r := range routes {
		state := v1alpha1.RoutePosition(camel(r.State))
		if _, ok := routeOrder[state]; !ok || !routeKey.MatchString(r.Key) {
			omitted++
			continue
		}
		list = append(list, v1alpha1.RouteStatus{
			Key: routeName(r.Key), State: state, OpenUntil: roundedUp(r.OpenUntil, circuitGrain),
			Openings: count(r.Openings), Reason: word(camel(r.Reason), ""),
		})
	}
	slices.SortFunc(list, func(a, b v1alpha1.RouteStatus) int {
		return cmp.Or(cmp.Compare(routeOrder[a.State], routeOrder[b.State]), cmp.Compare(b.Openings, a.Openings), cmp.Compare(a.Key, b.Key))
	})
	if cut := len(list) - v1alpha1.MaxStatusRoutes; cut > 0 {
		list, omitted = list[:v1alpha1.MaxStatusRoutes], omitted+count(cut)
	}
	return list, omitted
}

var routeOrder = map[v1alpha1.RoutePosition]int{v1alpha1.RouteOpen: 0, v1alpha1.RouteHalfOpen: 1, v1alpha1.RouteClosed: 2}

// routeCircuits are the routes among the circuits that are not closed; all of
// them fit, because routes are few.
func routeCircuits(routes []Route) []v1alpha1.CircuitState {
	var list []v1alpha1.CircuitState
	for _, r := range routes {
		c := v1alpha1.CircuitState{Scope: v1alpha1.CircuitScopeRoute, Key: digest(r.Key), State: v1alpha1.CircuitPosition(camel(r.State)),
			Reason: word(camel(r.Reason), ""), Until: roundedUp(r.OpenUntil, circuitGrain)}
		if c.State != v1alpha1.CircuitOpen && c.State != v1alpha1.CircuitHalfOpen {
			continue
		}
		if routeKey.MatchString(r.Key) {
			c.Name = routeName(r.Key)
		}
		list = append(list, c)
	}
	return list
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// routeName is the key, cut so that two that differ stay different.
func routeName(key string) string {
	if len(key) <= v1alpha1.MaxRouteKey {
		return key
	}
	mark := "~" + digest(key)
	return key[:v1alpha1.MaxRouteKey-len(mark)] + mark
}

// camel turns a word of logs into one of the API.
func camel(text string) string {
	if !snakeWord.MatchString(text) {
		return text
	}
	parts := strings.Split(text, "_")
	for i, p := range parts {
		parts[i] = strings.ToUpper(p[:1]) + p[1:]
	}
	return strings.Join(parts, "")
}

func lanesOf(lanes []Lane) []v1alpha1.LaneStatus {
	var list []v1alpha1.LaneStatus
	for _, l := range lanes {
		at := slices.Index(knownLanes, v1alpha1.Lane(l.Lane))
		if at < 0 || slices.ContainsFunc(list, func(s v1alpha1.LaneStatus) bool { return s.Lane == knownLanes[at] }) {
			continue
		}
		s := v1alpha1.LaneStatus{Lane: knownLanes[at], Inflight: count(l.Inflight), Queued: count(l.Queued), Mode: v1alpha1.BulkheadUnlimited}
		if l.Limit > 0 {
			limit := count(l.Limit)
			s.Mode, s.Limit = v1alpha1.BulkheadLimited, &limit
		}
		list = append(list, s)
	}
	return list
}

var knownLanes = []v1alpha1.Lane{
	v1alpha1.LaneHTTP, v1alpha1.LaneWebSocket, v1alpha1.LaneCompact, v1alpha1.LaneMedia, v1alpha1.LaneBackground,
}

// second cuts to what the API keeps; nil for no time at all.
func second(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	out := metav1.NewTime(t.UTC().Truncate(time.Second))
	return &out
}
