package circuit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

func TestT01_OpensAndRefuses(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for range 4 {
		r.ends(outcome.ServerError)
		r.is(Closed)
	}
	r.ends(outcome.Truncated)
	hint := r.refuse("route_open").RetryAfter
	if hint < 12*time.Second || hint > 18*time.Second {
		t.Errorf("hint %v is not openSeconds with its jitter", hint)
	}
	r.clock.step(10 * time.Second)
	if later := r.refuse("route_open").RetryAfter; hint-later != 10*time.Second {
		t.Errorf("hint %v, and %v ten seconds later", hint, later)
	}
	if r.metrics.refused != 2 || r.metrics.changes["open"] != 1 {
		t.Errorf("%+v", r.metrics)
	}
}

func TestT02_SlowSuccessIsSuccess(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for range 4 {
		r.ends(outcome.ServerError)
	}
	p := r.permit("slow")
	r.clock.step(8 * time.Minute)
	p.Done(outcome.OK, "account0")
	for range 4 {
		r.ends(outcome.ServerError)
	}
	r.is(Closed)
}

func TestT03_CallersOwnDeadlineIsNoEvidence(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for range 100 {
		r.ends(outcome.CallerDeadline)
	}
	r.is(Closed)
}

func TestT04_LimitOfOneAccountLeavesTheRouteAlone(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for i := range 10 {
		r.permit(fmt.Sprint("caller", i)).Done(outcome.QuotaExhausted, "a")
	}
	r.is(Closed)
	r.permit("x").Done(outcome.OK, "b")
}

func TestT05_LimitsOfAllAccountsOpen(t *testing.T) {
	limit := func(r *rig, account string, n int) {
		for i := range n {
			if p, refusal := r.routes.Permit(route, fmt.Sprint("caller", i%3)); refusal == nil {
				p.Done(outcome.RateLimited, account)
			}
		}
	}
	t.Run("of several at once", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		limit(r, "a", 4)
		r.is(Closed)
		limit(r, "b", 1)
		r.is(Open)
	})
	t.Run("each counts once", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 5 { // the first counts with the second
			r.is(Closed)
			limit(r, fmt.Sprint("account", i%3), 1)
		}
		r.is(Open)
	})
	t.Run("of one only", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		limit(r, "a", 40)
		r.is(Closed)
	})
	t.Run("of the only one there is", func(t *testing.T) {
		r := newRig(t, defaults(), 1)
		limit(r, "a", 40)
		r.is(Closed)
	})
	t.Run("not at once", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 20 {
			limit(r, fmt.Sprint("account", i%3), 1)
			r.clock.step(31 * time.Second)
		}
		r.is(Closed)
	})
	t.Run("with a success between", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 20 {
			limit(r, fmt.Sprint("account", i%3), 1)
			r.ends(outcome.OK)
		}
		r.is(Closed)
	})
}

func TestT06_OneProbeAndTruthfulHints(t *testing.T) {
	for _, most := range []int{1, 3} {
		b := defaults()
		b.HalfOpenMaxCalls = most
		r := newRig(t, b, 3)
		r.opens()
		r.halfOpens()
		admitted := 0
		for range 50 {
			p, refusal := r.routes.Permit(route, "x")
			if refusal == nil {
				admitted++
				defer p.Neutral()
				continue
			}
			if refusal.Reason != "probe_running" || refusal.RetryAfter < 1 || refusal.RetryAfter > 30*time.Second {
				t.Errorf("%v after %v", refusal, refusal.RetryAfter)
			}
		}
		if admitted != most {
			t.Errorf("%d probes, want %d", admitted, most)
		}
	}
}

func TestT07_VerdictAtTheFirstEvent(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.opens()
	r.halfOpens()
	first := r.permit("x")
	first.Event()
	r.is(HalfOpen)
	second := r.permit("y") // the first still streams, and holds no slot
	second.Event()
	r.is(Closed)
	r.clock.step(40 * time.Minute)
	first.Done(outcome.OK, "a")
	second.Done(outcome.OK, "a")
	r.is(Closed)
	first.Event()
	second.Done(outcome.ServerError, "a")
	if n := r.metrics.changes["closed"]; n != 1 {
		t.Errorf("closed %d times", n)
	}
}

