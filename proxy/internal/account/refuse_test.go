package account

import (
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestRefuse(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	cooling := func(name, state string, d time.Duration) Candidate {
		return Candidate{Name: name, State: state, Until: now.Add(d)}
	}
	tableDefault := failure.New(failure.NoAccounts, "").RetryAfter
	ownerDefault := failure.New(failure.OwnerUnavailable, "").RetryAfter
	cases := []struct {
		name   string
		view   []Candidate
		want   Want
		code   string // empty = wait
		reason string
		after  time.Duration
		resets time.Duration // 0 = none
	}{
		{"a full account is waited for", []Candidate{usable("a", 1, 1)}, Want{}, "", "", 0, 0},
		{"a full owner is waited for", []Candidate{usable("a", 1, 1)}, Want{Only: "a"}, "", "", 0, 0},
		{"one full, one cooling", []Candidate{usable("a", 1, 1), cooling("b", CoolingDown, time.Minute)}, Want{}, "", "", 0, 0},
		{"empty pool", nil, Want{Model: "m"}, failure.NoAccounts, causeNoneEnabled, tableDefault, 0},
		{"all disabled", []Candidate{inState("a", Disabled), inState("b", Unknown)}, Want{}, failure.NoAccounts, causeNoneEnabled, tableDefault, 0},
		{"draining takes nothing new", []Candidate{inState("a", Draining)}, Want{}, failure.NoAccounts, causeNoneEnabled, tableDefault, 0},
		{"unknown model", []Candidate{usable("a", 0, 0, "m1")}, Want{Model: "m2"}, failure.ModelNotFound, "", 0, 0},
		{"model of a disabled account", []Candidate{{Name: "a", State: Disabled, Models: []string{"m2"}}, usable("b", 0, 0, "m1")},
			Want{Model: "m2"}, failure.NoAccounts, causeNoneEnabled, tableDefault, 0},
		{"earliest end of all cool-downs", []Candidate{cooling("a", CoolingDown, time.Minute), cooling("b", CoolingDown, 20*time.Second)},
			Want{}, failure.NoAccounts, causeCoolingDown, 20 * time.Second, 0},
		{"quota everywhere", []Candidate{cooling("a", QuotaExhausted, 5*time.Hour), cooling("b", QuotaExhausted, time.Hour), inState("c", Disabled)},
			Want{}, failure.UsageLimitReached, causeQuota, time.Hour, time.Hour},
		{"quota, and a login to renew", []Candidate{cooling("a", QuotaExhausted, time.Hour), cooling("b", ReauthRequired, time.Minute)},
			Want{}, failure.UsageLimitReached, causeQuota, time.Hour, time.Hour},
		{"quota on one, a short pause on the other", []Candidate{cooling("a", QuotaExhausted, time.Hour), cooling("b", CoolingDown, 3*time.Second)},
			Want{}, failure.NoAccounts, causeCoolingDown, 3 * time.Second, 0},
		{"quota on the only account with the model", []Candidate{{Name: "a", State: QuotaExhausted, Until: now.Add(time.Hour), Models: []string{"m"}}, usable("b", 0, 0, "n")},
			Want{Model: "m"}, failure.UsageLimitReached, causeQuota, time.Hour, time.Hour},
		{"all rejected", []Candidate{cooling("a", ReauthRequired, time.Minute)}, Want{}, failure.NoAccounts, causeReauthRequired, time.Minute, 0},
		{"all tried", []Candidate{usable("a", 0, 0)}, Want{Exclude: []string{"a"}}, failure.NoAccounts, causeTried, tableDefault, 0},
		{"owner removed", []Candidate{usable("a", 0, 0)}, Want{Only: "b"}, failure.OwnerUnavailable, causeOwnerGone, ownerDefault, 0},
		{"owner disabled", []Candidate{inState("b", Disabled)}, Want{Only: "b"}, failure.OwnerUnavailable, causeNoneEnabled, ownerDefault, 0},
		{"owner cooling", []Candidate{usable("a", 0, 0), cooling("b", CoolingDown, 90*time.Second)}, Want{Only: "b"},
			failure.OwnerUnavailable, causeCoolingDown, 90 * time.Second, 0},
		{"owner out of quota", []Candidate{usable("a", 0, 0), cooling("b", QuotaExhausted, time.Hour)}, Want{Only: "b"},
			failure.OwnerUnavailable, causeQuota, time.Hour, time.Hour},
		{"owner rejected", []Candidate{cooling("b", ReauthRequired, time.Minute)}, Want{Only: "b"},
			failure.OwnerUnavailable, causeReauthRequired, time.Minute, 0},
		{"owner without the model", []Candidate{usable("a", 0, 0, "m"), usable("b", 0, 0, "n")}, Want{Only: "b", Model: "m"},
			failure.OwnerUnavailable, causeOwnerModel, ownerDefault, 0},
		{"owner tried", []Candidate{usable("b", 0, 0)}, Want{Only: "b", Exclude: []string{"b"}}, failure.OwnerUnavailable, causeTried, ownerDefault, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := refuse(c.view, Strategy{Type: bundle.StrategyLeastLoaded}, c.want, now, 0)
			if f == nil {
				if c.code != "" {
					t.Fatalf("waits, want %s", c.code)
				}
				return
			}
			resets := time.Duration(0)
			if !f.ResetsAt.IsZero() {
				resets = f.ResetsAt.Sub(now)
			}
			if f.Code != c.code || f.Reason != c.reason || f.RetryAfter != c.after || resets != c.resets {
				t.Errorf("got %s/%s after %s resets %s, want %s/%s after %s resets %s",
					f.Code, f.Reason, f.RetryAfter, resets, c.code, c.reason, c.after, c.resets)
			}
		})
	}
}

func TestRefuseNamesTheModel(t *testing.T) {
	f := refuse([]Candidate{usable("a", 0, 0, "m")}, Strategy{}, Want{Model: "gpt-" + strings.Repeat("x", 4000)}, time.Unix(0, 0), 0)
	if !strings.Contains(f.Message, `"gpt-xxx`) || len(f.Message) > 200 || f.Param != "model" {
		t.Errorf("message %q, param %q", f.Message, f.Param)
	}
}

func TestRefuseSingleAccount(t *testing.T) {
	s := Strategy{Type: bundle.StrategySingleAccount, SingleAccount: "b"}
	f := refuse([]Candidate{usable("a", 0, 0), inState("b", Disabled)}, s, Want{}, time.Unix(0, 0), 0)
	if f == nil || f.Code != failure.NoAccounts {
		t.Errorf("the other account's room was offered: %v", f)
	}
}
