package account

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

func TestCountersAndCoolDownsSurviveUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := registry(runtime("", enabled("a", 1), enabled("b", 0)))
		held := acquire(t, r, Want{Only: "a"})
		r.CoolDown("b", time.Now().Add(time.Minute), ReasonRateLimited)
		r.Update(runtime("", enabled("c", 0)))
		r.Update(runtime("", enabled("a", 1), enabled("b", 0)))
		states := r.States()
		if states[0].Inflight != 1 || states[1].State != CoolingDown {
			t.Fatalf("states after remove and add: %+v", states)
		}
		held.Release()
		r.Update(runtime("", enabled("c", 0)))
		if len(r.entries) != 2 { // c, and b that cools down
			t.Errorf("%d entries kept, want 2", len(r.entries))
		}
		<-time.After(time.Minute)
		r.Update(runtime("", enabled("c", 0)))
		if len(r.entries) != 1 {
			t.Errorf("%d entries kept, want 1", len(r.entries))
		}
	})
}

func TestLeaseKeepsItsAccountAsItWas(t *testing.T) {
	rt := runtime("", enabled("a", 1))
	r := registry(rt)
	l := acquire(t, r, Want{})
	r.Update(runtime(""))
	if got := l.Account().Credential.APIKey; got != "sk-a" {
		t.Errorf("credential changed under the turn to %q", got)
	}
	l.Release()
	if len(r.entries) != 0 {
		t.Error("the entry of a removed account outlives its last turn")
	}
}

func TestB60_AccountPrintsNoCredential(t *testing.T) {
	const canary = "sk-canary-4711"
	a := Account{Name: "a", Credential: bundle.Credential{APIKey: canary}}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("account", "account", a, "pointer", &a)
	texts := []string{log.String(), fmt.Sprint(a), fmt.Sprintf("%+v", a), fmt.Sprintf("%#v", a), fmt.Sprintf("%v", &a), fmt.Sprintf("%+v", []Account{a})}
	for _, text := range texts {
		if strings.Contains(text, canary) {
			t.Errorf("credential printed: %s", text)
		}
	}
}
