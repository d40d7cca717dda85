package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func half() float64 { return .5 }

// snapshot is a serving proxy with one account; edit changes it.
func snapshot(edit ...func(*Snapshot)) Snapshot {
	s := Snapshot{
		Config: Config{Generation: 3, Hash: "0123456789abcdef", CredentialsHash: "fedcba9876543210"}, Version: "v1",
		Sessions: Sessions{Active: 20}, Accounts: []Account{{Name: "a", State: "Usable", Inflight: 20}},
	}
	for _, e := range edit {
		e(&s)
	}
	return s
}

func TestNext(t *testing.T) {
	const never = -1
	full := newBudget(start, 0, half) // 17.5 s, 60 s, 600 s
	empty := full.spent(start).spent(start).spent(start)
	failed := full
	failed.notBefore = start.Add(8 * time.Second)
	active := func(n int) func(*Snapshot) { return func(s *Snapshot) { s.Sessions.Active = n } }
	cases := []struct {
		name   string
		age    time.Duration // of the last report; never = none
		edit   func(*Snapshot)
		budget budget
		wait   time.Duration // 0 = write
	}{
		{"the first report", never, nil, full, 0},
		{"the first report, after failures", never, nil, failed, 8 * time.Second},
		{"nothing changed", time.Minute, nil, full, 9 * time.Minute},
		{"nothing changed for long", 10 * time.Minute, nil, full, 0},
		{"new configuration", time.Second, func(s *Snapshot) { s.Config.Hash = "x" }, full, 0},
		{"new credentials", time.Second, func(s *Snapshot) { s.Config.CredentialsHash = "x" }, full, 0},
		{"rejected configuration", time.Second, func(s *Snapshot) { s.Config.Rejected = "VersionSkew" }, full, 0},
		{"another role", time.Second, func(s *Snapshot) { s.Role = v1alpha1.RoleDraining }, full, 0},
		{"an account cools down", time.Second, func(s *Snapshot) { s.Accounts[0].State = "CoolingDown" }, full, 0},
		{"an account more", time.Second, func(s *Snapshot) { s.Accounts = append(s.Accounts, Account{Name: "b"}) }, full, 0},
		{"no more numbers", time.Second, func(s *Snapshot) { s.NumbersOmitted = true }, full, 0},
		{"a change, but nothing left to spend", time.Second, func(s *Snapshot) { s.Config.Hash = "x" }, empty, 17500 * time.Millisecond},
		{"a change, after a failure", time.Second, func(s *Snapshot) { s.Config.Hash = "x" }, failed, 8 * time.Second},
		{"4 sessions of 50 more", 10 * time.Second, active(21), full, 590 * time.Second},
		{"a tenth more", 10 * time.Second, active(22), full, 50 * time.Second},
		{"a tenth more, a minute ago", time.Minute, active(22), full, 0},
		{"many fewer", 10 * time.Second, active(2), full, 50 * time.Second},
		{"older turn", 10 * time.Second, func(s *Snapshot) { s.Sessions.OldestTurn = time.Hour }, full, 50 * time.Second},
		{"longer cool-down", 10 * time.Second, func(s *Snapshot) { s.Accounts[0].Until = start.Add(time.Hour) }, full, 50 * time.Second},
		{"a circuit opens", time.Second, circuits(Circuit{Key: "aaaaaaaaaaaa"}), full, 0},
		{"a circuit opens, but nothing left to spend", time.Second, circuits(Circuit{Key: "aaaaaaaaaaaa"}), empty, 17500 * time.Millisecond},
		{"a session goes into quarantine", time.Second, func(s *Snapshot) { s.Sessions.Quarantined = 1 }, full, 0},
		{"T57: turns begin to fail", time.Second, func(s *Snapshot) { s.Turns = Turns{Ended: 20, Failed: 10} }, full, 0},
		{"some turns fail", 10 * time.Second, func(s *Snapshot) { s.Turns = Turns{Ended: 20, Failed: 9} }, full, 590 * time.Second},
		{"more turns on an account", 10 * time.Second, func(s *Snapshot) { s.Accounts[0].Inflight = 99 }, full, 50 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var last written
			if c.age != never {
				last = written{status: statusOf(snapshot()), at: start.Add(-c.age)}
			}
			current := snapshot()
			if c.edit != nil {
				c.edit(&current)
			}
			write, wait := next(start, last, statusOf(current), c.budget)
			if write != (c.wait == 0) || wait != c.wait {
				t.Errorf("write %v wait %s, want %v %s", write, wait, c.wait == 0, c.wait)
			}
		})
	}
}

