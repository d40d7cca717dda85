package reports

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(d time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(d))
	return &t
}

// report is a ready pod that reported a moment ago.
func report(i int, change ...func(*corev1.Pod, *v1alpha1.BridgeReplica)) Report {
	name := fmt.Sprintf("chat-blue-%d", i)
	r := Report{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{v1alpha1.LabelSlot: "blue"}},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: *at(0)}}},
		},
		Replica: &v1alpha1.BridgeReplica{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.BridgeReplicaSpec{PodUID: "uid-" + name},
			Status: v1alpha1.BridgeReplicaStatus{
				ReportedAt: at(-time.Second), Sessions: &v1alpha1.ReplicaSessions{Active: 10, Draining: 2, Quarantined: 1},
			},
		},
	}
	for _, f := range change {
		f(r.Pod, r.Replica)
	}
	return r
}

func TestOnlyFreshReportsAreSummed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod, *v1alpha1.BridgeReplica)
		fresh  bool
	}{
		"a moment ago":   {func(*corev1.Pod, *v1alpha1.BridgeReplica) {}, true},
		"29 minutes ago": {func(_ *corev1.Pod, r *v1alpha1.BridgeReplica) { r.Status.ReportedAt = at(-29 * time.Minute) }, true},
		"30 minutes ago": {func(_ *corev1.Pod, r *v1alpha1.BridgeReplica) { r.Status.ReportedAt = at(-30 * time.Minute) }, false},
		"never":          {func(_ *corev1.Pod, r *v1alpha1.BridgeReplica) { r.Status.ReportedAt = nil }, false},
		"unready pod":    {func(p *corev1.Pod, _ *v1alpha1.BridgeReplica) { p.Status.Conditions = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := Merge([]Report{report(0), report(1, tc.change)}, now)
			want := Sessions{Active: 10, Draining: 2, Quarantined: 1}
			if tc.fresh {
				want = Sessions{Active: 20, Draining: 4, Quarantined: 2}
			}
			if m.Sessions != want || (m.Stale == 0) != tc.fresh {
				t.Errorf("got %+v, %d stale, want %+v", m.Sessions, m.Stale, want)
			}
		})
	}
}

func TestTheNextReportToBecomeStaleIsKnown(t *testing.T) {
	m := Merge([]Report{report(0), report(1, func(_ *corev1.Pod, r *v1alpha1.BridgeReplica) { r.Status.ReportedAt = at(-20 * time.Minute) })}, now)
	if want := now.Add(10 * time.Minute); !m.NextStale.Equal(want) {
		t.Errorf("got %v, want %v", m.NextStale, want)
	}
}

func TestJoinTrustsOnlyThePodsOwnUID(t *testing.T) {
	right, forged, gone := report(0), report(1), report(2)
	forged.Replica.Spec.PodUID = "another"
	gone.Pod.DeletionTimestamp = at(0)
	list := Join([]*corev1.Pod{gone.Pod, forged.Pod, right.Pod},
		[]*v1alpha1.BridgeReplica{right.Replica, forged.Replica, gone.Replica})
	if len(list) != 2 || list[0].Replica != right.Replica || list[1].Replica != nil {
		t.Errorf("got %d entries, want the right one, and the other without its forged report", len(list))
	}
}

func TestTheOrderOfReportsDoesNotMatter(t *testing.T) {
	var list []Report
	for i := range 8 {
		list = append(list, report(i, func(_ *corev1.Pod, r *v1alpha1.BridgeReplica) {
			for n := range 4 {
				r.Status.Circuits = append(r.Status.Circuits, v1alpha1.CircuitState{
					Scope: v1alpha1.CircuitScopeSession, Key: fmt.Sprintf("%012x", (i+n)%6), Reason: fmt.Sprintf("Reason%d", i),
					State: v1alpha1.CircuitOpen, Until: at(time.Duration(n) * time.Minute)})
			}
			r.Status.CircuitsOmitted = 2
		}))
	}
	first := Merge(list, now)
	if first.Open != 6+8*2 || first.HalfOpen != 0 || len(first.Circuits) != 6 {
		t.Errorf("%d open, %d half open, %d listed, want 6 and 16 that are not listed", first.Open, first.HalfOpen, len(first.Circuits))
	}
	for range 20 {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if diff := cmp.Diff(first, Merge(list, now)); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestCircuitsAreCountedOnceAndTheBroadestComesFirst(t *testing.T) {
	with := func(list ...v1alpha1.CircuitState) func(*corev1.Pod, *v1alpha1.BridgeReplica) {
		return func(_ *corev1.Pod, r *v1alpha1.BridgeReplica) { r.Status.Circuits = list }
	}
	session := v1alpha1.CircuitState{Scope: v1alpha1.CircuitScopeSession, Key: "aaaaaaaaaaaa", State: v1alpha1.CircuitOpen, Until: at(time.Hour)}
	half := v1alpha1.CircuitState{Scope: v1alpha1.CircuitScopeRoute, Key: "bbbbbbbbbbbb", State: v1alpha1.CircuitHalfOpen}
	open := half
	open.State = v1alpha1.CircuitOpen
	m := Merge([]Report{report(0, with(session, half)), report(1, with(open))}, now)
	if m.Open != 2 || m.HalfOpen != 0 || len(m.Circuits) != 2 || m.Circuits[0] != open {
		t.Errorf("got %d open, %d half-open, %+v, want 2, 0 and the open route first", m.Open, m.HalfOpen, m.Circuits)
	}
}
