package account

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// exhausted is a pool of one account whose quota is used up for six days.
func exhausted(t *testing.T, names ...string) *Registry {
	t.Helper()
	r := registry(runtime(bundle.StrategyLeastLoaded, accounts(names...)...))
	r.CoolDown("a", time.Now().Add(6*24*time.Hour), ReasonQuotaExhausted)
	return r
}

const firstProbe = time.Duration(float64(probeInterval) * (1 + probeJitter))

func TestB42_QuotaIsProbed(t *testing.T) {
	t.Run("six days by the hint, restored after ten minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := exhausted(t, "a")
			s := stateOfAccount(r, "a")
			if s.State != QuotaExhausted || s.Reason != ReasonQuotaExhausted || s.Since != time.Now() ||
				s.NextProbe.Before(time.Now().Add(probeInterval)) || s.NextProbe.After(time.Now().Add(firstProbe)) {
				t.Errorf("%+v", s)
			}
			<-time.After(probeInterval - time.Millisecond)
			if f := refusal(t, r, Want{}); f.Code != failure.UsageLimitReached {
				t.Fatalf("before ten minutes are over: %+v", f)
			}
			<-time.After(firstProbe - probeInterval + time.Millisecond)
			turn(t, r, Want{}, succeeds)
			if s := stateOfAccount(r, "a"); s.State != Usable || !s.Until.IsZero() || !s.NextProbe.IsZero() {
				t.Errorf("after a good probe: %+v", s)
			}
		})
	})
	t.Run("exactly one turn is the probe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := exhausted(t, "a")
			<-time.After(firstProbe)
			probe := acquire(t, r, Want{})
			for range 5 {
				if f := refusal(t, r, Want{}); f.Code != failure.UsageLimitReached {
					t.Fatalf("beside the probe: %+v", f)
				}
			}
			probe.Release()
		})
	})
	t.Run("those who wait are not all let through", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime(bundle.StrategyLeastLoaded, enabled("a", 0), enabled("b", 1)))
			held := acquire(t, r, Want{Only: "b"})
			r.CoolDown("a", time.Now().Add(time.Hour), ReasonQuotaExhausted)
			<-time.After(firstProbe - time.Second)
			waiting := []*pending{wait(t.Context(), r, Want{}), wait(t.Context(), r, Want{}), wait(t.Context(), r, Want{})}
			<-time.After(2 * time.Second)
			served := 0
			for _, p := range waiting {
				served += one(p.outcome() == "a")
			}
			if served != 1 {
				t.Errorf("%d turns were let through", served)
			}
			held.Release()
			for range waiting { // each that ends lets the next one in
				for _, p := range waiting {
					if p.outcome() != "waiting" {
						p.lease.Release()
					}
				}
			}
		})
	})
	t.Run("a probe that is answered by a limit renews", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := exhausted(t, "a")
			<-time.After(firstProbe)
			// The upstream knows better by now: two hours, not six days.
			turn(t, r, Want{}, func(l *Lease) {
				l.CoolDown(time.Now().Add(2*time.Hour), ReasonQuotaExhausted)
				l.Succeeded() // of an attempt before; the limit is newer
			})
			if s := stateOfAccount(r, "a"); time.Until(s.Until).Round(time.Second) != 2*time.Hour || time.Until(s.NextProbe) < probeInterval-time.Second {
				t.Errorf("%+v", s)
			}
			refusal(t, r, Want{})
		})
	})
	t.Run("a probe without a hint renews too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := exhausted(t, "a")
			<-time.After(firstProbe)
			turn(t, r, Want{}, func(l *Lease) { l.CoolDown(time.Time{}, ReasonQuotaExhausted) })
			if s := stateOfAccount(r, "a"); time.Until(s.Until).Round(time.Second) != quotaPause {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("a probe that meets a burst is over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := exhausted(t, "a")
			<-time.After(firstProbe)
			turn(t, r, Want{}, func(l *Lease) { l.CoolDown(time.Time{}, ReasonRateLimited) })
			<-time.After(time.Minute)
			refusal(t, r, Want{})
			if s := stateOfAccount(r, "a"); s.Reason != ReasonQuotaExhausted || time.Until(s.NextProbe) < probeInterval-2*time.Minute {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("a neutral end gives the probe back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := exhausted(t, "a")
			<-time.After(firstProbe)
			turn(t, r, Want{}, nil)
			turn(t, r, Want{}, succeeds)
			if s := stateOfAccount(r, "a"); s.State != Usable {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("at most one probe each ten minutes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := exhausted(t, "a", "b")
			probes := 0
			for range 6 * 60 * 2 { // two hours of turns each ten seconds
				turn(t, r, Want{}, func(l *Lease) {
					if l.Account().Name == "a" {
						probes++
						l.CoolDown(time.Now().Add(6*24*time.Hour), ReasonQuotaExhausted)
					}
				})
				<-time.After(10 * time.Second)
			}
			if probes < 9 || probes > 12 {
				t.Errorf("%d probes in two hours", probes)
			}
		})
	})
	t.Run("short limits and rejected logins are not probed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime("", accounts("a", "b", "c", "d")...))
			r.CoolDown("a", time.Now().Add(probeInterval), ReasonRateLimited)
			r.CoolDown("b", time.Now().Add(24*time.Hour), ReasonAuthRejected)
			r.CoolDown("c", time.Now().Add(24*time.Hour), ReasonDeactivated)
			r.CoolDown("d", time.Now().Add(24*time.Hour), ReasonQuotaExhausted)
			r.CoolDown("d", time.Now().Add(23*time.Hour), ReasonAuthRejected) // both have to be good
			for _, s := range r.States() {
				if !s.NextProbe.IsZero() {
					t.Errorf("%+v", s)
				}
			}
			<-time.After(probeInterval - time.Minute) // sooner than a turn would wait for it
			refusal(t, r, Want{})
			<-time.After(4 * probeInterval)
			for _, name := range []string{"b", "c", "d"} {
				refusal(t, r, Want{Only: name})
			}
		})
	})
	t.Run("a disabled account is not probed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rt := runtime("", accounts("a")...)
			rt.Bundle.Pool.Accounts[0].State = bundle.AccountDraining
			r := registry(rt)
			r.CoolDown("a", time.Now().Add(24*time.Hour), ReasonQuotaExhausted)
			<-time.After(firstProbe)
			refusal(t, r, Want{})
		})
	})
}