func TestT08_ProbeWithoutVerdict(t *testing.T) {
	lapse := func(t *testing.T) (*rig, *Permit) {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		p := r.permit("x")
		r.clock.step(29 * time.Second)
		r.is(HalfOpen)
		r.clock.step(time.Second)
		r.is(Open)
		if d := r.remaining(); d < 24*time.Second || d > 36*time.Second {
			t.Errorf("open for %v, want twice openSeconds with its jitter", d)
		}
		return r, p
	}
	t.Run("its late failure is no second one", func(t *testing.T) {
		r, p := lapse(t)
		until := r.status().Until
		p.Done(outcome.FirstEventTimeout, "a")
		if s := r.status(); s.State != Open || !s.Until.Equal(until) || s.Opened != 2 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("its late success closes", func(t *testing.T) {
		r, p := lapse(t)
		p.Event()
		r.is(Closed)
		p.Done(outcome.OK, "a")
		r.is(Closed)
	})
	t.Run("its late success closes a half-open circuit, and ends its probe", func(t *testing.T) {
		r, p := lapse(t)
		r.halfOpens()
		other := r.permit("y")
		p.Done(outcome.OK, "a")
		r.is(Closed)
		other.Done(outcome.ServerError, "b")
		r.is(Closed)
	})
	t.Run("its late success is old news after a newer failure", func(t *testing.T) {
		r, p := lapse(t)
		r.halfOpens()
		r.permit("y").Done(outcome.ConnectFailed, "")
		p.Event()
		r.is(Open)
	})
	t.Run("its late success is old news after a reset", func(t *testing.T) {
		r, p := lapse(t)
		if err := r.routes.Reset(route.String(), "me"); err != nil {
			t.Fatal(err)
		}
		r.opens()
		p.Event()
		r.is(Open)
	})
	t.Run("nobody asks for a long time", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		r.permit("x")
		r.clock.step(time.Hour) // it was given up, and the open time is over, too
		r.permit("y").Event()
	})
}

func TestT09_NeutralProbesFreeTheirSlot(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.opens()
	r.halfOpens()
	for i := range 12 {
		p := r.permit("x")
		r.refuse("probe_running")
		if i%2 == 0 {
			p.Done(outcome.CallerGone, "a")
		} else {
			p.Neutral()
		}
		r.is(HalfOpen)
	}
	if r.metrics.inconclusive != 2 || strings.Count(r.log.String(), "reason=ProbeInconclusive") != 2 {
		t.Errorf("%d alarms after 12 neutral probes, want 2", r.metrics.inconclusive)
	}
	ended := r.permit("x")
	ended.Neutral()
	ended.Event() // too late to be a verdict
	for range 3 {
		r.permit("x").Neutral()
	}
	r.permit("x").Event() // a verdict: the row is broken
	for range 4 {
		r.permit("x").Neutral()
	}
	if r.metrics.inconclusive != 3 {
		t.Errorf("%d alarms, want 3", r.metrics.inconclusive)
	}
	r.is(HalfOpen)
}

func TestT10_RefusalOfTheRequestIsLife(t *testing.T) {
	for _, k := range []outcome.Kind{outcome.PolicyRefusal, outcome.CallerError, outcome.AnchorDenied} {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		r.permit("x").Done(k, "a")
		r.permit("x").Done(k, "a")
		r.is(Closed)
	}
}

func TestT11_ResultsOfAnEarlierPeriodAreIgnored(t *testing.T) {
	r := newRig(t, defaults(), 3)
	var old []*Permit
	for i := range 10 {
		old = append(old, r.permit(fmt.Sprint("caller", i)))
	}
	r.opens()
	old[0].Done(outcome.OK, "a")
	r.is(Open)
	r.halfOpens()
	old[1].Event()
	old[1].Done(outcome.OK, "a")
	old[2].Done(outcome.ServerError, "a")
	r.is(HalfOpen)
	r.permit("x").Event()
	r.permit("x").Event()
	r.is(Closed)
	for i, p := range old[3:] {
		p.Done(outcome.ServerError, fmt.Sprint("account", i))
	}
	r.is(Closed)
	for range 4 {
		r.ends(outcome.ServerError)
	}
	r.is(Closed)
}

func TestT12_ShareOpensWithoutARun(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for i := range 20 {
		r.is(Closed)
		k := outcome.ServerError
		if i%5 > 2 { // three fail, two succeed
			k = outcome.OK
		}
		r.ends(k)
		r.clock.step(time.Second)
	}
	// The twentieth was a success; the next failure is the one that is judged.
	r.ends(outcome.ServerError)
	r.is(Open)
	if s := r.log.String(); !strings.Contains(s, "reason=failure_share") {
		t.Error(s)
	}
	t.Run("old samples do not count", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 200 {
			k := outcome.ServerError
			if i%3 == 0 {
				k = outcome.OK
			}
			r.ends(k)
			r.clock.step(4 * time.Second) // fifteen in a window
		}
		r.is(Closed)
	})
	t.Run("below the share", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 400 {
			k := outcome.OK
			if i%5 > 2 {
				k = outcome.ServerError
			}
			r.ends(k)
			r.clock.step(time.Second)
		}
		r.is(Closed)
	})
}

