package report

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Sessions is the state of all sessions of this proxy.
type Sessions struct {
	Active, Draining, Quarantined int
	// OldestTurn is the age of the oldest live turn; 0 = none.
	OldestTurn time.Duration
	// NotClosed counts retry circuits that are open or half open.
	NotClosed int
	// Circuits are some of those, in any order.
	Circuits []Circuit
	// Quarantines are some of the quarantined sessions, newest first.
	Quarantines []Quarantine
}

// Circuit is the retry circuit of a session, while it is not closed.
type Circuit struct {
	// Key is 12 hex digits of a digest; a circuit with any other is counted and
	// not listed.
	Key      string
	HalfOpen bool
	// Reason of the newest strike, one CamelCase word.
	Reason string
	// Until is when the state ends; zero = with the next turn.
	Until time.Time
}

// Quarantine is a session whose anchor is not used.
type Quarantine struct {
	Key, Reason string
	// Until is when an untouched record is forgotten; zero = not known.
	Until time.Time
}

// What moves on with each turn is rounded up, so that it makes no report of its own.
const (
	circuitGrain    = 10 * time.Second
	quarantineGrain = 10 * time.Minute
)

// What is shown has a form that no key, prompt or address has.
var (
	hashedKey = regexp.MustCompile(`^[0-9a-f]{12}$`)
	camelWord = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)
)

// noWord stands for a reason that is not one word.
const noWord = "Unknown"

// setSessions also counts and lists the circuits of routes, before those of
// sessions: they stop more traffic.
func setSessions(out *v1alpha1.BridgeReplicaStatus, s Sessions, routes []v1alpha1.CircuitState) {
	out.Sessions = &v1alpha1.ReplicaSessions{
		Active: count(s.Active), Draining: count(s.Draining), Quarantined: count(s.Quarantined),
		OldestActiveSeconds: bucket(s.OldestTurn),
	}
	sessions := circuitsOf(s.Circuits)
	open := count(max(s.NotClosed, len(sessions)) + len(routes))
	slices.SortFunc(routes, byTime)
	out.Circuits = append(routes, sessions...)
	out.Circuits = out.Circuits[:min(len(out.Circuits), v1alpha1.MaxStatusCircuits)]
	listed := count(len(out.Circuits))
	out.OpenCircuits, out.CircuitsOmitted = &open, open-listed
	out.Quarantine = quarantineOf(s)
}

// circuitsOf lists those that stay longest, in an order that depends on nothing
// but the list's content.
func circuitsOf(all []Circuit) []v1alpha1.CircuitState {
	var out []v1alpha1.CircuitState
	for _, c := range all {
		if !hashedKey.MatchString(c.Key) {
			continue
		}
		state := v1alpha1.CircuitState{
			Scope: v1alpha1.CircuitScopeSession, Key: c.Key, State: v1alpha1.CircuitOpen,
			Reason: word(c.Reason, ""), Until: roundedUp(c.Until, circuitGrain),
		}
		if c.HalfOpen {
			state.State = v1alpha1.CircuitHalfOpen
		}
		out = append(out, state)
	}
	slices.SortFunc(out, byTime)
	return out[:min(len(out), v1alpha1.MaxStatusCircuits)]
}

// byTime puts first what stays longest.
func byTime(a, b v1alpha1.CircuitState) int {
	return cmp.Or(-cmp.Compare(unix(a.Until), unix(b.Until)), cmp.Compare(a.Key, b.Key), cmp.Compare(a.State, b.State))
}

func quarantineOf(s Sessions) *v1alpha1.ReplicaQuarantine {
	out := &v1alpha1.ReplicaQuarantine{Count: count(s.Quarantined)}
	for _, q := range s.Quarantines {
		if len(out.Recent) == v1alpha1.MaxRecentQuarantine {
			break
		}
		if hashedKey.MatchString(q.Key) {
			out.Recent = append(out.Recent, v1alpha1.QuarantineEntry{
				Key: q.Key, Reason: word(q.Reason, noWord), Until: roundedUp(q.Until, quarantineGrain)})
		}
	}
	return out
}

func word(text, otherwise string) string {
	if camelWord.MatchString(text) {
		return text
	}
	return otherwise
}

// roundedUp is the next whole grain; nil for no time at all.
func roundedUp(t time.Time, grain time.Duration) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	up := t.UTC().Truncate(grain)
	if up.Before(t) {
		up = up.Add(grain)
	}
	out := metav1.NewTime(up)
	return &out
}

func unix(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// turned says whether a circuit opened, closed or became half open, or the
// first session went into quarantine or the last one left it.
func turned(a, b v1alpha1.BridgeReplicaStatus) bool {
	if len(a.Circuits) != len(b.Circuits) || (notClosed(a) == 0) != (notClosed(b) == 0) || (quarantined(a) == 0) != (quarantined(b) == 0) {
		return true
	}
	was := make(map[string]v1alpha1.CircuitPosition, len(a.Circuits))
	for _, c := range a.Circuits {
		was[string(c.Scope)+c.Key] = c.State
	}
	for _, c := range b.Circuits {
		if was[string(c.Scope)+c.Key] != c.State {
			return true
		}
	}
	return false
}

// shifted says whether circuits or quarantine changed otherwise. When untouched
// records are forgotten is not worth a write.
func shifted(a, b v1alpha1.BridgeReplicaStatus) bool {
	if far(notClosed(a), notClosed(b)) {
		return true
	}
	for i := range min(len(a.Circuits), len(b.Circuits)) {
		x, y := a.Circuits[i], b.Circuits[i]
		if x.Key != y.Key || x.Reason != y.Reason || !x.Until.Equal(y.Until) {
			return true
		}
	}
	return a.Quarantine != nil && b.Quarantine != nil &&
		!slices.EqualFunc(a.Quarantine.Recent, b.Quarantine.Recent, func(x, y v1alpha1.QuarantineEntry) bool {
			return x.Key == y.Key && x.Reason == y.Reason
		})
}

func notClosed(s v1alpha1.BridgeReplicaStatus) int32 {
	if s.OpenCircuits == nil {
		return 0
	}
	return *s.OpenCircuits
}

func quarantined(s v1alpha1.BridgeReplicaStatus) int32 {
	if s.Quarantine == nil {
		return 0
	}
	return s.Quarantine.Count
}