func TestB42_AGoodTurnClearsALimitThatWasHitBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime("", accounts("a")...))
		before := acquire(t, r, Want{})
		<-time.After(time.Second)
		r.CoolDown("a", time.Now().Add(time.Hour), ReasonQuotaExhausted)
		<-time.After(time.Second)
		before.Succeeded()
		before.Release()
		if s := stateOfAccount(r, "a"); s.State != QuotaExhausted {
			t.Fatalf("a turn that began before the limit was hit cleared it: %+v", s)
		}
		r.Succeeded("a")
		if s := stateOfAccount(r, "a"); s.State != QuotaExhausted {
			t.Fatalf("a turn of which nothing is known cleared it: %+v", s)
		}
		<-time.After(firstProbe)
		probe := acquire(t, r, Want{})
		probe.Release() // the verdict may come later than the account is given back
		probe.Succeeded()
		if s := stateOfAccount(r, "a"); s.State != Usable {
			t.Errorf("%+v", s)
		}
	})
}

func TestB42_ALateLimitOfAnEarlierTurnDoesNotShorten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime("", accounts("a")...))
		early := acquire(t, r, Want{})
		<-time.After(time.Second)
		r.CoolDown("a", time.Now().Add(24*time.Hour), ReasonQuotaExhausted)
		<-time.After(time.Second)
		if until := early.CoolDown(time.Now().Add(time.Minute), ReasonQuotaExhausted); time.Until(until) < 23*time.Hour {
			t.Errorf("shortened to %s", time.Until(until))
		}
		early.Release()
	})
}

func TestB42_ResetClearsOncePerToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtime("", accounts("a", "b")...)
		rt.Bundle.Circuit.Ejection = bundle.Ejection{ConsecutiveFailures: 2, BaseSeconds: 30, MaxSeconds: 600, MaxEjectPercent: 50}
		r := registry(rt)
		set := func() {
			r.CoolDown("a", time.Now().Add(24*time.Hour), ReasonQuotaExhausted)
			r.CoolDown("b", time.Now().Add(24*time.Hour), ReasonAuthRejected)
		}
		is := func(when, a, b string) {
			t.Helper()
			if s := r.States(); s[0].State != a || s[1].State != b {
				t.Fatalf("%s: %s, %s; want %s, %s", when, s[0].State, s[1].State, a, b)
			}
		}
		set()
		is("before", QuotaExhausted, ReauthRequired)
		rt.Bundle.Pool.ResetCooldowns = "b=1"
		r.Update(rt)
		is("one account", QuotaExhausted, Usable)
		set()
		r.Update(rt)
		is("the same token", QuotaExhausted, ReauthRequired)
		rt.Bundle.Pool.ResetCooldowns = ""
		r.Update(rt)
		is("no token", QuotaExhausted, ReauthRequired)
		rt.Bundle.Pool.ResetCooldowns = "1"
		r.Update(rt)
		is("the same text for all", Usable, Usable)
		set()
		r.Reset("", "2")
		is("another", Usable, Usable)
		for range 2 {
			r.Failed("a")
		}
		if s := stateOfAccount(r, "a"); s.Reason != ReasonEjected || s.Tier != Sick {
			t.Fatalf("%+v", s)
		}
		r.Reset("", "3")
		if s := stateOfAccount(r, "a"); s.State != Usable || s.Tier != Healthy {
			t.Errorf("%+v", s)
		}
	})
}

