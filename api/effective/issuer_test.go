package effective_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestIssuerOf(t *testing.T) {
	for name, tc := range map[string]struct {
		provider           v1alpha1.ProviderType
		tokenURL, clientID string
		want               effective.Issuer
		ok                 bool
	}{
		"ChatGPT": {v1alpha1.ProviderChatGPT, "", "",
			effective.Issuer{TokenURL: "https://auth.openai.com/oauth/token", ClientID: "app_EMoamEEZ73f0CkXaXp7hrann"}, true},
		"OpenAIPlatform": {v1alpha1.ProviderOpenAIPlatform, "", "c",
			effective.Issuer{TokenURL: "https://auth.openai.com/oauth/token", ClientID: "c"}, true},
		"ChatGPT elsewhere": {v1alpha1.ProviderChatGPT, "https://a.b/t", "",
			effective.Issuer{TokenURL: "https://a.b/t", ClientID: "app_EMoamEEZ73f0CkXaXp7hrann"}, true},
		"Generic":                {v1alpha1.ProviderGeneric, "https://a.b/t", "c", effective.Issuer{TokenURL: "https://a.b/t", ClientID: "c", Form: true}, true},
		"Generic without client": {v1alpha1.ProviderGeneric, "https://a.b/t", "", effective.Issuer{TokenURL: "https://a.b/t", Form: true}, false},
		"Generic without URL":    {v1alpha1.ProviderGeneric, "", "c", effective.Issuer{ClientID: "c", Form: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := oauthPool()
			p.Spec.Provider.Type, p.Spec.Provider.CABundle = tc.provider, "pem"
			a := &p.Spec.Accounts[0]
			a.OAuth.TokenURL, a.OAuth.ClientID = tc.tokenURL, tc.clientID
			tc.want.CABundle = "pem"
			got, ok := effective.IssuerOf(p, a)
			if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
				t.Errorf("%v, -want +got\n%s", ok, diff)
			}
		})
	}
}

// TestHeldLoginComesBeforeTheSeed: what proxies are given once the operator has
// taken a login over.
func TestHeldLoginComesBeforeTheSeed(t *testing.T) {
	const name = "p-login.a"
	held := func(text string) map[string]map[string]string {
		return map[string]map[string]string{"keys": {"a": accountJWT}, name: {effective.LoginKey: text}}
	}
	seed := accountJWT
	for label, tc := range map[string]struct {
		text   string
		token  string
		reason string
	}{
		"a token":             {`{"state":"Refreshing","credential":{"accessToken":"at","chatgptAccountID":"x","generation":7}}`, "at", ""},
		"one of a lost login": {`{"state":"ReauthRequired","cause":"Denied","credential":{"accessToken":"at"}}`, "at", ""},
		"lost":                {`{"state":"ReauthRequired","cause":"Denied"}`, "", v1alpha1.ReasonReauthRequired},
		"pending":             {`{"state":"Pending"}`, "", v1alpha1.ReasonLoginPending},
		"unreachable":         {`{"state":"Unreachable"}`, "", v1alpha1.ReasonIssuerUnreachable},
		"uncertain":           {`{"state":"Uncertain"}`, "", v1alpha1.ReasonRefreshUncertain},
		"edited":              {`{"state":`, seed, ""},
		"edited, no header":   {`{"state":"Refreshing","credential":{"accessToken":"a t"}}`, seed, ""},
		"edited, an API key":  {`{"state":"Refreshing","credential":{"apiKey":"k"}}`, seed, ""},
		"of no state":         {`{}`, seed, ""},
	} {
		t.Run(label, func(t *testing.T) {
			p := oauthPool()
			p.Name = "p"
			got, problems := effective.Credentials(p, nil, secrets(held(tc.text)))
			if got.Accounts["a"].AccessToken != tc.token {
				t.Error("it is another token")
			}
			if tc.reason == "" && len(problems) > 0 || tc.reason != "" && (len(problems) != 1 || problems[0].Reason != tc.reason) {
				t.Errorf("got %v", problems)
			}
		})
	}
}

func TestSeedDigestFollowsTheRefreshToken(t *testing.T) {
	of := func(value string) string {
		p := oauthPool()
		s, problem := effective.SeedOf(&p.Spec.Accounts[0], secrets(map[string]map[string]string{"keys": {"a": value}}))
		if problem != nil {
			t.Fatal(problem)
		}
		return s.Digest()
	}
	bare := of("rt_1")
	for _, same := range []string{
		"rt_1\n", `{"tokens":{"refresh_token":"rt_1","access_token":"x"}}`,
		`{ "tokens": {"refresh_token": "rt_1", "access_token": "y"}, "last_refresh": "2026-01-01T00:00:00Z" }`,
	} {
		if of(same) != bare {
			t.Errorf("%s is taken for another login", same)
		}
	}
	if of("rt_2") == bare || of(accountJWT) == bare {
		t.Error("another login is taken for the same")
	}
}