// T57: what a slot without authority ends well proves the upstream innocent; a proxy
// that serves well need not say how many turns it serves.
func TestT57_WhoseTurnsAreWorthAWrite(t *testing.T) {
	status := func(role v1alpha1.ReplicaRole, turns Turns) v1alpha1.BridgeReplicaStatus {
		return statusOf(snapshot(func(s *Snapshot) { s.Role, s.Turns = role, turns }))
	}
	for _, c := range []struct {
		role   v1alpha1.ReplicaRole
		before Turns
		now    Turns
		want   bool
	}{
		{v1alpha1.RoleServing, Turns{Ended: 5}, Turns{Ended: 500}, false},
		{v1alpha1.RoleServing, Turns{Ended: 30, Failed: 20}, Turns{Ended: 40, Failed: 20}, true},
		{v1alpha1.RoleDraining, Turns{Ended: 5}, Turns{Ended: 6}, true},
		{v1alpha1.RoleDraining, Turns{Ended: 5}, Turns{Ended: 5}, false},
		{v1alpha1.RoleStandby, Turns{Ended: 5}, Turns{}, true},
	} {
		if got := moved(status(c.role, c.before), status(c.role, c.now)); got != c.want {
			t.Errorf("%s: %+v after %+v is worth a write: %v, want %v", c.role, c.now, c.before, got, c.want)
		}
	}
}

func TestDrainedToZeroIsMaterial(t *testing.T) {
	sessions := func(active, draining int) v1alpha1.BridgeReplicaStatus {
		return statusOf(snapshot(func(s *Snapshot) { s.Sessions = Sessions{Active: active, Draining: draining} }))
	}
	if !material(sessions(5, 1), sessions(5, 0)) {
		t.Error("the last draining session is no news")
	}
	if material(sessions(1, 0), sessions(0, 0)) {
		t.Error("an idle proxy that serves is news")
	}
	draining := func(active int) v1alpha1.BridgeReplicaStatus {
		return statusOf(snapshot(func(s *Snapshot) { s.Role, s.Sessions.Active = v1alpha1.RoleDraining, active }))
	}
	if !material(draining(1), draining(0)) {
		t.Error("a proxy that has drained is no news")
	}
}

func TestBudget(t *testing.T) {
	b := newBudget(start, 5*time.Second, func() float64 { return 0 })
	if b.interval != 5*time.Second || b.counters != 48*time.Second || b.fresh != 8*time.Minute {
		t.Errorf("distances without jitter: %+v", b)
	}
	now := start.Add(time.Hour) // a long quiet time earns no more than the burst
	for range burst {
		b = b.spent(now)
	}
	if b.tokens != 0 {
		t.Fatalf("%d tokens left, want 0", b.tokens)
	}
	for i, want := range []int{0, 1, 1, 2, 3, 3} {
		at := now.Add(time.Duration([]int{4, 5, 9, 10, 15, 100}[i]) * time.Second)
		if got := b.refilled(at).tokens; got != want {
			t.Errorf("after %s: %d tokens, want %d", at.Sub(now), got, want)
		}
	}
}

func TestStatusStaysWithinTheSchema(t *testing.T) {
	s := snapshot(func(s *Snapshot) {
		for range 100 {
			s.Accounts = append(s.Accounts, Account{Name: "x", State: "Usable", Inflight: 1 << 40})
		}
		s.Version, s.Config.Hash = string(make([]byte, 500)), string(make([]byte, 500))
		s.Config.Generation, s.Sessions.Active, s.Epoch = -1, -1, -1
	})
	got := statusOf(s)
	if len(got.Accounts) != v1alpha1.MaxStatusAccounts || len(got.Build.Version) != 64 || len(got.ObservedConfig.Hash) != 64 ||
		got.ObservedConfig.Generation != 0 || got.Sessions.Active != 0 || got.Epoch != 0 || got.Accounts[1].Inflight != 1<<31-1 {
		t.Errorf("out of bounds: %+v", got)
	}
}

func TestStatus(t *testing.T) {
	until := start.Add(1500 * time.Millisecond)
	got := statusOf(snapshot(func(s *Snapshot) {
		s.Sessions = Sessions{Active: 4, Draining: 1, Quarantined: 2, OldestTurn: 61 * time.Second}
		s.Accounts = []Account{{Name: "a", State: "CoolingDown", Reason: "RateLimited", Until: until, Inflight: 3}}
		s.Config.Rejected = "VersionSkew"
	}))
	oldest, none, second := int32(600), int32(0), metav1.NewTime(start.Add(time.Second))
	want := v1alpha1.BridgeReplicaStatus{
		ObservedConfig: &v1alpha1.ObservedConfig{Generation: 3, Hash: "0123456789abcdef", CredentialsHash: "fedcba9876543210",
			State: v1alpha1.ConfigRejected, Reason: "VersionSkew"},
		Build: &v1alpha1.Build{Version: "v1"}, Role: v1alpha1.RoleServing,
		Sessions:     &v1alpha1.ReplicaSessions{Active: 4, Draining: 1, Quarantined: 2, OldestActiveSeconds: &oldest},
		Accounts:     []v1alpha1.ReplicaAccount{{Name: "a", Inflight: 3, State: "CoolingDown", Reason: "RateLimited", Until: &second}},
		OpenCircuits: &none, Quarantine: &v1alpha1.ReplicaQuarantine{Count: 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for age, want := range map[time.Duration]int32{time.Second: 60, time.Minute: 60, time.Hour: 3600, 1000 * time.Hour: 86400} {
		if got := bucket(age); *got != want {
			t.Errorf("age %s is shown as %d, want %d", age, *got, want)
		}
	}
}
