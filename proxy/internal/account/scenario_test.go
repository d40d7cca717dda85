package account

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// refusal is why a turn gets no account; it fails the test if it gets one.
func refusal(t *testing.T, r *Registry, w Want) *failure.Failure {
	t.Helper()
	l, err := r.Acquire(t.Context(), w)
	var f *failure.Failure
	if !errors.As(err, &f) {
		t.Fatalf("acquiring %+v: %v, %v; want a refusal", w, l, err)
	}
	return f
}

// turn runs one turn to its end and says which account had it.
func turn(t *testing.T, r *Registry, w Want, end func(*Lease)) string {
	t.Helper()
	l := acquire(t, r, w)
	<-time.After(time.Millisecond) // a turn takes time
	if end != nil {
		end(l)
	}
	l.Release()
	return l.Account().Name
}

func stateOfAccount(r *Registry, name string) State {
	for _, s := range r.States() {
		if s.Name == name {
			return s
		}
	}
	return State{}
}

func succeeds(l *Lease) { l.Succeeded() }

func accounts(names ...string) []bundle.Account {
	var list []bundle.Account
	for _, n := range names {
		a := enabled(n, 0)
		a.Weight = 100
		list = append(list, a)
	}
	return list
}

func TestPoolLimits(t *testing.T) {
	t.Run("Scenario T04: one account at its limit, the next turn goes to another at once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime(bundle.StrategyRoundRobin, accounts("a", "b", "c")...))
			for range 10 {
				r.CoolDown("a", time.Now().Add(time.Hour), ReasonQuotaExhausted)
			}
			for range 20 {
				if got := turn(t, r, Want{}, succeeds); got == "a" {
					t.Fatal("the exhausted account got a turn")
				}
			}
			if s := stateOfAccount(r, "a"); s.State != QuotaExhausted || time.Until(s.Until).Round(time.Minute) != time.Hour {
				t.Errorf("%+v", s)
			}
			for _, name := range []string{"b", "c"} {
				if s := stateOfAccount(r, name); s.State != Usable || s.Tier != Healthy {
					t.Errorf("%+v", s)
				}
			}
		})
	})
	t.Run("Scenario T05: all accounts at their limit, 429 with the earliest reset", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime(bundle.StrategyCapacityWeighted, accounts("a", "b", "c")...))
			for i, name := range []string{"a", "b", "c"} {
				r.CoolDown(name, time.Now().Add(time.Duration(3-i)*time.Hour), ReasonQuotaExhausted)
			}
			f := refusal(t, r, Want{})
			if f.Code != failure.UsageLimitReached || f.Status != 429 || !f.ResetsAt.Equal(time.Now().Add(time.Hour)) {
				t.Errorf("%+v", f)
			}
		})
	})
}

