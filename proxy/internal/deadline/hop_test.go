package deadline

import (
	"math/rand/v2"
	"testing"
	"time"
)

func asking(t *testing.T, timeout string, l Limits, now time.Time) Budget {
	t.Helper()
	b, err := NewBudget(func(name string) string { return map[string]string{TimeoutHeader: timeout}[name] }, true, l, now)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestABudgetTravelsAsWhatIsLeft(t *testing.T) {
	now := time.Now()
	b := asking(t, "10000", Limits{}, now)
	// The other replica's clock shows anything; what counts there is its own arrival.
	there := time.Now().Add(-1000 * time.Hour)
	got := FromHeader(b.Header(now.Add(2500*time.Millisecond)), Budget{}, there)
	if left, bounded := got.Remaining(there); left != 7500*time.Millisecond || !bounded || got.source != Caller {
		t.Errorf("%v %v %+v", left, bounded, got)
	}
	if h := b.Header(now.Add(time.Minute)); h != "0;source=caller" {
		t.Errorf("a budget that is used up: %q", h)
	}
	if h := (Budget{}).Header(now); h != "" {
		t.Errorf("a budget without end: %q", h)
	}
	if h := (Budget{due: now.Add(1999 * time.Microsecond), source: Operator}).Header(now); h != "1" {
		t.Errorf("a part of a millisecond: %q", h)
	}
}

func TestTheShorterOfOwnAndReceivedHolds(t *testing.T) {
	now := time.Now()
	own := Budget{due: now.Add(10 * time.Second), kind: Total, source: Operator}
	for name, tt := range map[string]struct {
		value  string
		own    Budget
		want   time.Duration
		source Source
	}{
		"received":             {"4000", own, 4 * time.Second, Operator},
		"received of a caller": {"4000;source=caller", own, 4 * time.Second, Caller},
		"own":                  {"40000;source=caller", own, 10 * time.Second, Operator},
		"no own":               {"40000;source=caller", Budget{}, 40 * time.Second, Caller},
		"nothing received":     {"", own, 10 * time.Second, Operator},
		"used up":              {"0", own, 0, Operator},
		"negative":             {"-1", own, 10 * time.Second, Operator},
		"a wall clock's time":  {"2026-11-30T08:00:00Z", own, 10 * time.Second, Operator},
		"beyond a duration":    {"9223372036854775807", own, 10 * time.Second, Operator},
		"another mark":         {"4000;source=me", own, 10 * time.Second, Operator},
	} {
		t.Run(name, func(t *testing.T) {
			b := FromHeader(tt.value, tt.own, now)
			if left, bounded := b.Remaining(now); left != tt.want || !bounded || b.source != tt.source {
				t.Errorf("%v %v %+v", left, bounded, b)
			}
		})
	}
	if _, bounded := FromHeader("", Budget{}, now).Remaining(now); bounded {
		t.Error("a budget out of nothing")
	}
}

// The receiver has to tell the client too.
func TestAClampSurvivesAHop(t *testing.T) {
	now := time.Now()
	own := asking(t, "9000", Limits{CallerMax: 5 * time.Second}, now)
	if b := FromHeader("3000", own, now); !b.Clamped {
		t.Errorf("%+v", b)
	}
}

// Whatever the hops and the delays, time is only ever lost.
func TestNoHopAddsTime(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		now, spent := time.Now(), time.Duration(0)
		total := time.Duration(1 + random.Int64N(int64(time.Minute)))
		b := Budget{due: now.Add(total), kind: Total, source: Caller}
		for range 1 + random.IntN(4) {
			took := time.Duration(random.Int64N(int64(20 * time.Second)))
			spent += took
			value := b.Header(now.Add(took))
			now = time.Now().Add(time.Duration(random.Int64N(int64(time.Hour))))
			b = FromHeader(value, Budget{}, now)
			if left, bounded := b.Remaining(now); !bounded || left > max(0, total-spent) || b.source != Caller {
				t.Fatalf("%v left of %v after %v: %+v", left, total, spent, b)
			}
		}
	}
}

func TestPhaseThatEndsFirst(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	operator := Budget{due: at(10 * time.Second), kind: Total, source: Operator}
	caller := Budget{due: at(10 * time.Second), kind: Total, source: Caller}
	clamped := Budget{due: at(10 * time.Second), kind: CallerMax, source: Operator, Clamped: true}
	for name, tt := range map[string]struct {
		budget Budget
		phase  Kind
		since  time.Duration
		limit  time.Duration
		want   Limit
	}{
		"no budget":                {Budget{}, FirstEvent, time.Second, time.Minute, Limit{at(61 * time.Second), FirstEvent, Operator, FirstEvent}},
		"the phase":                {caller, Dial, time.Second, 5 * time.Second, Limit{at(6 * time.Second), Dial, Operator, Dial}},
		"both at once":             {caller, Dial, 5 * time.Second, 5 * time.Second, Limit{at(10 * time.Second), Dial, Operator, Dial}},
		"the policy's total":       {operator, FirstEvent, time.Second, time.Minute, Limit{at(10 * time.Second), Total, Operator, FirstEvent}},
		"what a caller may ask":    {clamped, FirstEvent, time.Second, time.Minute, Limit{at(10 * time.Second), CallerMax, Operator, FirstEvent}},
		"T03 the caller's":         {caller, FirstEvent, time.Second, time.Minute, Limit{at(10 * time.Second), FirstEvent, Caller, FirstEvent}},
		"T03 while it waits":       {caller, AdmissionWait, 0, time.Minute, Limit{at(10 * time.Second), AdmissionWait, Caller, AdmissionWait}},
		"the caller's in a stream": {caller, StreamIdle, 9 * time.Second, time.Minute, Limit{at(10 * time.Second), Total, Caller, StreamIdle}},
		"a phase without a limit":  {caller, FirstEvent, time.Second, 0, Limit{at(10 * time.Second), FirstEvent, Caller, FirstEvent}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := tt.budget.Phase(tt.phase, at(tt.since), tt.limit)
			if !ok || got != tt.want {
				t.Errorf("%v %+v, want %+v", ok, got, tt.want)
			}
		})
	}
	if l, ok := (Budget{}).Phase(FirstEvent, start, 0); ok {
		t.Errorf("a limit out of nothing: %+v", l)
	}
}

// A caller in a hurry before a healthy upstream: every one of its errors says that
// the limit was its own.
func TestT03_ACallersOwnDeadlineIsNoEvidence(t *testing.T) {
	now := time.Now()
	l := For(policy, 30*time.Second, Text, true)
	b := asking(t, "50", l, now)
	for _, k := range []Kind{AdmissionWait, Dial, TLS, WriteBody, ResponseHeader, FirstEvent, StreamIdle} {
		if limit, ok := b.Phase(k, now, time.Minute); !ok || limit.Source != Caller || limit.At != now.Add(50*time.Millisecond) {
			t.Errorf("%s: %+v", k, limit)
		}
	}
}
