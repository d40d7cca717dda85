package circuit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

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
