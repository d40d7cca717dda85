package session

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// builtIn is the policy of the built-in profile.
var builtIn = Policy{Threshold: 2, Base: time.Minute, Max: 10 * time.Minute, CleanCloseMax: 30 * time.Second,
	ProbeLease: time.Minute, Life: time.Hour, Eventless: 2, Retain: time.Hour}

var t0 = time.Unix(1_000_000, 0)

// story applies events to a record, each a second after the one before.
type story struct {
	record Record
	now    time.Time
}

func newStory() *story {
	return &story{record: Record{Account: "a", Anchor: anchorOf(AnchorGood, "a", 7), Version: 3}, now: t0}
}

func (s *story) at(d time.Duration) *story { s.now = t0.Add(d); return s }

func (s *story) tell(e Event) *story {
	s.now = s.now.Add(time.Second)
	s.record = Apply(s.record, e, s.now)
	return s
}

// send notes an attempt and returns its number.
func (s *story) send() int64 {
	s.tell(Event{Sent: &Sent{Account: "a", Model: "m"}})
	return s.record.Health.Sequence
}

func (s *story) strike(class StrikeClass, anchor string) *story {
	n := s.send()
	return s.tell(Event{Struck: &Struck{Attempt: fmt.Sprint("t", n, "/0"), Turn: fmt.Sprint("t", n), Sequence: n, Class: class, Anchor: anchor, Policy: builtIn}})
}

func (s *story) circuit() string {
	state, until := s.record.Health.Circuit(builtIn, s.now)
	if until.IsZero() {
		return state.String()
	}
	return fmt.Sprint(state, " ", until.Sub(s.now))
}

func TestApply(t *testing.T) {
	good := Record{Account: "a", Anchor: anchorOf(AnchorGood, "a", 7), Version: 3}
	for _, tc := range []struct {
		name   string
		event  Event
		status AnchorStatus
		moved  bool // whether the version rises
	}{
		{"denied", Event{Denied: "r1"}, AnchorDead, true},
		{"denied is another one: it is remembered", Event{Denied: "r0"}, AnchorGood, true},
		{"wedged", Event{Wedged: &Wedged{Anchor: "r1", Generation: 9}}, AnchorSuspect, true},
		{"its socket is gone", Event{ConnectionGone: 7}, AnchorDead, true},
		{"another socket is gone", Event{ConnectionGone: 8}, AnchorGood, false},
		{"sent elsewhere", Event{Sent: &Sent{Account: "b"}}, AnchorDead, true},
		{"sent here", Event{Sent: &Sent{Account: "a"}}, AnchorGood, true},
		{"another process", Event{Moved: true}, AnchorDead, true},
		{"nothing", Event{}, AnchorGood, false},
	} {
		next := Apply(good, tc.event, t0)
		if next.Anchor.Status != tc.status || (next.Version > good.Version) != tc.moved {
			t.Errorf("%s: %v, version %d", tc.name, next.Anchor.Status, next.Version)
		}
		if good.Anchor.Status != AnchorGood || good.Version != 3 {
			t.Fatalf("%s changed its argument", tc.name)
		}
	}
}

func TestScenario6_ASuspectAnchorDoesNotExpire(t *testing.T) {
	s := newStory()
	for range 6 {
		s.strike(StrikeIncomplete, "r1")
	}
	s.now = s.record.Health.StruckAt.Add(10 * time.Minute)
	if got := s.circuit(); got != "half_open" {
		t.Fatalf("at exactly the end of the cool-down the circuit is %s", got)
	}
	if s.record.Anchor.Status == AnchorGood {
		t.Fatal("the probe would carry the anchor that opened the circuit")
	}
	s.now = s.now.Add(24 * time.Hour)
	if s.record.Anchor.Status == AnchorGood {
		t.Fatal("an anchor became good by time")
	}
}

