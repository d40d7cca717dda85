package login

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

const canary = "CANARY"

func TestARecordSurvivesItsSecret(t *testing.T) {
	r := fresh(trouble(Unknown, 2), func(r *Record) {
		r.Intent = &Intent{Generation: 2, Nonce: "n", Reason: ReasonAge, StartedAt: now}
		r.Spent, r.Doubt, r.AccountID = []string{"x"}, true, "acc"
	})
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, ok, err := Decode(data)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	r.Version = recordVersion
	if diff := cmp.Diff(*r, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		ok   bool
		err  error
	}{
		"none":           {"", false, nil},
		"no JSON":        {"{" + canary, false, ErrUnreadable},
		"later form":     {`{"version":2,"generation":1}`, false, ErrUnreadable},
		"no generation":  {`{"version":1}`, false, ErrUnreadable},
		"a field anew":   {`{"version":1,"generation":3,"later":true}`, true, nil},
		"of other types": {`{"version":1,"generation":"` + canary + `"}`, false, ErrUnreadable},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			if tc.text != "" {
				data[recordKey] = []byte(tc.text)
			}
			_, ok, err := Decode(data)
			if ok != tc.ok || !errors.Is(err, tc.err) || err != nil && strings.Contains(err.Error(), canary) {
				t.Errorf("got %v, %v", ok, err)
			}
		})
	}
}

// TestOthersSeeNoRefreshToken: what is left of a record for everybody else.
func TestOthersSeeNoRefreshToken(t *testing.T) {
	r := fresh(func(r *Record) { r.RefreshToken = "rt-" + canary })
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data[effective.LoginKey]), canary) {
		t.Error("it holds the refresh token")
	}
	secret := func(name string) (map[string][]byte, bool) { return data, name == "team-login.a" }
	held, ok := effective.HeldLogin("team", "a", secret)
	if !ok || held.Credential.AccessToken != "at-1" || held.Credential.Generation != 2 || held.State != effective.LoginRefreshing {
		t.Errorf("got %v %+v", held.State, held.Credential.Generation)
	}
}

func TestWhatIsPrintedHasNoToken(t *testing.T) {
	s := seed("rt-"+canary, "at-"+canary)
	r := Record{}.Adopt(*s, now)
	g := Grant{AccessToken: canary, RefreshToken: canary}
	var logged strings.Builder
	slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "record", r, "seed", *s, "grant", g, "login", r.Show())
	for _, text := range []string{
		fmt.Sprintf("%v %+v %#v %s", r, r, r, r), fmt.Sprintf("%v %+v %#v", g, g, g), fmt.Sprintf("%v %+v %#v", *s, *s, *s),
		fmt.Sprintf("%v %+v %#v", r.Show(), r.Show(), r.Show()), logged.String(),
	} {
		if strings.Contains(text, canary) {
			t.Errorf("%q", text)
		}
	}
}

