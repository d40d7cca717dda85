package account

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// B15: while all accounts cool down, the hint is when the first is back; one that
// is back soon is waited for, and the client sees nothing of it.
func TestB15_TheHintIsTheFirstRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyLeastLoaded, accounts("a", "b")...))
		r.CoolDown("a", time.Now().Add(70*time.Second), ReasonRateLimited)
		r.CoolDown("b", time.Now().Add(90*time.Second), ReasonRateLimited)
		f := refusal(t, r, Want{})
		if f.Code != failure.RateLimitExceeded || f.Status != 429 || f.RetryAfter != 70*time.Second {
			t.Fatalf("%+v", f)
		}
		<-time.After(63 * time.Second)
		begin := time.Now()
		l, err := r.Acquire(t.Context(), Want{})
		if err != nil || l.Account().Name != "a" || time.Since(begin) != 7*time.Second {
			t.Fatalf("%v after %s: B15: 7 s are waited for", err, time.Since(begin))
		}
		l.Release()
	})
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyLeastLoaded, accounts("a")...))
		r.CoolDown("a", time.Now().Add(7*time.Second), ReasonRateLimited)
		p := wait(t.Context(), r, Want{})
		expect(t, "within the time to wait", p, "waiting")
		r.CoolDown("a", time.Now().Add(5*time.Minute), ReasonRateLimited) // it got worse
		expect(t, "beyond it", p, failure.RateLimitExceeded)
		r.Reset("", "now")
		p = wait(t.Context(), r, Want{Exclude: []string{"a"}})
		expect(t, "an account that this turn has tried", p, failure.NoAccounts)
	})
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime(bundle.StrategyLeastLoaded, accounts("a", "b")...))
		r.CoolDown("a", time.Now().Add(10*time.Minute), ReasonConnectFailed)
		r.CoolDown("b", time.Now().Add(5*time.Minute), ReasonRateLimited)
		if f := refusal(t, r, Want{}); f.Code != failure.NoAccounts || f.RetryAfter != 5*time.Minute {
			t.Fatalf("not all of them are limited: %+v", f)
		}
		p := wait(t.Context(), r, Want{Only: "a"})
		expect(t, "the owner is away for long", p, failure.OwnerUnavailable)
	})
}