func TestScenario34_Schedule(t *testing.T) {
	want := []time.Duration{0, 60, 120, 240, 480, 600, 600, 600}
	for i, w := range want {
		s := newStory()
		for range i + 1 {
			s.strike(StrikeIncomplete, "")
		}
		state, until := s.record.Health.Circuit(builtIn, s.now)
		if got := until.Sub(s.record.Health.StruckAt); w > 0 && (state != CircuitOpen || got != w*time.Second) || w == 0 && state != CircuitClosed {
			t.Errorf("after %d strikes: %v for %v, want %v s", i+1, state, got, w)
		}
		if stored := restored(t, s.record, s.now); stored.Health.StruckAt.Sub(s.record.Health.StruckAt).Abs() > time.Millisecond {
			t.Errorf("after %d strikes the stored record opens until %v", i+1, stored.Health.StruckAt)
		}
		if got := builtIn.Backoff(i+1, StrikeCleanClose); got != min(w*time.Second, 30*time.Second) {
			t.Errorf("after %d clean closes: %v", i+1, got)
		}
	}
}

func restored(t *testing.T, r Record, now time.Time) Record {
	t.Helper()
	again, err := DecodeRecord(EncodeRecord(r), now)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func TestScenario15_AStrikeThatLandsAfterAClear(t *testing.T) {
	s := newStory()
	late := s.send()
	done := s.send()
	s.tell(Event{Completed: &Completed{Sequence: done}})
	s.tell(Event{Struck: &Struck{Attempt: "late", Sequence: late, Class: StrikeSilence, Policy: builtIn}})
	if s.record.Health.Strikes != 0 {
		t.Fatalf("%d strikes", s.record.Health.Strikes)
	}
}

func TestScenario16_AClearThatLandsAfterANewerStrike(t *testing.T) {
	s := newStory()
	older := s.send()
	s.strike(StrikeIncomplete, "")
	s.tell(Event{Completed: &Completed{Sequence: older}})
	if s.record.Health.Strikes != 1 {
		t.Fatalf("%d strikes", s.record.Health.Strikes)
	}
}

func TestScenario14_SettledCircuitIsNotRehydrated(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "r1").strike(StrikeIncomplete, "r1")
	stale := s.record.Health
	s.tell(Event{Denied: "r1"}) // the cause is gone in the same instant
	if got := s.circuit(); got != "closed" {
		t.Fatalf("the circuit is %s", got)
	}
	again := restored(t, s.record, s.now)
	if again.Health.Strikes != 0 || again.Health.Cleared < stale.StruckSequence {
		t.Fatalf("%+v", again.Health)
	}
	s.strike(StrikeIncomplete, "")
	if s.record.Health.Strikes != 1 {
		t.Fatalf("an unrelated strike counts %d", s.record.Health.Strikes)
	}
}

func TestScenario17_CooldownStaysWithoutItsCauseGone(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "").strike(StrikeIncomplete, "")
	s.tell(Event{Denied: "r1"}) // no strike was made with it
	if got := s.circuit(); got != "open 59s" {
		t.Fatalf("the circuit is %s", got)
	}
}

func TestScenario18_CooldownDoesNotOutliveItsCause(t *testing.T) {
	s := newStory().strike(StrikeSilence, "r1").strike(StrikeSilence, "r1")
	if s.record.Anchor.Status == AnchorGood {
		t.Fatal("the anchor is still good")
	}
	for range 10 {
		if ad := s.record.Health.Admit(builtIn, true, s.now); ad.Refusal != "" {
			t.Fatalf("a turn without the anchor is refused: %+v", ad)
		}
	}
	if ad := s.record.Health.Admit(builtIn, false, s.now); ad.Refusal != ReasonCooldown {
		t.Fatalf("a turn with the anchor: %+v", ad)
	}
	s.tell(Event{Denied: "r1"})
	if ad := s.record.Health.Admit(builtIn, false, s.now); ad != (Admission{}) {
		t.Fatalf("the cause is gone, and a turn is still held: %+v", ad)
	}
}