func TestEventlessFailures(t *testing.T) {
	four := func() *Registry {
		return registry(runtime(bundle.StrategyLeastLoaded, accounts("a", "b", "c", "d")...))
	}
	tier := func(t *testing.T, r *Registry, name string, want Tier) {
		t.Helper()
		if s := stateOfAccount(r, name); s.Tier != want || s.State != Usable {
			t.Fatalf("%s is %s and %s, want %s", name, s.State, s.Tier, want)
		}
	}
	without := func(rt int) *Registry {
		c := runtime(bundle.StrategyLeastLoaded, accounts("a", "b", "c", "d")...)
		c.Bundle.Circuit.Ejection.ConsecutiveFailures = rt
		return registry(c)
	}
	t.Run("Scenario 71: one says nothing, the third within 300 s makes two errors, then the window is empty", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := without(0)
			r.Eventless("a")
			tier(t, r, "a", Healthy)
			<-time.After(200 * time.Second)
			r.Eventless("a")
			tier(t, r, "a", Healthy)
			<-time.After(99 * time.Second)
			r.Eventless("a")
			tier(t, r, "a", Sick)
			if e := r.entries["a"]; len(e.eventless.times) != 0 || e.health.errors[1].IsZero() {
				t.Errorf("after the third: %+v, %+v", e.eventless, e.health)
			}
			for range 8 {
				if got := turn(t, r, Want{}, nil); got == "a" {
					t.Fatal("the account is not spared")
				}
			}
			<-time.After(quietTime)
			tier(t, r, "a", Probing)
			r.Eventless("a")
			tier(t, r, "a", Probing)
		})
	})
	t.Run("B48: a flap that hits all lowers nobody", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := four()
			for range 5 { // all sessions of one account are told first
				r.Eventless("a")
			}
			for _, name := range []string{"b", "b", "b", "c", "c", "c", "d", "d", "d"} {
				r.Eventless(name)
			}
			for _, name := range []string{"a", "b", "c", "d"} {
				tier(t, r, name, Healthy)
			}
		})
	})
	t.Run("B48: two of four are to blame", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := without(0)
			for range 3 {
				r.Eventless("a")
				r.Eventless("b")
			}
			tier(t, r, "a", Sick)
			tier(t, r, "b", Sick)
			tier(t, r, "c", Healthy)
		})
	})
	t.Run("B48: accounts that cannot be hit are not witnesses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := four()
			r.CoolDown("c", time.Now().Add(time.Hour), ReasonQuotaExhausted)
			r.CoolDown("d", time.Now().Add(time.Hour), ReasonQuotaExhausted)
			for range 3 {
				r.Eventless("a")
				r.Eventless("b")
			}
			tier(t, r, "a", Healthy)
			tier(t, r, "b", Healthy)
		})
	})
	t.Run("B48: an earlier ejection by the flap is lifted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := without(2)
			r.ejection.percent = 50
			r.Eventless("a")
			r.Eventless("a")
			if s := stateOfAccount(r, "a"); s.Reason != ReasonEjected {
				t.Fatalf("two in a row: %+v", s)
			}
			r.Eventless("b")
			r.Eventless("c")
			tier(t, r, "a", Healthy)
		})
	})
	t.Run("a success in between", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := four()
			r.Eventless("a")
			r.Eventless("a")
			r.Succeeded("a")
			r.Eventless("a")
			tier(t, r, "a", Healthy)
		})
	})
}

func TestB112_OverloadLowersNoAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyRoundRobin, accounts("a", "b", "c")...))
		for range 300 { // five minutes: what is shed says nothing, and bursts are no errors
			turn(t, r, Want{}, nil)
			turn(t, r, Want{}, func(l *Lease) { l.CoolDown(time.Now().Add(time.Millisecond), ReasonRateLimited) })
			<-time.After(time.Second)
		}
		for _, s := range r.States() {
			if s.State != Usable || s.Tier != Healthy {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestB54_EjectionsKeepTheirFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtime(bundle.StrategyRoundRobin, accounts("a", "b", "c", "d")...)
		rt.Bundle.Circuit.Ejection = bundle.Ejection{ConsecutiveFailures: 3, BaseSeconds: 30, MaxSeconds: 600, MaxEjectPercent: 50}
		r := registry(rt)
		ejected := func() (n int) {
			for _, s := range r.States() {
				n += one(s.Reason == ReasonEjected)
			}
			return n
		}
		r.Failed("a")
		r.Failed("a")
		if ejected() != 0 {
			t.Fatal("two failures eject")
		}
		r.Failed("a")
		if s := stateOfAccount(r, "a"); s.State != CoolingDown || time.Until(s.Until) != 30*time.Second {
			t.Fatalf("after three failures: %+v", s)
		}
		// All fail, for ten minutes: never more than half are out, and turns go on to
		// the others.
		most := 0
		for range 600 {
			name := turn(t, r, Want{}, nil)
			if stateOfAccount(r, name).Reason == ReasonEjected {
				t.Fatal("an ejected account got a turn")
			}
			r.Failed(name)
			most = max(most, ejected())
			<-time.After(time.Second)
		}
		if most != 2 {
			t.Errorf("up to %d of 4 accounts were ejected at once, want 2", most)
		}
		// The floor is of those that are usable: with two at their quota, one may go.
		r.CoolDown("c", time.Now().Add(time.Hour), ReasonQuotaExhausted)
		r.CoolDown("d", time.Now().Add(time.Hour), ReasonQuotaExhausted)
		if n := ejected(); n > 1 {
			t.Errorf("%d of 2 usable accounts are ejected", n)
		}
		r.CoolDown("b", time.Now().Add(2*time.Hour), ReasonQuotaExhausted)
		if n := ejected(); n != 0 {
			t.Error("the last usable account is ejected")
		}
		r.CoolDown("a", time.Now().Add(2*time.Hour), ReasonQuotaExhausted)
		if f := refusal(t, r, Want{}); f.Code != failure.UsageLimitReached || f.RetryAfter <= 0 {
			t.Errorf("with none left: %+v", f)
		}
	})
}