func TestT13_SurvivesARestart(t *testing.T) {
	before := newRig(t, defaults(), 3)
	before.opens()
	left := before.remaining()
	saved := before.routes.Snapshot()
	if len(saved) != 1 || saved[0].Key != route.String() || saved[0].State != "open" || saved[0].Opened != 1 {
		t.Fatalf("%+v", saved)
	}
	t.Run("with the time that is left", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.clock.step(5 * time.Second)
		r.routes.Restore(saved)
		if d := r.remaining(); d != left-5*time.Second {
			t.Errorf("open for %v, want %v", d, left-5*time.Second)
		}
		r.refuse("route_open")
		r.halfOpens()
		r.permit("x").Done(outcome.ServerError, "a")
		if d := r.remaining(); d < 24*time.Second {
			t.Errorf("open for %v: it has opened twice in a row", d)
		}
	})
	t.Run("written by a clock an hour ahead", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.clock.step(-time.Hour)
		r.routes.Restore(saved)
		if d := r.remaining(); d != 300*time.Second {
			t.Errorf("open for %v, want maxOpenSeconds", d)
		}
	})
	t.Run("its time is over", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.clock.step(time.Minute)
		r.routes.Restore(saved)
		r.is(HalfOpen)
		r.permit("x").Event()
	})
	t.Run("long ago", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.clock.step(time.Hour)
		r.routes.Restore(saved)
		r.is(Closed)
	})
	t.Run("what is known here is known better", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.ends(outcome.ServerError)
		r.routes.Restore(saved)
		r.is(Closed)
	})
	t.Run("nonsense", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		now := r.clock.Now().Add(time.Minute)
		r.routes.Restore([]Entry{{Key: "a/b", State: "open", Until: now}, {State: "open", Until: now}, {Key: "h", State: "closed", Until: now},
			{Key: route.String(), State: "open", Until: now, Opened: 1 << 40}})
		if s := r.routes.States(); len(s) != 1 || s[0].State != Open || s[0].Opened > maxOpened {
			t.Errorf("%+v", s)
		}
	})
}

func TestT14_NoConnectionNeedsNoSecondCaller(t *testing.T) {
	for k, want := range map[outcome.Kind]State{
		outcome.DNSFailed: Open, outcome.ConnectFailed: Open, outcome.TLSFailed: Open,
		outcome.ProxyFailed: Closed, outcome.ServerError: Closed, outcome.CutEventless: Closed,
	} {
		r := newRig(t, defaults(), 3)
		r.ends(outcome.OK) // two callers
		r.ends(outcome.OK)
		for range 5 {
			r.permit("one").Done(k, "a")
		}
		if got := r.status().State; got != want {
			t.Errorf("%v of one caller at one account: %v, want %v", k, got, want)
		}
	}
	t.Run("by its share", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 21 {
			k := outcome.ConnectFailed
			if i%2 == 1 {
				k = outcome.OK
			}
			r.permit("one").Done(k, "a")
		}
		r.is(Open)
	})
}