func TestObserve(t *testing.T) {
	refused := Usage{Refused: true, Windows: []Window{{"Primary", 100, fiveHours, time.Time{}}}}
	hourly := func(u Usage) Usage {
		u.Windows = []Window{{"Primary", 100, fiveHours, time.Now().Add(time.Hour)}}
		return u
	}
	t.Run("B46: what nobody told is not listed", func(t *testing.T) {
		r := registry(runtime("", accounts("a")...))
		r.Observe("a", Usage{})
		r.Observe("b", refused)
		if s := stateOfAccount(r, "a"); len(s.Usage) != 0 || s.State != Usable {
			t.Errorf("%+v", s)
		}
	})
	t.Run("B46: a window at 100 percent alone blocks nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime("", accounts("a")...))
			r.Observe("a", hourly(Usage{}))
			if s := stateOfAccount(r, "a"); s.State != Usable || len(s.Usage) != 1 || s.Usage[0].Used != 100 {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("the document blocks until the window ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime("", accounts("a")...))
			r.Observe("a", hourly(refused))
			if s := stateOfAccount(r, "a"); s.State != QuotaExhausted || time.Until(s.Until) != time.Hour {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("a refusal without an end blocks nothing", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime("", accounts("a")...))
			r.Observe("a", refused)
			if s := stateOfAccount(r, "a"); s.State != Usable {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("B42: a document that lags blocks no account that works", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime("", accounts("a")...))
			r.Observe("a", hourly(refused))
			<-time.After(firstProbe)
			turn(t, r, Want{}, succeeds)
			for range 10 {
				r.Observe("a", hourly(refused))
				if s := stateOfAccount(r, "a"); s.State != Usable {
					t.Fatalf("%+v", s)
				}
				<-time.After(5 * time.Minute)
			}
			// It tells something new, and then the window is used up again.
			r.Observe("a", Usage{Windows: []Window{{"Primary", 3, fiveHours, time.Time{}}}})
			r.Observe("a", hourly(refused))
			if s := stateOfAccount(r, "a"); s.State != QuotaExhausted {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("B42: a turn has just gone well", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime("", accounts("a")...))
			turn(t, r, Want{}, succeeds)
			r.Observe("a", hourly(refused))
			if s := stateOfAccount(r, "a"); s.State != Usable {
				t.Fatalf("%+v", s)
			}
			<-time.After(documentLag)
			r.Observe("a", hourly(refused))
			if s := stateOfAccount(r, "a"); s.State != QuotaExhausted {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("a refusal without a hint lasts until the window ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime("", accounts("a")...))
			r.Observe("a", Usage{Windows: []Window{{"Primary", 100, fiveHours, time.Now().Add(3 * time.Hour)}}})
			r.CoolDown("a", time.Time{}, ReasonQuotaExhausted)
			r.Observe("a", Usage{Windows: []Window{{"Secondary", 100, oneWeek, time.Now().Add(30 * time.Hour)}}})
			if s := stateOfAccount(r, "a"); time.Until(s.Until) != 3*time.Hour {
				t.Errorf("%+v", s)
			}
		})
	})
	t.Run("a window that is nearly used up spares the account", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime(bundle.StrategyRoundRobin, accounts("a", "b")...))
			r.Observe("a", Usage{Windows: []Window{{"Primary", 86, fiveHours, time.Now().Add(time.Hour)}}})
			for range 4 {
				if got := turn(t, r, Want{}, succeeds); got != "b" {
					t.Fatal("the pressed account got a turn")
				}
			}
			<-time.After(time.Hour)
			if got := turn(t, r, Want{}, succeeds); got != "a" {
				t.Errorf("after the window ended the turn went to %s", got)
			}
		})
	})
}

func TestTrialOfAProbingAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtime(bundle.StrategyLeastLoaded, accounts("a", "b")...)
		r := registry(rt)
		r.Failed("a")
		r.Failed("a")
		if got := turn(t, r, Want{}, nil); got != "b" {
			t.Fatal("the sick account got a turn")
		}
		<-time.After(quietTime)
		got := ""
		for range 3 {
			got += turn(t, r, Want{}, succeeds)
		}
		if got != "abb" {
			t.Errorf("turns went to %q: one trial per quiet time", got)
		}
		for range 2 {
			<-time.After(quietTime)
			turn(t, r, Want{}, succeeds)
		}
		if s := stateOfAccount(r, "a"); s.Tier != Healthy {
			t.Errorf("after three good trials: %+v", s)
		}
	})
}