func TestShow(t *testing.T) {
	pending := Record{}.Adopt(*seed("rt", ""), now)
	for name, tc := range map[string]struct {
		record Record
		state  effective.LoginState
		reason string
		says   string
	}{
		"pending":                {pending, effective.LoginPending, v1alpha1.ReasonLoginPending, "first time"},
		"fresh":                  {*fresh(), effective.LoginRefreshing, v1alpha1.ReasonRefreshing, "in time"},
		"fixed":                  {Record{}.Adopt(*seed("", "at"), now), effective.LoginFixed, v1alpha1.ReasonRefreshing, ""},
		"unreachable":            {*fresh(trouble(Unreachable, 1)), effective.LoginUnreachable, v1alpha1.ReasonIssuerUnreachable, "oauth.tokenURL"},
		"refused":                {*fresh(trouble(Refused, 1)), effective.LoginRefused, v1alpha1.ReasonIssuerRefused, "oauth.tokenURL"},
		"B57":                    {*fresh(trouble(Unknown, 1)), effective.LoginUncertain, v1alpha1.ReasonRefreshUncertain, "got lost"},
		"denied, not judged yet": {*fresh(trouble(Denied, 1)), effective.LoginRefreshing, v1alpha1.ReasonRefreshing, ""},
		"lost":                   {fresh().Lose(effective.CauseReused), effective.LoginReauth, v1alpha1.ReasonReauthRequired, "causeway-operator login"},
		"dropped":                {fresh().Lose(effective.CauseDenied).Drop(), effective.LoginReauth, v1alpha1.ReasonReauthRequired, ""},
		"duplicate":              {fresh().Lose(effective.CauseDuplicate), effective.LoginReauth, v1alpha1.ReasonReauthRequired, "another account has the same login"},
	} {
		t.Run(name, func(t *testing.T) {
			l := tc.record.Show()
			if l.Credential.AccessToken == "" && l.Credential != (bundle.Credential{}) {
				t.Error("something is left of a credential that has no token")
			}
			a := &v1alpha1.Account{Name: "a", OAuth: &v1alpha1.OAuth{SeedSecretRef: v1alpha1.SecretKeyReference{Name: "seeds", Key: "a"}}}
			reason, message := l.Problem(a)
			if l.State != tc.state || reason != tc.reason || !strings.Contains(message, tc.says) || len(message) > 400 {
				t.Errorf("got %s, %s, %q", l.State, reason, message)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	base := fresh().Begin("mine", ReasonRejected, now.Add(time.Minute))
	g := Grant{AccessToken: "at-2", RefreshToken: "rt-2", Lifetime: time.Hour, AccountID: "acc"}
	at := now.Add(2 * time.Minute)
	t.Run("T46: the lease is not asked for", func(t *testing.T) {
		got, ok := base.Settle(*base.Intent, base.Seed, g, at)
		if !ok || got.Generation != 3 || got.RefreshToken != "rt-2" || got.Intent != nil || got.Settled != "mine" ||
			!got.ExpiresAt.Equal(at.Add(time.Hour)) || got.Rejections != 1 {
			t.Errorf("got %v %v", got, ok)
		}
	})
	t.Run("T46: a foreign intent does not keep it from being stored", func(t *testing.T) {
		if _, ok := base.Begin("foreign", ReasonUnsettled, at).Settle(*base.Intent, base.Seed, g, at); !ok {
			t.Error("the token was thrown away")
		}
	})
	t.Run("a verdict that came too early is taken back", func(t *testing.T) {
		if got, ok := base.Lose(effective.CauseDenied).Settle(*base.Intent, base.Seed, g, at); !ok || got.Lost != "" {
			t.Error("the token was thrown away")
		}
	})
	t.Run("B59: another won", func(t *testing.T) {
		won, _ := base.Settle(Intent{Generation: 2, Nonce: "other"}, base.Seed, g, at)
		if got, ok := won.Settle(*base.Intent, base.Seed, Grant{AccessToken: "late"}, at); ok || got.AccessToken != "at-2" {
			t.Error("the winner's token was overwritten")
		}
	})
	t.Run("another login began", func(t *testing.T) {
		if _, ok := base.Adopt(*seed("rt-new", ""), at).Settle(*base.Intent, base.Seed, g, at); ok {
			t.Error("tokens of the old login took the place of the new one")
		}
	})
	t.Run("another login began, after the Secret was deleted", func(t *testing.T) {
		first := Record{}.Adopt(*seed("rt-0", ""), now).Begin("mine", ReasonFirst, now)
		if _, ok := (Record{}).Adopt(*seed("rt-new", ""), at).Settle(*first.Intent, first.Seed, g, at); ok {
			t.Error("tokens of the old login took the place of the new one of the same generation")
		}
	})
	t.Run("an issuer that does not rotate", func(t *testing.T) {
		got, _ := base.Settle(*base.Intent, base.Seed, Grant{AccessToken: "at-2"}, at)
		if got.RefreshToken != "rt-1" || got.Generation != 3 {
			t.Error("the refresh token was lost")
		}
	})
}

func TestFail(t *testing.T) {
	base := fresh().Begin("mine", ReasonAge, now)
	if got, ok := base.Fail(*base.Intent, Denied, effective.CauseDenied, now); !ok || got.Trouble.Cause != effective.CauseDenied || got.Intent != nil {
		t.Errorf("got %+v", got.Trouble)
	}
	t.Run("B56: a loser adopts what the winner stored", func(t *testing.T) {
		won, _ := base.Settle(Intent{Generation: 2, Nonce: "other"}, base.Seed, Grant{AccessToken: "at-2", RefreshToken: "rt-2"}, now)
		if _, ok := won.Fail(*base.Intent, Denied, effective.CauseReused, now); ok {
			t.Error("the winner's login was blamed")
		}
	})
	t.Run("somebody else announced meanwhile", func(t *testing.T) {
		if _, ok := base.Begin("foreign", ReasonUnsettled, now).Fail(*base.Intent, Unreachable, "", now); ok {
			t.Error("the foreign announcement was taken back")
		}
	})
	t.Run("B57: denied after a reply that got lost", func(t *testing.T) {
		unknown, _ := base.Fail(*base.Intent, Unknown, "", now)
		again := unknown.Begin("again", ReasonAge, now)
		got, ok := again.Fail(*again.Intent, Denied, effective.CauseReused, now)
		if !ok || got.Trouble.Cause != effective.CauseReplyLost || got.Trouble.Failures != 2 {
			t.Errorf("got %+v", got.Trouble)
		}
	})
	t.Run("denied after an exchange that was never settled", func(t *testing.T) {
		again := base.Begin("again", ReasonUnsettled, now)
		if got, _ := again.Fail(*again.Intent, Denied, effective.CauseDenied, now); got.Trouble.Cause != effective.CauseReplyLost {
			t.Errorf("got %+v", got.Trouble)
		}
	})
}

func TestAdoptRemembersWhatWasUsed(t *testing.T) {
	r := Record{}
	for i := range 40 {
		r = r.Adopt(*seed(fmt.Sprintf("rt-%d", i), ""), now)
	}
	if r.Generation != 40 || len(r.Spent) != maxSpent || r.Spent[maxSpent-1] != seed("rt-38", "").Digest() {
		t.Errorf("generation %d, %d spent", r.Generation, len(r.Spent))
	}
	if got := (Record{}).Adopt(effective.Seed{RefreshToken: "x", IssuedAt: now.Add(time.Hour)}, now); !got.IssuedAt.Equal(now) {
		t.Error("a token from the future would never grow old")
	}
}
