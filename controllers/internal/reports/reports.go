// Package reports merges what proxies report into what their BridgePolicy and
// AccountPool show. It is pure.
package reports

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// StaleAfter is the age at which a report no longer counts. Proxies write at
// least every 10 minutes, so two lost reports in a row are forgiven.
const StaleAfter = 30 * time.Minute

// Report is a live pod with its BridgeReplica; Replica is nil until there is one.
type Report struct {
	Pod     *corev1.Pod
	Replica *v1alpha1.BridgeReplica
}

// Join pairs pods with the BridgeReplicas that bear their name and UID. Pods
// that are gone or on their way out have no entry, nor has a BridgeReplica
// that claims another pod.
func Join(pods []*corev1.Pod, replicas []*v1alpha1.BridgeReplica) []Report {
	byUID := make(map[string]*v1alpha1.BridgeReplica, len(replicas))
	for _, r := range replicas {
		byUID[r.Name+"/"+r.Spec.PodUID] = r
	}
	var list []Report
	for _, p := range pods {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			list = append(list, Report{Pod: p, Replica: byUID[p.Name+"/"+string(p.UID)]})
		}
	}
	slices.SortFunc(list, func(a, b Report) int { return cmp.Compare(a.Pod.Name, b.Pod.Name) })
	return list
}

// Ready says whether the pod is ready.
func (r Report) Ready() bool { return !r.ReadySince().IsZero() }

// ReadySince is when the pod became ready; zero when it is not.
func (r Report) ReadySince() time.Time {
	for _, c := range r.Pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// Ended says whether no process of the pod runs, so that nothing goes on in it.
func (r Report) Ended() bool {
	for _, c := range r.Pod.Status.ContainerStatuses {
		if c.State.Running != nil {
			return false
		}
	}
	return len(r.Pod.Status.ContainerStatuses) > 0
}

// Slot of the pod.
func (r Report) Slot() v1alpha1.SlotName {
	return v1alpha1.SlotName(r.Pod.Labels[v1alpha1.LabelSlot])
}

// FreshUntil is when the report ceases to count; zero when it does not count now.
func (r Report) FreshUntil(now time.Time) time.Time {
	if !r.Ready() || r.Replica == nil || r.Replica.Status.ReportedAt == nil {
		return time.Time{}
	}
	until := r.Replica.Status.ReportedAt.Add(StaleAfter)
	if !now.Before(until) {
		return time.Time{}
	}
	return until
}

// Sessions are sums over fresh reports.
type Sessions struct{ Active, Draining, Quarantined int32 }

// Merged is the sum of the reports of a fleet.
type Merged struct {
	Fresh, Stale int32
	// NextStale is when the next fresh report becomes stale; zero when none is fresh.
	NextStale time.Time
	Sessions  Sessions
	// SlotSessions are the active sessions by slot.
	SlotSessions map[v1alpha1.SlotName]int32
	Accounts     map[string]Account
	Open         int32
	HalfOpen     int32
	// Circuits are the distinct circuits that are not closed, most telling first.
	Circuits []v1alpha1.CircuitState
}

// Merge sums fresh reports and counts stale ones.
func Merge(list []Report, now time.Time) Merged {
	m := Merged{SlotSessions: map[v1alpha1.SlotName]int32{}, Accounts: map[string]Account{}}
	circuits := map[circuitKey]v1alpha1.CircuitState{}
	accounts := map[string][]v1alpha1.ReplicaAccount{}
	for _, r := range list {
		until := r.FreshUntil(now)
		if until.IsZero() {
			m.Stale++
			continue
		}
		m.Fresh++
		if m.NextStale.IsZero() || until.Before(m.NextStale) {
			m.NextStale = until
		}
		m.add(r, circuits)
		for _, a := range r.Replica.Status.Accounts {
			accounts[a.Name] = append(accounts[a.Name], a)
		}
	}
	m.finish(circuits)
	for name, claims := range accounts {
		m.Accounts[name] = mergeAccount(claims, now)
	}
	return m
}

func (m *Merged) add(r Report, circuits map[circuitKey]v1alpha1.CircuitState) {
	s := r.Replica.Status
	if s.Sessions != nil {
		m.Sessions.Active += s.Sessions.Active
		m.Sessions.Draining += s.Sessions.Draining
		m.Sessions.Quarantined += s.Sessions.Quarantined
		m.SlotSessions[r.Slot()] += s.Sessions.Active
	}
	m.Open += s.CircuitsOmitted
	for _, c := range s.Circuits {
		key := circuitKey{c.Scope, c.Key}
		if have, ok := circuits[key]; !ok || moreTelling(c, have) < 0 {
			circuits[key] = c
		}
	}
}

type circuitKey struct {
	scope v1alpha1.CircuitScope
	key   string
}

func (m *Merged) finish(circuits map[circuitKey]v1alpha1.CircuitState) {
	for _, c := range circuits {
		m.Circuits = append(m.Circuits, c)
		if c.State == v1alpha1.CircuitHalfOpen {
			m.HalfOpen++
		} else {
			m.Open++
		}
	}
	slices.SortFunc(m.Circuits, moreTelling)
}

// breadth orders scopes by how much traffic they stop.
var breadth = map[v1alpha1.CircuitScope]int{
	v1alpha1.CircuitScopeProvider: 0,
	v1alpha1.CircuitScopeRoute:    1,
	v1alpha1.CircuitScopeAccount:  2,
	v1alpha1.CircuitScopeSession:  3,
}

func moreTelling(a, b v1alpha1.CircuitState) int {
	return cmp.Or(
		cmp.Compare(breadth[a.Scope], breadth[b.Scope]),
		-cmp.Compare(a.State, b.State), // Open, the later word, comes first
		-cmp.Compare(unix(a.Until), unix(b.Until)),
		cmp.Compare(a.Key, b.Key),
		cmp.Compare(a.Reason, b.Reason),
	)
}

func unix(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// Acknowledged says whether the proxy serves the documents of these hashes.
// One form of the answer carries both in one word, the other apart.
func Acknowledged(seen *v1alpha1.ObservedConfig, bundleHash, credentialsHash string) bool {
	return seen != nil && seen.State == v1alpha1.ConfigApplied && about(seen, bundleHash, credentialsHash)
}

// Refused says whether the proxy refused the documents of these hashes. A
// proxy that could not even read the hash refuses what it was given.
func Refused(seen *v1alpha1.ObservedConfig, bundleHash, credentialsHash string) bool {
	return seen != nil && seen.State == v1alpha1.ConfigRejected &&
		(seen.Hash == "" || seen.Hash == bundleHash || about(seen, bundleHash, credentialsHash))
}

func about(seen *v1alpha1.ObservedConfig, bundleHash, credentialsHash string) bool {
	return seen.Hash == ConfigHash(bundleHash, credentialsHash) ||
		seen.Hash == bundleHash && seen.CredentialsHash == credentialsHash
}

// ConfigHash names both documents in one word.
func ConfigHash(bundleHash, credentialsHash string) string { return bundleHash + "." + credentialsHash }