func TestScenario28_TwoObserversOneStrike(t *testing.T) {
	s := newStory()
	n := s.send()
	e := Event{Struck: &Struck{Attempt: "x/0", Turn: "x", Sequence: n, Class: StrikeSilence, Policy: builtIn}}
	s.tell(e)
	version := s.record.Version
	s.tell(e)
	if s.record.Health.Strikes != 1 || s.record.Version != version {
		t.Fatalf("%d strikes, version %d after %d", s.record.Health.Strikes, s.record.Version, version)
	}
}

func TestScenario5_HalfOpenWithoutAWait(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "r1").strike(StrikeIncomplete, "r1")
	again := restored(t, s.record, s.now.Add(20*time.Minute)) // taken over long after
	state, _ := again.Health.Circuit(builtIn, s.now.Add(20*time.Minute))
	if state != CircuitHalfOpen || again.Anchor.Status != AnchorSuspect {
		t.Fatalf("%v, anchor %v", state, again.Anchor.Status)
	}
}

func TestScenario56_AnOldSilenceIsNotTheFirstOfTwo(t *testing.T) {
	slow := builtIn
	slow.Threshold = 10
	s := newStory()
	silence := func() {
		n := s.send()
		s.tell(Event{Struck: &Struck{Attempt: fmt.Sprint(n), Sequence: n, Class: StrikeSilence, Anchor: "r1", Policy: slow}})
	}
	silence()
	s.at(11 * time.Minute)
	silence()
	if s.record.Anchor.Status != AnchorGood || s.record.Health.Eventless != 1 {
		t.Fatalf("anchor %v after %d in a row", s.record.Anchor.Status, s.record.Health.Eventless)
	}
	silence()
	if s.record.Anchor.Status != AnchorSuspect {
		t.Fatalf("anchor %v after two in a row", s.record.Anchor.Status)
	}
}

func TestScenario13_AProbeIsItsOwners(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "").strike(StrikeIncomplete, "").at(2 * time.Minute)
	take := func(token string) bool {
		before := s.record.Version
		s.tell(Event{Probe: &ProbeEvent{Token: token, Do: ProbeTaken, Until: s.now.Add(time.Minute), Policy: builtIn}})
		return s.record.Version != before
	}
	if !take("one") || take("two") {
		t.Fatal("Scenario 100: exactly one of two takes the probe")
	}
	s.tell(Event{Probe: &ProbeEvent{Token: "two", Do: ProbeReturned}})
	if got := s.circuit(); got[:7] != "probing" {
		t.Fatalf("a stranger returned the probe: %s", got)
	}
	s.tell(Event{Probe: &ProbeEvent{Token: "one", Do: ProbeReturned}})
	if got := s.circuit(); got != "half_open" || !take("three") {
		t.Fatalf("a returned probe can be taken at once: %s", got)
	}
}

func TestScenario11_AProbeWhoseOwnerDied(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "").strike(StrikeIncomplete, "").at(2 * time.Minute)
	s.tell(Event{Probe: &ProbeEvent{Token: "dead", Do: ProbeTaken, Until: s.now.Add(time.Minute), Policy: builtIn}})
	s.record = restored(t, s.record, s.now)
	s.now = s.now.Add(time.Minute + time.Second)
	if got := s.circuit(); got != "half_open" {
		t.Fatal(got)
	}
	s.tell(Event{Probe: &ProbeEvent{Token: "heir", Do: ProbeTaken, Until: s.now.Add(time.Minute), Policy: builtIn}})
	for _, do := range []ProbeAction{ProbeRenewed, ProbeProved, ProbeReturned} {
		before := s.record.Version
		s.tell(Event{Probe: &ProbeEvent{Token: "dead", Do: do}})
		if s.record.Version != before {
			t.Fatalf("a message of the dead owner changed the record: %v", do)
		}
	}
}