func TestEjectionEndsAndGrows(t *testing.T) {
	p := ejectionPolicy{failures: 2, base: 30 * time.Second, limit: 100 * time.Second}
	var e ejection
	now := noon
	for _, want := range []time.Duration{30 * time.Second, 60 * time.Second, 100 * time.Second, 100 * time.Second} {
		e.fail(p, false, now)
		if !e.end(now).IsZero() {
			t.Fatal("one failure ejects")
		}
		e.fail(p, false, now)
		e.fail(p, false, now) // of a turn that was under way
		if got := e.end(now).Sub(now); got != want {
			t.Fatalf("ejected for %s, want %s", got, want)
		}
		now = now.Add(want)
		if !e.end(now).IsZero() {
			t.Fatal("the ejection does not end")
		}
	}
	e = ejection{}
	for range 100 {
		e.fail(ejectionPolicy{base: time.Second, limit: time.Second}, false, now)
	}
	if !e.end(now).IsZero() {
		t.Error("a policy without a number ejects")
	}
}

func TestLimitEjections(t *testing.T) {
	ejected := func(name string, seconds int, models ...string) Candidate {
		return with(name, func(c *Candidate) { c.Ejected, c.Models = noon.Add(time.Duration(seconds)*time.Second), models })
	}
	for name, c := range map[string]struct {
		view    []Candidate
		percent int
		want    []string
	}{
		"none":                          {[]Candidate{with("a", nil), with("b", nil)}, 50, nil},
		"one of two":                    {[]Candidate{ejected("a", 1), with("b", nil)}, 50, []string{"a"}},
		"half of two, both failing":     {[]Candidate{ejected("a", 1), ejected("b", 2)}, 50, []string{"b"}},
		"half of three is one":          {[]Candidate{ejected("a", 1), ejected("b", 2), with("c", nil)}, 50, []string{"b"}},
		"never the last":                {[]Candidate{ejected("a", 1), ejected("b", 2)}, 100, []string{"b"}},
		"a single account":              {[]Candidate{ejected("a", 1)}, 100, nil},
		"nothing allowed":               {[]Candidate{ejected("a", 1), with("b", nil)}, 0, nil},
		"who cools down does not count": {[]Candidate{ejected("a", 1), inState("b", CoolingDown), inState("c", Disabled)}, 100, nil},
		"the last of its model":         {[]Candidate{ejected("a", 1, "m", "n"), with("b", func(c *Candidate) { c.Models = []string{"m"} })}, 50, nil},
		"its models are served":         {[]Candidate{ejected("a", 1, "m", "n"), with("b", nil)}, 50, []string{"a"}},
		"the last for all models":       {[]Candidate{ejected("a", 1), with("b", func(c *Candidate) { c.Models = []string{"m"} })}, 50, nil},
		"the last of a model, ejected both": {[]Candidate{ejected("a", 1, "m"), ejected("b", 2, "m"), with("c", func(c *Candidate) { c.Models = []string{"n"} }),
			with("d", func(c *Candidate) { c.Models = []string{"n"} })}, 50, []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			limitEjections(c.view, c.percent)
			var got []string
			for _, v := range c.view {
				if v.Reason == ReasonEjected {
					got = append(got, v.Name)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
