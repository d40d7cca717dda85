package session

import (
	"slices"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// everyRecord calls f with the product of what a record can be.
func everyRecord(f func(Record)) {
	anchors := []*Anchor{nil}
	for _, status := range []AnchorStatus{AnchorGood, AnchorSuspect, AnchorDead} {
		for _, connection := range []uint64{0, 7} {
			anchors = append(anchors, anchorOf(status, "a", connection))
		}
	}
	probes := []*Probe{nil, {Token: "t9", Until: t0.Add(time.Minute)}, {Token: "t9", Until: t0.Add(time.Minute), Created: true},
		{Token: "t9", Until: t0.Add(-time.Minute)}}
	for _, anchor := range anchors {
		for _, strikes := range []int{0, 1, 2, 5} {
			for _, age := range []time.Duration{0, 2 * time.Minute, 2 * time.Hour} {
				for _, probe := range probes {
					for _, blamed := range []string{"", "r1"} {
						for _, denied := range [][]string{nil, {"r1"}, {"r0"}} {
							h := Health{Probe: probe, Denied: denied, Sequence: 9, Cleared: 3, MinGeneration: 2}
							if strikes > 0 {
								h.Strikes, h.Class, h.StruckAt, h.StruckSequence, h.Blamed = strikes, StrikeSilence, t0.Add(-age), 8, blamed
								h.Struck, h.Eventless, h.EventlessAt = []string{"t8/0"}, 1, t0.Add(-age)
							}
							f(Record{Account: "a", Model: "m", Anchor: anchor, Health: h, Version: 5, UpdatedAt: t0.Add(-age)})
						}
					}
				}
			}
		}
	}
}

// everyEvent is the product of what can happen to a record.
func everyEvent() []Event {
	events := []Event{{}, {Moved: true}, {ConnectionGone: 7}, {ConnectionGone: 8}, {Denied: "r1"}, {Denied: "r2"}, {Reset: "x"},
		{Sent: &Sent{Account: "a", Model: "m"}}, {Sent: &Sent{Account: "b", Model: "n"}},
		{Wedged: &Wedged{Anchor: "r1", Generation: 7}}, {Wedged: &Wedged{Anchor: "r0", Generation: 1}}}
	for _, sequence := range []int64{1, 8, 9, 10} {
		events = append(events, Event{Completed: &Completed{Sequence: sequence}},
			Event{Completed: &Completed{Sequence: sequence, Anchor: &Anchor{ResponseID: "r2", Account: "b", Status: AnchorDead, Cause: CauseDenied}}})
		for class := StrikeIncomplete; class <= StrikeCleanClose; class++ {
			for _, anchor := range []string{"", "r1", "r0"} {
				for _, spared := range []bool{false, true} {
					for _, attempt := range []string{"t8/0", "t9/0"} {
						events = append(events, Event{Struck: &Struck{Attempt: attempt, Turn: attempt[:2], Sequence: sequence, Class: class,
							Anchor: anchor, Spared: spared, Policy: builtIn}})
					}
				}
			}
		}
	}
	for do := ProbeTaken; do <= ProbeReturned; do++ {
		for _, token := range []string{"t9", "t7"} {
			for _, early := range []bool{false, true} {
				events = append(events, Event{Probe: &ProbeEvent{Token: token, Do: do, Until: t0.Add(time.Minute), Policy: builtIn, Early: early}})
			}
		}
	}
	return events
}

func statusOf(r Record) int {
	if r.Anchor == nil {
		return -1
	}
	return int(r.Anchor.Status)
}

// The rules of Apply over the product of records and events.
func TestApplyIsTotalAndMonotonic(t *testing.T) {
	n := 0
	events := everyEvent()
	everyRecord(func(r Record) {
		image := string(EncodeRecord(r))
		for _, e := range events {
			n++
			next := Apply(r, e, t0)
			fail := func(rule string) { t.Fatalf("%s:\nrecord %+v\nevent  %+v\nnext   %+v", rule, r, e, next) }
			if n%16 == 0 { // writing them out is slow
				checkImages(t, r, next, image, fail)
			}
			sameAnchor := next.Anchor != nil && r.Anchor != nil && next.Anchor.ResponseID == r.Anchor.ResponseID
			if sameAnchor && statusOf(next) < statusOf(r) {
				fail("a status never rises")
			}
			if next.Anchor != nil && !sameAnchor && (e.Completed == nil || next.Anchor.Status != AnchorGood) {
				fail("only a completed response makes an anchor, and a good one")
			}
			if r.Anchor != nil && next.Anchor == nil {
				fail("an anchor never vanishes without a successor")
			}
			if next.Health.Strikes > r.Health.Strikes+1 || next.Health.Strikes > r.Health.Strikes && e.Struck == nil {
				fail("only a strike counts, and one at a time")
			}
			if e.Struck != nil && (slices.Contains(r.Health.Struck, e.Struck.Attempt) || e.Struck.Sequence <= r.Health.Cleared) && next.Version != r.Version {
				fail("an attempt strikes once, and not after it was proved wrong")
			}
			if e.Struck != nil && e.Struck.Class == StrikeCleanClose && statusOf(next) != statusOf(r) {
				fail("a clean close is never the anchor's fault")
			}
			if statusOf(next) == int(AnchorDead) && statusOf(r) == int(AnchorGood) && e.Struck != nil {
				fail("one strike does not kill an anchor")
			}
			if next.Health.Cleared < r.Health.Cleared || next.Health.Sequence < r.Health.Sequence ||
				next.Health.MinGeneration < r.Health.MinGeneration && !e.Moved {
				fail("marks only rise")
			}
			if len(next.Health.Denied) > fewIDs || len(next.Health.Struck) > fewIDs {
				fail("a record stays small")
			}
			if again := Apply(next, e, t0); e.Sent == nil && again.Health.Strikes > next.Health.Strikes && e.Struck != nil {
				fail("the same strike twice")
			}
		}
	})
	if n < 250_000 {
		t.Fatalf("only %d cases", n)
	}
}

func checkImages(t *testing.T, r, next Record, image string, fail func(string)) {
	t.Helper()
	if string(EncodeRecord(r)) != image {
		fail("the argument is never changed")
	}
	written := EncodeRecord(next)
	if changed := string(written) != image; changed != (next.Version > r.Version) {
		fail("the version rises with every change and with nothing else")
	}
	back, err := DecodeRecord(written, t0.Add(time.Hour))
	if err != nil || string(EncodeRecord(back)) != string(written) {
		fail("a record survives the store")
	}
}

// The rules of admission over the product of records.
func TestAdmitIsSafe(t *testing.T) {
	everyRecord(func(r Record) {
		for _, evades := range []bool{false, true} {
			ad := r.Health.Admit(builtIn, evades, t0)
			state, until := r.Health.Circuit(builtIn, t0)
			switch {
			case ad.Refusal != "" && (ad.After <= 0 || ad.Probe):
				t.Fatalf("a refusal names its timer: %+v for %+v", ad, r.Health)
			case ad.Refusal == "" && state == CircuitProbing:
				t.Fatalf("a second turn beside a probe: %+v", r.Health)
			case ad.Refusal == "" && state == CircuitOpen && (!evades || !ad.Probe || !ad.Early):
				t.Fatalf("an open circuit lets a turn through: %+v", r.Health)
			case state == CircuitHalfOpen && !ad.Probe:
				t.Fatalf("the first turn of a half-open circuit is its probe: %+v", r.Health)
			case state != CircuitClosed && r.Health.Strikes < builtIn.Threshold:
				t.Fatalf("open below the threshold: %+v", r.Health)
			case !until.IsZero() && until.Sub(t0) > builtIn.Max+builtIn.ProbeLease:
				t.Fatalf("open until %v: %+v", until, r.Health)
			}
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	everyRecord(func(r Record) {
		if r.Health.Strikes == 5 && r.Anchor != nil {
			f.Add(EncodeRecord(r))
		}
	})
	f.Add([]byte(`{"v":1,"anchor":{"id":"r","status":9}}`))
	f.Add([]byte(`{"v":1,"health":{"strikes":-1}}`))
	f.Add([]byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := DecodeRecord(raw, t0)
		if err != nil {
			return
		}
		again, err := DecodeRecord(EncodeRecord(r), t0)
		if err != nil || string(EncodeRecord(again)) != string(EncodeRecord(r)) {
			t.Fatalf("not stable: %v\n%s\n%s", err, EncodeRecord(r), EncodeRecord(again))
		}
		for _, e := range everyEvent()[:40] {
			Apply(r, e, t0)
		}
		r.Health.Admit(builtIn, true, t0)
		if _, until := r.Health.Circuit(builtIn, t0); until.Sub(t0) > 2*time.Hour {
			t.Fatalf("a stored record holds its key until %v", until)
		}
	})
}

// FuzzMake plans any body against any record: the rules of the planner hold.
func FuzzMake(f *testing.F) {
	for _, items := range [][]string{{user1}, {user1, callItem, result1}, {result1}, {otherItem}} {
		f.Add([]byte(`{"model":"m","input":[`+items[0]+`]}`), uint8(0), true, uint64(7))
	}
	f.Add([]byte(`{"model":"m","previous_response_id":"r1","input":"go on"}`), uint8(1), false, uint64(7))
	f.Add([]byte(`{"model":"m","conversation":"c","input":"go on"}`), uint8(2), true, uint64(6))
	f.Fuzz(func(t *testing.T, body []byte, status uint8, unowned bool, connection uint64) {
		facts := affinity.Read(body)
		anchor := anchorOf(AnchorStatus(status%3), "a", 7)
		q := Question{Facts: facts, Hard: true, Unowned: unowned, Record: Record{Account: "a", Anchor: anchor},
			Target: Target{Account: "a", Connection: connection}}
		p, refusal := Make(q)
		if refusal != nil {
			return
		}
		checkPlan(t, q, p)
		request := frame(body, facts.Input, p, WebSocket, "")
		if request.Size() <= 0 {
			t.Fatal("an empty frame")
		}
	})
}

// checkPlan holds the rules of the planner.
func checkPlan(t *testing.T, q Question, p Plan) {
	t.Helper()
	fail := func(rule string) { t.Fatalf("%s: %+v -> %+v", rule, q, p) }
	a := q.Record.Anchor
	switch {
	case p.Provenance == Injected && (a == nil || p.Anchor != a.ResponseID || q.Unowned):
		fail("an injected anchor is the record's own, and the record is ours")
	case p.Provenance == Injected && a.Account != q.Target.Account:
		fail("no anchor outside its account")
	case p.Provenance == Injected && a.Status == AnchorDead:
		fail("no dead anchor")
	case p.Provenance == Injected && a.Status == AnchorSuspect && p.Class != affinity.ClassDelta:
		fail("no suspect anchor on a full payload")
	case p.From > 0 && p.Provenance != Injected:
		fail("nothing is trimmed without the anchor that covers it")
	case p.Class == affinity.ClassDelta && p.Anchor == "" && q.Hard && a != nil && !q.Facts.HasConversation:
		fail("no delta without its anchor")
	case p.Provenance == Injected && q.Whole && p.Class != affinity.ClassDelta:
		fail("a turn that must go whole carries an anchor")
	case p.From > len(q.Facts.Input.Items):
		fail("trimmed beyond the end")
	case len(p.Answers) > 0 && p.Anchor == "":
		fail("answers to calls that nobody knows")
	}
}
