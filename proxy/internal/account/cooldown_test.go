package account

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accounts := []bundle.Account{enabled("ok", 0), enabled("limited", 0), enabled("quota", 0), enabled("auth", 0), enabled("bare", 0)}
		accounts = append(accounts, bundle.Account{Name: "off", State: bundle.AccountDisabled},
			bundle.Account{Name: "drain", State: bundle.AccountDraining}, bundle.Account{Name: "new", State: "Hibernating"})
		rt := runtime("", accounts...)
		delete(rt.Credentials.Accounts, "bare")
		r := registry(rt)
		until := time.Now().Add(time.Minute)
		r.CoolDown("limited", until, ReasonRateLimited)
		r.CoolDown("quota", until, ReasonQuotaExhausted)
		r.CoolDown("quota", until.Add(-time.Second), ReasonRateLimited) // a shorter one hides nothing
		r.CoolDown("auth", until, ReasonAuthRejected)
		r.CoolDown("no such account", until, ReasonAuthRejected)
		want := map[string]string{"ok": Usable, "limited": CoolingDown, "quota": QuotaExhausted, "auth": ReauthRequired,
			"bare": Unknown, "off": Disabled, "drain": Draining, "new": Unknown}
		for _, s := range r.States() {
			if s.State != want[s.Name] {
				t.Errorf("%s is %s, want %s", s.Name, s.State, want[s.Name])
			}
		}
		<-time.After(time.Minute)
		if s := r.States()[2]; s.State != Usable || s.Reason != "" || !s.Until.IsZero() {
			t.Errorf("after its cool-down: %+v", s)
		}
	})
}

func TestCoolDownEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := runtime("", enabled("a", 0))
		r := registry(rt)
		now := time.Now()
		left := func() time.Duration { return max(0, r.States()[0].Until.Sub(now)) }
		step := func(what string, want time.Duration) {
			t.Helper()
			if got := left(); got != want {
				t.Fatalf("%s: %s left, want %s", what, got, want)
			}
		}
		r.CoolDown("a", now.Add(time.Hour), ReasonConnectFailed)
		r.CoolDown("a", now.Add(time.Minute), ReasonConnectFailed)
		step("a shorter hint does not shorten", time.Hour)
		r.CoolDown("a", now.Add(time.Minute), ReasonRateLimited)
		r.Succeeded("a")
		step("success ends the connect cool-down alone", time.Minute)
		r.CoolDown("a", now.Add(2*time.Minute), ReasonAuthRejected)
		r.Update(rt)
		step("the same credential", 2*time.Minute)
		rt2 := runtime("", enabled("a", 0))
		rt2.Credentials.Accounts["a"] = bundle.Credential{APIKey: "sk-rotated"}
		r.Update(rt2)
		step("a new credential lifts the rejection alone", time.Minute)
		r.CoolDown("a", now.Add(1000*time.Hour), ReasonQuotaExhausted)
		step("no cool-down is endless", MaxCoolDown)
		r.Succeeded("no such account")
	})
}

func TestCoolDownWithoutHintGrows(t *testing.T) {
	for reason, wants := range map[string][]time.Duration{
		ReasonRateLimited:    {2, 4, 8, 16, 32, 60, 60},
		ReasonConnectFailed:  {30, 60, 120, 240, 480, 600, 600},
		ReasonAuthRejected:   {30, 60, 120},
		ReasonQuotaExhausted: {3600, 3600},
		ReasonDeactivated:    {86400, 86400},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := registry(runtime("", enabled("a", 0)))
			for _, want := range wants {
				want *= time.Second
				for range 3 { // several turns see one incident
					r.CoolDown("a", time.Time{}, reason)
				}
				if got := time.Until(r.States()[0].Until); got != want {
					t.Fatalf("%s: cool-down of %s, want %s", reason, got, want)
				}
				<-time.After(want)
			}
			r.Succeeded("a")
			r.CoolDown("a", time.Time{}, reason)
			if got := time.Until(r.States()[0].Until); got != wants[0]*time.Second {
				t.Errorf("%s: after a success %s, want %s", reason, got, wants[0]*time.Second)
			}
		})
	}
}

func TestRejectionOfAReplacedCredentialIsDropped(t *testing.T) {
	rt := runtime("", enabled("a", 0))
	r := registry(rt)
	before := acquire(t, r, Want{})
	rt2 := runtime("", enabled("a", 0))
	rt2.Credentials.Accounts["a"] = bundle.Credential{APIKey: "sk-rotated"}
	r.Update(rt2)
	before.CoolDown(time.Now().Add(time.Minute), ReasonAuthRejected)
	if s := r.States()[0].State; s != Usable {
		t.Errorf("the new credential is blamed: %s", s)
	}
	after := acquire(t, r, Want{})
	after.CoolDown(time.Now().Add(time.Minute), ReasonAuthRejected)
	if s := r.States()[0].State; s != ReauthRequired {
		t.Errorf("rejected credential is %s", s)
	}
	before.Release()
	after.Release()
}
