package report

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func circuits(list ...Circuit) func(*Snapshot) {
	return func(s *Snapshot) { s.Sessions.Circuits, s.Sessions.NotClosed = list, len(list) }
}

func TestStatusOfSessions(t *testing.T) {
	got := statusOf(snapshot(func(s *Snapshot) {
		s.Sessions = Sessions{
			Active: 3, Quarantined: 7, NotClosed: 40,
			Circuits: []Circuit{
				{Key: "bbbbbbbbbbbb", HalfOpen: true, Reason: "IdleTimeout"},
				{Key: "aaaaaaaaaaaa", Reason: "StreamIncomplete", Until: start.Add(61 * time.Second)},
				{Key: "cccccccccccc", Reason: "CleanClose", Until: start.Add(30 * time.Second)},
			},
			Quarantines: []Quarantine{{Key: "dddddddddddd", Reason: "AnchorDenied", Until: start.Add(time.Hour + time.Second)}},
		}
	}))
	at := func(d time.Duration) *metav1.Time {
		t := metav1.NewTime(start.Add(d))
		return &t
	}
	want := []v1alpha1.CircuitState{
		{Scope: "Session", Key: "aaaaaaaaaaaa", State: "Open", Reason: "StreamIncomplete", Until: at(70 * time.Second)},
		{Scope: "Session", Key: "cccccccccccc", State: "Open", Reason: "CleanClose", Until: at(30 * time.Second)},
		{Scope: "Session", Key: "bbbbbbbbbbbb", State: "HalfOpen", Reason: "IdleTimeout"},
	}
	if diff := cmp.Diff(want, got.Circuits); diff != "" {
		t.Error(diff)
	}
	if *got.OpenCircuits != 40 || got.CircuitsOmitted != 37 {
		t.Errorf("%d circuits, %d omitted, want 40 and 37", *got.OpenCircuits, got.CircuitsOmitted)
	}
	quarantine := &v1alpha1.ReplicaQuarantine{Count: 7, Recent: []v1alpha1.QuarantineEntry{
		{Key: "dddddddddddd", Reason: "AnchorDenied", Until: at(time.Hour + 10*time.Minute)}}}
	if diff := cmp.Diff(quarantine, got.Quarantine); diff != "" {
		t.Error(diff)
	}
}

// Whatever it is given, a report fits the schema and shows no text of others.
func TestSessionsStayWithinTheSchema(t *testing.T) {
	const canary = "sk-canary"
	late := start.Add(time.Hour) // what stays longest comes first
	s := snapshot(func(s *Snapshot) {
		for i := range 5000 {
			key := fmt.Sprintf("%012x", i)
			s.Sessions.Circuits = append(s.Sessions.Circuits, Circuit{Key: key, Reason: canary + strings.Repeat("x", 500), Until: start},
				Circuit{Key: canary + "4711", Until: late}, Circuit{Key: strings.ToUpper(key), Until: late}, Circuit{Key: key + "0", Until: late},
				Circuit{Until: late})
			s.Sessions.Quarantines = append(s.Sessions.Quarantines, Quarantine{Key: key, Reason: canary}, Quarantine{Key: canary})
		}
		s.Sessions.NotClosed, s.Sessions.Quarantined = -5, 1<<40
	})
	got := statusOf(s)
	if len(got.Circuits) != v1alpha1.MaxStatusCircuits || len(got.Quarantine.Recent) != v1alpha1.MaxRecentQuarantine ||
		*got.OpenCircuits != v1alpha1.MaxStatusCircuits || got.CircuitsOmitted != 0 || got.Quarantine.Count != 1<<31-1 {
		t.Errorf("out of bounds: %+v", got)
	}
	for _, c := range got.Circuits {
		if !hashedKey.MatchString(c.Key) {
			t.Errorf("key %q is no digest", c.Key)
		}
	}
	raw, err := json.Marshal(got)
	if err != nil || len(raw) > 12<<10 || strings.Contains(string(raw), canary) {
		t.Errorf("%d bytes, want at most 12 KiB without the canary: %v\n%s", len(raw), err, raw)
	}
	if got.Quarantine.Recent[0].Reason != noWord {
		t.Errorf("reason %q: the schema needs one", got.Quarantine.Recent[0].Reason)
	}
}