func TestDistinctAsManyAsThereAre(t *testing.T) {
	fail := func(r *rig, caller, account string) {
		for range 5 {
			if p, refusal := r.routes.Permit(route, caller); refusal == nil {
				p.Done(outcome.ServerError, account)
			}
		}
	}
	t.Run("one account, one caller", func(t *testing.T) {
		r := newRig(t, defaults(), 1)
		fail(r, "one", "a")
		r.is(Open)
	})
	t.Run("one caller, and others were there", func(t *testing.T) {
		r := newRig(t, defaults(), 1)
		r.permit("other").Done(outcome.OK, "a")
		fail(r, "one", "a")
		r.is(Closed)
		r.clock.step(61 * time.Second) // the other has left
		fail(r, "one", "a")
		r.is(Open)
	})
	t.Run("one account of many", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		fail(r, "one", "a")
		fail(r, "two", "a")
		r.is(Closed)
		r.permit("two").Done(outcome.ServerError, "b")
		r.is(Open)
	})
	t.Run("the share needs them too", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 60 {
			k := outcome.ServerError
			if i%4 == 3 {
				k = outcome.OK
			}
			r.permit(fmt.Sprint("caller", i%2)).Done(k, "a")
		}
		r.is(Closed)
	})
}

func TestT15_IdleSocketIsNoSample(t *testing.T) {
	r := newRig(t, defaults(), 1)
	for range 100 {
		r.ends(outcome.NotSent)
	}
	r.is(Closed)
	if len(r.metrics.changes) != 0 {
		t.Errorf("%+v", r.metrics)
	}
}

func TestT16_Forced(t *testing.T) {
	t.Run("open", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		if err := r.routes.ForceOpen(route.String(), time.Minute, "alice"); err != nil {
			t.Fatal(err)
		}
		if hint := r.refuse("route_open").RetryAfter; hint != time.Minute {
			t.Errorf("hint %v", hint)
		}
		if s := r.status(); s.State != Open || !s.Forced {
			t.Errorf("%+v", s)
		}
		if s := r.log.String(); !strings.Contains(s, "audit=true") || !strings.Contains(s, "by=alice") {
			t.Errorf("no audit record: %s", s)
		}
		if s := r.routes.Snapshot(); len(s) != 0 {
			t.Errorf("a wish for this process went to others: %+v", s)
		}
		r.clock.step(time.Minute)
		r.ends(outcome.OK)
		r.is(Closed)
	})
	t.Run("closed", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		if err := r.routes.ForceClosed(route.String(), 10*time.Second, "alice"); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			r.ends(outcome.ServerError)
		}
		r.is(Closed)
		r.clock.step(10 * time.Second)
		r.is(Open) // still its first
		if s := r.status(); s.Opened != 1 || s.Forced {
			t.Errorf("%+v", s)
		}
	})
	t.Run("closed, while it is closed: what runs meanwhile counts nowhere", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.ends(outcome.OK)
		if err := r.routes.ForceClosed(route.String(), 10*time.Second, "alice"); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			r.ends(outcome.ConnectFailed)
		}
		r.clock.step(10 * time.Second)
		r.ends(outcome.ConnectFailed)
		r.is(Closed)
	})
	t.Run("reset", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		if err := r.routes.ForceOpen(route.String(), time.Minute, "alice"); err != nil {
			t.Fatal(err)
		}
		if err := r.routes.Reset(route.String(), "bob"); err != nil {
			t.Fatal(err)
		}
		r.is(Closed)
		r.opens()
		if n := r.status().Opened; n != 1 {
			t.Errorf("opened %d times in a row after a reset", n)
		}
	})
	t.Run("without an end", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for _, ttl := range []time.Duration{0, -1, MaxForce + 1} {
			if r.routes.ForceOpen(route.String(), ttl, "x") == nil {
				t.Errorf("%v was taken", ttl)
			}
		}
		if r.routes.ForceClosed("a/b", time.Minute, "x") == nil || r.routes.Reset("", "x") == nil {
			t.Error("nonsense is a route")
		}
	})
}

