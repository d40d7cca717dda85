package account

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestCalendar(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	for _, c := range []struct{ window, now, begin, end string }{
		{"Minute", "2026-03-01T12:34:56Z", "2026-03-01T12:34:00Z", "2026-03-01T12:35:00Z"},
		{"Hour", "2026-03-01T23:59:59Z", "2026-03-01T23:00:00Z", "2026-03-02T00:00:00Z"},
		{"Hour", "2026-03-01T12:10:00+05:30", "2026-03-01T06:00:00Z", "2026-03-01T07:00:00Z"},
		{"Day", "2026-03-01T00:30:00+02:00", "2026-02-28T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"Week", "2026-03-01T12:00:00Z", "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z"}, // a Sunday
		{"Week", "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z", "2026-03-09T00:00:00Z"},
		{"Month", "2026-02-28T23:59:59Z", "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"},
		{"Month", "2026-12-31T12:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"Fortnight", "2026-12-31T12:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	} {
		begin, end := calendar(c.window, at(c.now))
		if !begin.Equal(at(c.begin)) || !end.Equal(at(c.end)) {
			t.Errorf("%s at %s: %s to %s", c.window, c.now, begin, end)
		}
	}
}

func TestBudgets(t *testing.T) {
	quota := func(name, unit, window string, limit int64, soft int) bundle.Quota {
		return bundle.Quota{Name: name, Unit: unit, Window: window, Limit: limit, SoftLimitPercent: soft}
	}
	now := noon.Add(10 * time.Second) // a Sunday, 12:00:10
	refused := func(t *testing.T, bs budgets, goesOn bool, now time.Time) time.Duration {
		t.Helper()
		f := bs.refuse(goesOn, now)
		if f == nil {
			return 0
		}
		if f.Code != failure.UsageLimitReached || f.Status != 429 || f.Reason != causeBudget || f.RetryAfter != f.ResetsAt.Sub(now) {
			t.Errorf("%+v", f)
		}
		return f.RetryAfter
	}
	t.Run("all stop at the limit, new conversations at the soft one", func(t *testing.T) {
		bs := budgets{}.update([]bundle.Quota{quota("q", unitRequests, "Minute", 10, 80)}, Share{})
		for i := range 12 {
			if fresh, old := refused(t, bs, false, now) > 0, refused(t, bs, true, now) > 0; fresh != (i >= 8) || old != (i >= 10) {
				t.Errorf("after %d: new ones refused = %v, old ones = %v", i, fresh, old)
			}
			bs.spend(unitRequests, 1, now)
			bs.spend(unitTokens, 1000, now)
		}
		if d := refused(t, bs, false, now); d != 50*time.Second {
			t.Errorf("the minute ends after %s", d)
		}
		if refused(t, bs, false, now.Add(50*time.Second)) > 0 {
			t.Error("a new minute has begun")
		}
	})
	t.Run("the one that lasts longest", func(t *testing.T) {
		bs := budgets{}.update([]bundle.Quota{quota("d", unitTokens, "Day", 1, 100), quota("m", unitTokens, "Minute", 1, 0), quota("h", unitTokens, "Hour", 9, 100)}, Share{})
		bs.spend(unitTokens, 5, now)
		if d := refused(t, bs, true, now); d != 12*time.Hour-10*time.Second {
			t.Errorf("refused for %s", d)
		}
	})
	t.Run("shares of replicas", func(t *testing.T) {
		quotas := []bundle.Quota{quota("q", unitRequests, "Day", 10, 50)}
		var limits, softs []int64
		for rank := range 3 {
			bs := budgets{}.update(quotas, Share{3, rank})
			limits, softs = append(limits, bs[0].limit), append(softs, bs[0].soft)
		}
		if diff := cmp.Diff([]int64{4, 3, 3}, limits) + cmp.Diff([]int64{2, 1, 1}, softs); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("what was spent survives an update", func(t *testing.T) {
		bs := budgets{}.update([]bundle.Quota{quota("q", unitRequests, "Day", 10, 100)}, Share{})
		bs.spend(unitRequests, 5, now)
		bs = bs.update([]bundle.Quota{quota("q", unitRequests, "Day", 5, 100), quota("p", unitTokens, "Day", 5, 100)}, Share{})
		if refused(t, bs, true, now) == 0 {
			t.Error("a lowered limit does not hold")
		}
		bs = bs.update([]bundle.Quota{quota("q", unitTokens, "Day", 5, 100)}, Share{})
		if refused(t, bs, true, now) > 0 {
			t.Error("requests count as tokens")
		}
	})
	t.Run("the largest numbers", func(t *testing.T) {
		const most = 1<<63 - 1
		bs := budgets{}.update([]bundle.Quota{quota("q", unitTokens, "Month", most, 99)}, Share{})
		if s := bs[0].soft; s < most/100*98 {
			t.Errorf("soft limit %d", s)
		}
	})
}

func TestPoolQuotaRefusesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtime("", enabled("a", 1))
		rt.Bundle.Pool.Quotas = []bundle.Quota{{Name: "q", Unit: unitRequests, Window: "Hour", Limit: 4, SoftLimitPercent: 50}}
		r := registry(rt)
		first := acquire(t, r, Want{})
		first.Release()
		second := acquire(t, r, Want{})
		waiting := wait(t.Context(), r, Want{Continues: true})
		again := wait(t.Context(), r, Want{Continues: true, Client: "x"})
		late := wait(t.Context(), r, Want{Continues: true, Client: "y"})
		if f := refusal(t, r, Want{}); f.Reason != causeBudget {
			t.Errorf("a new conversation above the soft limit: %+v", f)
		}
		permit := second.Permit()
		second.Release()
		expect(t, "the third", waiting, "a")
		waiting.lease.Release()
		expect(t, "the fourth", again, "a")
		expect(t, "who waited when the quota was used up", late, failure.UsageLimitReached)
		again.lease.Release()
		if f := refusal(t, r, Want{Only: "a"}); f.Reason != causeBudget || f.RetryAfter > time.Hour {
			t.Errorf("above the limit: %+v", f)
		}
		under := acquire(t, r, Want{Permit: permit})
		under.Release() // a turn under way that asks for another account was counted
		if n := r.budgets[0].spent; n != 4 {
			t.Errorf("%d turns were counted", n)
		}
		permit.Release()
		<-time.After(time.Hour)
		turn(t, r, Want{}, nil)
	})
}

// TestAQuotaThatRunsOutWhileTurnsWait: as many as it has left are served, the others
// hear at once that waiting is pointless.
func TestAQuotaThatRunsOutWhileTurnsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtime("", enabled("a", 0))
		rt.Bundle.Pool.Quotas = []bundle.Quota{{Name: "q", Unit: unitRequests, Window: "Day", Limit: 2, SoftLimitPercent: 100}}
		r := registry(rt)
		r.CoolDown("a", time.Now().Add(5*time.Second), ReasonConnectFailed)
		var waiting []*pending
		for range 4 {
			waiting = append(waiting, wait(t.Context(), r, Want{}))
		}
		<-time.After(5 * time.Second)
		got := map[string]int{}
		for _, p := range waiting {
			got[p.outcome()]++
		}
		for _, p := range waiting {
			if p.lease != nil {
				p.lease.Release()
			}
		}
		if got["a"] != 2 || got[failure.UsageLimitReached] != 2 {
			t.Errorf("%v", got)
		}
	})
}

func TestLimitsPerMinuteLetTurnsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := enabled("a", 0)
		a.RequestsPerMinute = 6 // one at once, then each ten seconds
		r := registry(runtime("", a))
		turn(t, r, Want{}, nil)
		if s := stateOfAccount(r, "a"); s.State != Usable || s.Reason != ReasonLocalLimit {
			t.Errorf("%+v", s)
		}
		began := time.Now()
		first, second := wait(t.Context(), r, Want{}), wait(t.Context(), r, Want{})
		expect(t, "at once", first, "waiting")
		<-time.After(10 * time.Second)
		expect(t, "after ten seconds", first, "a")
		expect(t, "the next", second, "waiting")
		first.lease.Release()
		expect(t, "room is not enough", second, "waiting")
		<-time.After(10 * time.Second)
		expect(t, "after twenty seconds", second, "a")
		second.lease.Release()
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestTokensAreChargedAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := enabled("a", 0)
		a.TokensPerMinute = 6000
		rt := runtime("", a, enabled("b", 0))
		rt.Bundle.Pool.Quotas = []bundle.Quota{{Name: "q", Unit: unitTokens, Window: "Day", Limit: 20000, SoftLimitPercent: 100}}
		r := registry(rt)
		l := acquire(t, r, Want{Only: "a"})
		l.Release()
		l.Spent(7000) // of 1000: a minute of debt
		l.Spent(-5)
		waiting := wait(t.Context(), r, Want{Only: "a"})
		<-time.After(29 * time.Second)
		expect(t, "in debt", waiting, "waiting")
		if got := turn(t, r, Want{}, func(l *Lease) { l.Spent(14000) }); got != "b" {
			t.Errorf("a new turn went to %s", got)
		}
		if f := refusal(t, r, Want{}); f.Code != failure.UsageLimitReached || f.Reason != causeBudget {
			t.Errorf("beyond the quota of tokens: %+v", f)
		}
	})
}

func TestLocalLimitIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := enabled("a", 5)
		a.RequestsPerMinute = 60
		rt := runtime("", a)
		rt.Bundle.Pool.Quotas = []bundle.Quota{{Name: "q", Unit: unitRequests, Window: "Day", Limit: 30, SoftLimitPercent: 100}}
		for _, c := range []struct {
			scope      string
			concurrent int
			perMinute  float64
		}{{"PerReplica", 5, 60}, {"", 5, 60}, {"Partitioned", 3, 30}, {"Shared", 5, 30}} {
			rt.Bundle.Pool.CapacityScope = c.scope
			r := registry(rt)
			r.SetShare(Share{2, 0})
			e := r.entries["a"]
			if e.account.MaxConcurrent != c.concurrent || e.requests.perMinute != c.perMinute || r.budgets[0].limit != 15 {
				t.Errorf("%s: %d at once, %g a minute, quota %d", c.scope, e.account.MaxConcurrent, e.requests.perMinute, r.budgets[0].limit)
			}
			r.Update(rt)
			if e.account.MaxConcurrent != c.concurrent {
				t.Errorf("%s: after an update %d at once", c.scope, e.account.MaxConcurrent)
			}
			r.SetShare(Share{1, 0})
			<-time.After(stableTime)
			if r.SetShare(Share{1, 0}); e.account.MaxConcurrent != 5 || e.requests.perMinute != 60 || r.budgets[0].limit != 30 {
				t.Errorf("%s, alone: %d at once, %g a minute, quota %d", c.scope, e.account.MaxConcurrent, e.requests.perMinute, r.budgets[0].limit)
			}
		}
	})
}