// A report is a function of the state, not of the order in which it was found.
func TestOrderOfCircuitsIsTheirOwn(t *testing.T) {
	var list []Circuit
	for i := range 100 {
		list = append(list, Circuit{Key: fmt.Sprintf("%012x", i), Until: start.Add(time.Duration(i%3) * time.Minute)})
	}
	first := statusOf(snapshot(circuits(list...)))
	for range 20 {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		again := statusOf(snapshot(circuits(list...)))
		if diff := cmp.Diff(first, again); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestTimeAloneMakesNoReport(t *testing.T) {
	if got := roundedUp(start, circuitGrain); !got.Time.Equal(start) {
		t.Errorf("a round time became %s", got)
	}
	seen := map[string]bool{}
	for s := range 600 { // a probe whose lease is renewed each second
		until := start.Add(time.Duration(s)*time.Second + 300*time.Millisecond)
		got := roundedUp(until, circuitGrain)
		if early := got.Sub(until); early < 0 || early >= circuitGrain {
			t.Fatalf("%s is shown as %s", until, got)
		}
		seen[got.String()] = true
	}
	if len(seen) != 60 {
		t.Errorf("%d times were shown in 10 minutes, want 60", len(seen))
	}
}

func TestWhatIsWorthAReportOfSessions(t *testing.T) {
	open := Circuit{Key: "aaaaaaaaaaaa", Reason: "IdleTimeout", Until: start.Add(time.Minute)}
	base := func(s *Snapshot) {
		circuits(open, Circuit{Key: "bbbbbbbbbbbb", Until: start})(s)
		s.Sessions.Quarantined, s.Sessions.Quarantines = 30, []Quarantine{{Key: "cccccccccccc", Reason: "Wedged", Until: start}}
	}
	edit := func(change func(*Circuit)) func(*Snapshot) {
		return func(s *Snapshot) { change(&s.Sessions.Circuits[0]) }
	}
	for name, tc := range map[string]struct {
		edit            func(*Snapshot)
		material, moved bool
	}{
		"nothing":                     {func(*Snapshot) {}, false, false},
		"a circuit is half open":      {edit(func(c *Circuit) { c.HalfOpen = true }), true, false},
		"a circuit closes":            {func(s *Snapshot) { s.Sessions.Circuits = s.Sessions.Circuits[:1] }, true, false},
		"another circuit":             {edit(func(c *Circuit) { c.Key = "ffffffffffff" }), true, true},
		"a longer cool-down":          {edit(func(c *Circuit) { c.Until = c.Until.Add(time.Minute) }), false, true},
		"a second more":               {edit(func(c *Circuit) { c.Until = c.Until.Add(-time.Second) }), false, false},
		"another reason":              {edit(func(c *Circuit) { c.Reason = "CleanClose" }), false, true},
		"more that are not listed":    {func(s *Snapshot) { s.Sessions.NotClosed = 12 }, false, true},
		"none in quarantine":          {func(s *Snapshot) { s.Sessions.Quarantined, s.Sessions.Quarantines = 0, nil }, true, true},
		"another one in quarantine":   {func(s *Snapshot) { s.Sessions.Quarantines[0].Key = "dddddddddddd" }, false, true},
		"one more in quarantine":      {func(s *Snapshot) { s.Sessions.Quarantined = 31 }, false, false},
		"an untouched record is kept": {func(s *Snapshot) { s.Sessions.Quarantines[0].Until = start.Add(time.Hour) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := statusOf(snapshot(base)), statusOf(snapshot(base, tc.edit))
			if got := material(before, after); got != tc.material {
				t.Errorf("material: %v, want %v", got, tc.material)
			}
			if got := moved(before, after); got != tc.moved && !tc.material {
				t.Errorf("moved: %v, want %v", got, tc.moved)
			}
		})
	}
	// One that is counted and cannot be listed opens and closes as well.
	unnamed := statusOf(snapshot(circuits(Circuit{Key: "no digest"})))
	if closed := statusOf(snapshot()); !material(closed, unnamed) || !material(unnamed, closed) {
		t.Error("a circuit that is not listed is no news")
	}
}

func TestNumbersOmittedMeansAllOfThem(t *testing.T) {
	got := statusOf(snapshot(circuits(Circuit{Key: "aaaaaaaaaaaa"}), func(s *Snapshot) {
		s.NumbersOmitted, s.Sessions.Quarantined = true, 3
	}))
	if got.Sessions != nil || got.OpenCircuits != nil || got.Circuits != nil || got.Quarantine != nil || got.Accounts != nil {
		t.Errorf("numbers in a report without numbers: %+v", got)
	}
}

func TestReporterTellsOfASessionThatIsStuck(t *testing.T) {
	open(t, nil, func(d *desk) {
		d.change(func(s *Snapshot) { circuits(Circuit{Key: "aaaaaaaaaaaa", Until: start})(s) })
		wantWritten(t, d, "a circuit opened", 2)
		d.change(func(s *Snapshot) { s.Sessions.Circuits[0].HalfOpen = true })
		wantWritten(t, d, "it is half open", 3)
		for range 60 { // its probe runs and renews its lease
			d.change(func(s *Snapshot) { s.Sessions.Circuits[0].Until = s.Sessions.Circuits[0].Until.Add(time.Second) })
			pass(time.Second)
		}
		if n, _ := d.counts(); n > 5 {
			t.Errorf("%d reports while a probe ran for a minute", n-3)
		}
		d.change(func(s *Snapshot) { circuits()(s) })
		pass(DefaultMinInterval + minIntervalJitter)
		d.mu.Lock()
		defer d.mu.Unlock()
		if last := d.reports[len(d.reports)-1]; *last.OpenCircuits != 0 || len(last.Circuits) > 0 {
			t.Errorf("the circuit is closed and reported as %+v", last.Circuits)
		}
	})
}