func TestT18_T20_T22_T23_WhatTheRouteLearns(t *testing.T) {
	for k, want := range map[outcome.Kind]State{
		outcome.CutEventless: Open, outcome.Garbage: Open, outcome.ServerError: Open, outcome.Overloaded: Open,
		outcome.UpgradeFailed: Open, outcome.IdleTimeout: Open, outcome.EdgeLimited: Open, outcome.Unavailable: Open,
		outcome.CallerError: Closed, outcome.PolicyRefusal: Closed, outcome.AuthRejected: Closed, outcome.Drained: Closed,
		outcome.CallerGone: Closed, outcome.Internal: Closed, outcome.BudgetSpent: Closed, outcome.ModelAtCapacity: Closed,
	} {
		r := newRig(t, defaults(), 3)
		for range 5 {
			r.ends(k)
		}
		if got := r.status().State; got != want {
			t.Errorf("five of %v: %v, want %v", k, got, want)
		}
	}
}

func TestB53_DeathInMidStreamOpens(t *testing.T) {
	r := newRig(t, defaults(), 3)
	dies := func() bool {
		r.n++
		p, refusal := r.routes.Permit(route, fmt.Sprint("caller", r.n%2))
		if refusal != nil {
			return false
		}
		p.Event()
		r.clock.step(2 * time.Second)
		p.Done(outcome.Truncated, fmt.Sprint("account", r.n%2))
		return true
	}
	for i := range 5 {
		if !dies() {
			t.Fatalf("refused at the %dth attempt", i+1)
		}
	}
	r.is(Open)
	// Its probes start well, and close it; their deaths count in the circuit that
	// they closed, and it stays open for longer.
	r.halfOpens()
	for i := range 5 {
		if !dies() {
			t.Fatalf("refused at the %dth attempt after the probes", i+1)
		}
	}
	r.is(Closed) // the first probe died while the second was not there yet
	if !dies() {
		t.Fatal("refused")
	}
	r.is(Open)
	if d := r.remaining(); d < 20*time.Second {
		t.Errorf("open for %v: it has opened twice in a row", d)
	}
}

func TestB53_StreamsOfBetterTimesHideNothing(t *testing.T) {
	r := newRig(t, defaults(), 3)
	var old []*Permit
	for i := range 20 {
		p := r.permit(fmt.Sprint("caller", i))
		p.Event()
		old = append(old, p)
	}
	for i := range 5 { // between two failures an old stream ends well
		old[i].Done(outcome.OK, "a")
		r.ends(outcome.ConnectFailed)
	}
	r.is(Open)
}

func TestB111_OneOverloadIsOneSample(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for i := range 4 { // each comes as an error and as response.failed
		p := r.permit(fmt.Sprint("caller", i))
		p.Done(outcome.Overloaded, fmt.Sprint("account", i))
		p.Done(outcome.Overloaded, fmt.Sprint("account", i))
		p.Neutral()
	}
	r.is(Closed)
	r.ends(outcome.Overloaded)
	r.is(Open)
}

func TestB112_FiveMinutesOfOverload(t *testing.T) {
	r := newRig(t, defaults(), 3)
	dispatched := 0
	for range 3000 { // ten a second
		r.clock.step(100 * time.Millisecond)
		if p, refusal := r.routes.Permit(route, fmt.Sprint("caller", r.n%5)); refusal == nil {
			dispatched++
			r.n++
			p.Done(outcome.Overloaded, fmt.Sprint("account", r.n%3))
		}
	}
	if dispatched > 12 {
		t.Errorf("%d dispatches in five minutes of overload", dispatched)
	}
	r.halfOpens()
	r.permit("x").Event()
	r.permit("x").Event()
	r.is(Closed) // as soon as it is over
}