func TestScenario26_TheTimerThatRefuses(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "").strike(StrikeIncomplete, "")
	if ad := s.record.Health.Admit(builtIn, false, s.now.Add(20*time.Second)); ad.Refusal != ReasonCooldown || ad.After != 40*time.Second {
		t.Fatalf("%+v", ad)
	}
	s.at(5 * time.Minute)
	s.tell(Event{Probe: &ProbeEvent{Token: "p", Do: ProbeTaken, Until: s.now.Add(40 * time.Second), Policy: builtIn}})
	s.now = s.now.Add(-time.Second) // tell moved the clock
	if ad := s.record.Health.Admit(builtIn, false, s.now); ad.Refusal != ReasonHalfOpen || ad.After != 40*time.Second {
		t.Fatalf("%+v", ad)
	}
}

func TestScenario102_ForeignClocks(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "").strike(StrikeIncomplete, "")
	s.record.Health.Probe = &Probe{Token: "p", Until: s.now.Add(100 * time.Hour)}
	now := s.now.Add(-3 * time.Hour) // this replica's clock is three hours behind the writer's
	again := restored(t, s.record, now)
	if _, until := again.Health.Circuit(builtIn, now); until.Sub(now) > time.Hour {
		t.Fatalf("a clock ahead of ours holds the key for %v", until.Sub(now))
	}
	if again.Health.StruckAt.After(now) || again.UpdatedAt.After(now) {
		t.Fatal("the record comes from the future")
	}
}

// Two versions of the proxy share a store while slots take turns: what the other one
// adds does no harm, and what it writes in another form costs an upload and no more.
func TestB99_RecordsOfAnotherVersion(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	mine := Record{Account: "a", Model: "m", Version: 3, UpdatedAt: now,
		Anchor: &Anchor{ResponseID: "r", Account: "a", Since: now}, Health: Health{Strikes: 1, StruckAt: now}}
	raw := EncodeRecord(mine)
	newer := strings.Replace(string(raw), "{", `{"of":"the next version","nested":{"x":[1]},`, 1)
	got, err := DecodeRecord([]byte(newer), now)
	if err != nil || got.Anchor == nil || got.Anchor.ResponseID != "r" || got.Version != 3 || got.Health.Strikes != 1 {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := DecodeRecord([]byte(strings.Replace(string(raw), `"v":1`, `"v":2`, 1)), now); err == nil {
		t.Error("a record of another form is read as one of this")
	}
}

func TestASecondFailureConfirmsASuspect(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "r1").strike(StrikeIncomplete, "r1")
	if s.record.Anchor.Status != AnchorSuspect || s.record.Anchor.Cause != CauseOpened {
		t.Fatalf("%+v", s.record.Anchor)
	}
	s.strike(StrikeIncomplete, "r1")
	if s.record.Anchor.Status != AnchorDead || s.record.Anchor.Cause != CauseConfirmed {
		t.Fatalf("%+v", s.record.Anchor)
	}
	s.strike(StrikeCleanClose, "r1")
	clean := newStory().strike(StrikeCleanClose, "r1").strike(StrikeCleanClose, "r1")
	if clean.record.Anchor.Status != AnchorGood || clean.circuit() != "open 30s" {
		t.Fatalf("a clean close blames the anchor: %+v, %s", clean.record.Anchor, clean.circuit())
	}
}

func TestResetClosesOnceForEachToken(t *testing.T) {
	s := newStory().strike(StrikeIncomplete, "").strike(StrikeIncomplete, "").tell(Event{Reset: "monday"})
	if got := s.circuit(); got != "closed" {
		t.Fatal(got)
	}
	s.strike(StrikeIncomplete, "").strike(StrikeIncomplete, "")
	s.record = restored(t, s.record, s.now)
	s.tell(Event{Reset: "monday"})
	if got := s.circuit(); got[:4] != "open" {
		t.Fatalf("a stale wish closed the circuit: %s", got)
	}
	s.tell(Event{Reset: "tuesday"})
	if got := s.circuit(); got != "closed" {
		t.Fatal(got)
	}
}