func TestB50_CoolDownsOfOtherReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, two := registry(runtime("", accounts("a", "b")...)), registry(runtime("", accounts("a", "b")...))
		until := time.Now().Add(time.Hour)
		first.CoolDown("a", until, ReasonQuotaExhausted)
		first.CoolDown("a", until, ReasonConnectFailed)
		first.CoolDown("b", until, ReasonAuthRejected)
		first.CoolDown("b", until.Add(time.Hour), ReasonDeactivated)
		told := first.CoolDowns()
		if len(told) != 2 {
			t.Fatalf("%+v", told) // neither the way to the upstream nor the credential
		}
		for _, c := range told {
			if !two.SwapCoolDown(c.Account, c.Reason, time.Time{}, c.Until) {
				t.Errorf("%+v was not taken", c)
			}
		}
		if s := two.States(); s[0].State != QuotaExhausted || !s[0].Until.Equal(until) || s[0].NextProbe.IsZero() || s[1].State != ReauthRequired {
			t.Errorf("%+v", s)
		}
		swap := func(what string, want bool, name, reason string, was, next time.Time) {
			t.Helper()
			if two.SwapCoolDown(name, reason, was, next) != want {
				t.Errorf("%s: want %v", what, want)
			}
		}
		swap("B51: news here count more", false, "a", ReasonQuotaExhausted, time.Time{}, until.Add(time.Hour))
		swap("no such account", false, "x", ReasonQuotaExhausted, time.Time{}, until)
		swap("a reason that is not shared", false, "a", ReasonAuthRejected, time.Time{}, until)
		swap("longer", true, "a", ReasonQuotaExhausted, until, until.Add(time.Hour))
		swap("cleared elsewhere", true, "a", ReasonQuotaExhausted, until.Add(time.Hour), time.Time{})
		if s := two.States()[0]; s.State != Usable {
			t.Errorf("%+v", s)
		}
		<-time.After(2 * time.Hour)
		if len(first.CoolDowns()) != 0 {
			t.Error("ended ones are told")
		}
		swap("one that has ended here", true, "b", ReasonDeactivated, time.Time{}, time.Now().Add(time.Minute))
	})
}

// TestB51_NothingFlaps: what is learned again and again, and turns that began
// before, change nothing.
func TestB51_NothingFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime("", accounts("a", "b")...))
		var early []*Lease
		for range 20 {
			early = append(early, acquire(t, r, Want{Only: "a"}))
		}
		<-time.After(time.Second)
		until := time.Now().Add(time.Hour)
		changes, last := 0, Usable
		look := func() {
			if s := stateOfAccount(r, "a").State; s != last {
				changes, last = changes+1, s
			}
		}
		for i, l := range early {
			if i%2 == 0 {
				l.CoolDown(until.Add(time.Duration(i%3)*time.Second), ReasonQuotaExhausted)
			} else {
				l.Succeeded()
			}
			look()
			r.SwapCoolDown("a", ReasonQuotaExhausted, time.Time{}, until)
			look()
			l.Release()
			look()
		}
		if changes != 1 || last != QuotaExhausted {
			t.Errorf("%d changes, ended as %s", changes, last)
		}
	})
}

func TestLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime("", accounts("a", "b")...))
		r.Lacks("a", "m")
		r.Lacks("a", "")
		r.Lacks("x", "m")
		for range 4 {
			if got := turn(t, r, Want{Model: "m"}, nil); got != "b" {
				t.Fatalf("the turn went to %s", got)
			}
		}
		turn(t, r, Want{Model: "n", Only: "a"}, nil)
		turn(t, r, Want{Only: "a"}, nil)
		if s := stateOfAccount(r, "a"); s.State != Usable || s.Tier != Healthy {
			t.Errorf("%+v", s)
		}
		<-time.After(lacksTime)
		turn(t, r, Want{Model: "m", Only: "a"}, nil)
		for i := range 100 {
			r.Lacks("a", string(rune('A'+i)))
		}
		if n := len(r.entries["a"].lacks); n != maxLacks {
			t.Errorf("%d models are remembered", n)
		}
	})
}

func TestReasonsAreClosed(t *testing.T) {
	states := map[string]string{
		ReasonRateLimited: CoolingDown, ReasonQuotaExhausted: QuotaExhausted, ReasonAuthRejected: ReauthRequired,
		ReasonDeactivated: ReauthRequired, ReasonConnectFailed: CoolingDown, ReasonEjected: CoolingDown,
	}
	for _, reason := range Reasons() {
		if want, cools := states[reason]; cools && stateOf(reason) != want {
			t.Errorf("%s shows as %s, want %s", reason, stateOf(reason), want)
		}
		delete(states, reason)
	}
	if len(states) > 0 {
		t.Errorf("not listed: %v", states)
	}
}
