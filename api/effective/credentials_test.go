package effective_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// canary is part of every secret of these tests and of no message.
const canary = "CANARY"

// jwt makes an unsigned token with some claims.
func jwt(claims string) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256"}`) + "." + part(claims) + "." + canary
}

var accountJWT = jwt(`{"https://api.openai.com/auth":{"chatgpt_account_id":"acc-1"}}`)

func secrets(data map[string]map[string]string) effective.Lookup {
	return func(name string) (map[string][]byte, bool) {
		keys, ok := data[name]
		out := map[string][]byte{}
		for k, v := range keys {
			out[k] = []byte(v)
		}
		return out, ok
	}
}

func oauthPool() *v1alpha1.AccountPool {
	p := minimalPool()
	p.Spec.Accounts[0].APIKey = nil
	p.Spec.Accounts[0].OAuth = &v1alpha1.OAuth{SeedSecretRef: v1alpha1.SecretKeyReference{Name: "keys", Key: "a"}}
	return p
}

func TestAccountCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		oauth  bool
		value  string
		want   bundle.Credential
		reason string
		says   string
	}{
		"API key":                      {value: "sk-" + canary, want: bundle.Credential{APIKey: "sk-" + canary}},
		"API key with a line break":    {value: "sk-" + canary + "\n", want: bundle.Credential{APIKey: "sk-" + canary}},
		"API key with a CRLF":          {value: "sk-" + canary + "\r\n", want: bundle.Credential{APIKey: "sk-" + canary}},
		"API key with two line breaks": {value: "sk-" + canary + "\n\n", reason: v1alpha1.ReasonInvalidValue, says: "white space"},
		"API key with a header behind it": {
			value:  "sk\r\nX-Evil: " + canary,
			reason: v1alpha1.ReasonInvalidValue,
			says:   "white space, control",
		},
		"API key with a space":         {value: " " + canary, reason: v1alpha1.ReasonInvalidValue, says: "white space"},
		"API key with a NUL":           {value: canary + "\x00", reason: v1alpha1.ReasonInvalidValue, says: "control"},
		"API key that is not ASCII":    {value: canary + "ü", reason: v1alpha1.ReasonInvalidValue, says: "non-ASCII"},
		"API key that is empty":        {value: "", reason: v1alpha1.ReasonInvalidValue, says: "it is empty"},
		"API key that is only a break": {value: "\n", reason: v1alpha1.ReasonInvalidValue, says: "it is empty"},
		"API key that is too long": {
			value:  strings.Repeat(canary, 4000),
			reason: v1alpha1.ReasonInvalidValue,
			says:   "longer than 16384",
		},
		"access token": {
			oauth: true,
			value: accountJWT,
			want:  bundle.Credential{AccessToken: accountJWT, ChatGPTAccountID: "acc-1"},
		},
		"access token without account": {oauth: true, value: jwt(`{}`) + "\n", want: bundle.Credential{AccessToken: jwt(`{}`)}},
		"auth.json": {
			oauth: true,
			value: `{"OPENAI_API_KEY":null,"tokens":{"id_token":"x","access_token":"t` + canary +
				`","refresh_token":"r","account_id":"acc-2"},"last_refresh":"2026-01-01T00:00:00Z"}`,
			want: bundle.Credential{AccessToken: "t" + canary, ChatGPTAccountID: "acc-2"},
		},
		"auth.json with account in token": {
			oauth: true,
			value: `{"tokens":{"access_token":"` + accountJWT + `"}}`,
			want:  bundle.Credential{AccessToken: accountJWT, ChatGPTAccountID: "acc-1"},
		},
		"auth.json with account in ID": {
			oauth: true,
			value: `{"tokens":{"access_token":"t","id_token":"` + accountJWT + `"}}`,
			want:  bundle.Credential{AccessToken: "t", ChatGPTAccountID: "acc-1"},
		},
		"auth.json to be refreshed": {
			oauth:  true,
			value:  `{"tokens":{"refresh_token":"` + canary + `"}}`,
			reason: v1alpha1.ReasonLoginPending,
			says:   "about to exchange",
		},
		"refresh token": {
			oauth:  true,
			value:  "rt_" + canary,
			reason: v1alpha1.ReasonLoginPending,
			says:   "an auth.json with tokens.access_token",
		},
		"refresh token with dots": {
			oauth:  true,
			value:  "rt." + canary + ".x",
			reason: v1alpha1.ReasonLoginPending,
			says:   "about to exchange",
		},
		"auth.json with an API key": {
			oauth:  true,
			value:  `{"OPENAI_API_KEY":"` + canary + `"}`,
			reason: v1alpha1.ReasonInvalidValue,
			says:   "use apiKey instead",
		},
		"auth.json with nothing": {
			oauth:  true,
			value:  `{"tokens":{"account_id":"` + canary + `"}}`,
			reason: v1alpha1.ReasonInvalidValue,
			says:   "neither",
		},
		"auth.json that is cut": {
			oauth:  true,
			value:  `{"tokens":{"access_token":"` + canary,
			reason: v1alpha1.ReasonInvalidValue,
			says:   "not valid JSON",
		},
		"auth.json of another form": {
			oauth:  true,
			value:  `{"tokens":"` + canary + `"}`,
			reason: v1alpha1.ReasonInvalidValue,
			says:   "not valid JSON of that form",
		},
		"auth.json with a broken token": {
			oauth:  true,
			value:  `{"tokens":{"access_token":"` + canary + `\n"}}`,
			reason: v1alpha1.ReasonInvalidValue,
			says:   "tokens.access_token",
		},
		"auth.json with a broken account": {
			oauth:  true,
			value:  `{"tokens":{"access_token":"t","account_id":"` + canary + ` "}}`,
			reason: v1alpha1.ReasonInvalidValue,
			says:   "tokens.account_id",
		},
		"login that is empty": {oauth: true, value: " \n", reason: v1alpha1.ReasonInvalidValue, says: "it is empty"},
		"login with white space inside it": {
			oauth:  true,
			value:  "a " + canary,
			reason: v1alpha1.ReasonInvalidValue,
			says:   "white space",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := minimalPool()
			if tc.oauth {
				p = oauthPool()
			}
			got, problems := effective.Credentials(p, nil, secrets(map[string]map[string]string{"keys": {"a": tc.value}}))
			if tc.reason == "" {
				if len(problems) != 0 {
					t.Fatalf("unresolved: %v", problems)
				}
				if diff := cmp.Diff(tc.want, got.Accounts["a"]); diff != "" {
					t.Errorf("-want +got\n%s", diff)
				}
				return
			}
			if len(got.Accounts) != 0 {
				t.Error("a credential was made of it")
			}
			expectProblem(t, problems, effective.Unresolved{Account: "a", Reason: tc.reason, Message: tc.says})
		})
	}
}

// expectProblem wants one problem; the message has to contain that of want.
func expectProblem(t *testing.T, problems []effective.Unresolved, want effective.Unresolved) {
	t.Helper()
	if len(problems) != 1 {
		t.Fatalf("want one problem: %v", problems)
	}
	p := problems[0]
	if p.Account != want.Account || p.Client != want.Client || p.Reason != want.Reason || !strings.Contains(p.Message, want.Message) {
		t.Errorf("got  %+v\nwant %+v", p, want)
	}
	if strings.Contains(p.Message, canary) {
		t.Error("the message quotes the secret")
	}
}

func TestReferencesThatLeadNowhere(t *testing.T) {
	for name, tc := range map[string]struct {
		data map[string]map[string]string
		want effective.Unresolved
	}{
		"no Secret": {
			nil,
			effective.Unresolved{Account: "a", Reason: v1alpha1.ReasonSecretNotFound, Message: "Secret keys does not exist: create it with key a"},
		},
		"empty Secret": {
			map[string]map[string]string{"keys": {}},
			effective.Unresolved{Account: "a", Reason: v1alpha1.ReasonKeyNotFound, Message: "Secret keys has no key a: it is empty"},
		},
		"other keys": {
			map[string]map[string]string{"keys": {"c": canary, "b": canary}},
			effective.Unresolved{Account: "a", Reason: v1alpha1.ReasonKeyNotFound, Message: "it has b, c"},
		},
		"many keys": {
			map[string]map[string]string{"keys": {"b": "", "c": "", "d": "", "e": "", "f": "", "g": ""}},
			effective.Unresolved{Account: "a", Reason: v1alpha1.ReasonKeyNotFound, Message: "it has b, c, d, e, f and 1 more"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := effective.Credentials(minimalPool(), nil, secrets(tc.data))
			expectProblem(t, problems, tc.want)
		})
	}
}

func TestOneMissingAccountLeavesTheOthers(t *testing.T) {
	p := minimalPool()
	second := *p.Spec.Accounts[0].DeepCopy()
	second.Name, second.APIKey.SecretRef.Key = "b", "b"
	disabled := *second.DeepCopy()
	disabled.Name, disabled.State = "c", v1alpha1.AccountDisabled
	p.Spec.Accounts = append(p.Spec.Accounts, second, disabled)
	got, problems := effective.Credentials(p, nil, secrets(map[string]map[string]string{"keys": {"a": "k"}}))
	expectProblem(t, problems, effective.Unresolved{Account: "b", Reason: v1alpha1.ReasonKeyNotFound})
	if diff := cmp.Diff(map[string]bundle.Credential{"a": {APIKey: "k"}}, got.Accounts); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got.Hash == "" || got.ContractVersion != bundle.ContractVersion {
		t.Error("not sealed")
	}
}

func TestDisabledAccountGetsNoCredential(t *testing.T) {
	p := minimalPool()
	p.Spec.Accounts[0].State = v1alpha1.AccountDisabled
	got, problems := effective.Credentials(p, nil, secrets(map[string]map[string]string{"keys": {"a": "k"}}))
	if len(problems) != 0 || len(got.Accounts) != 0 {
		t.Errorf("got %d credentials, %v", len(got.Accounts), problems)
	}
}

func TestClientKeys(t *testing.T) {
	key := "cwk-" + canary
	digest := bundle.KeyDigest(key)
	for name, tc := range map[string]struct {
		keys map[string]string
		want map[string]string
		bad  effective.Unresolved
	}{
		"key":                   {keys: map[string]string{"x": key}, want: map[string]string{"x": digest}},
		"key with a line break": {keys: map[string]string{"x": key + "\n"}, want: map[string]string{"x": digest}},
		"digest":                {keys: map[string]string{"x": digest}, want: map[string]string{"x": digest}},
		"digest in upper case":  {keys: map[string]string{"x": strings.ToUpper(digest)}, want: map[string]string{"x": digest}},
		"no prefix": {
			keys: map[string]string{"x": canary},
			bad:  effective.Unresolved{Client: "x", Reason: v1alpha1.ReasonInvalidValue, Message: "start with cwk-"},
		},
		"API key": {
			keys: map[string]string{"x": "sk-" + canary},
			bad:  effective.Unresolved{Client: "x", Reason: v1alpha1.ReasonInvalidValue, Message: "start with cwk-"},
		},
		"prefix only": {
			keys: map[string]string{"x": "cwk-"},
			bad:  effective.Unresolved{Client: "x", Reason: v1alpha1.ReasonInvalidValue, Message: "1 to 252"},
		},
		"white space": {
			keys: map[string]string{"x": key + " "},
			bad:  effective.Unresolved{Client: "x", Reason: v1alpha1.ReasonInvalidValue, Message: "visible ASCII"},
		},
		"too long": {
			keys: map[string]string{"x": key + strings.Repeat("x", 256)},
			bad:  effective.Unresolved{Client: "x", Reason: v1alpha1.ReasonInvalidValue, Message: "1 to 252"},
		},
		"short digest": {
			keys: map[string]string{"x": digest[:62]},
			bad:  effective.Unresolved{Client: "x", Reason: v1alpha1.ReasonInvalidValue, Message: "64 hex digits"},
		},
		"the same key twice": {
			keys: map[string]string{"x": key, "y": key},
			want: map[string]string{"x": digest},
			bad:  effective.Unresolved{Client: "y", Reason: v1alpha1.ReasonInvalidValue, Message: "same client key as x"},
		},
		"a key and its digest": {
			keys: map[string]string{"y": key, "x": digest},
			want: map[string]string{"x": digest},
			bad:  effective.Unresolved{Client: "y", Reason: v1alpha1.ReasonInvalidValue, Message: "same client key as x"},
		},
		"no keys": {
			keys: map[string]string{},
			bad:  effective.Unresolved{Reason: v1alpha1.ReasonKeyNotFound, Message: "add one key per client"},
		},
		"no Secret": {
			bad: effective.Unresolved{Reason: v1alpha1.ReasonSecretNotFound, Message: "Secret k of clients.keysSecretRef does not exist"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string]map[string]string{"keys": {"a": "sk"}}
			if tc.keys != nil {
				data["k"] = tc.keys
			}
			got, problems := effective.Credentials(minimalPool(), bridge(t, ""), secrets(data))
			if len(got.Clients)+len(tc.want) > 0 && !cmp.Equal(tc.want, got.Clients) {
				t.Errorf("clients: want %d, got %d, or other digests", len(tc.want), len(got.Clients))
			}
			if tc.bad.Reason == "" {
				if len(problems) != 0 {
					t.Errorf("unresolved: %v", problems)
				}
				return
			}
			expectProblem(t, problems, tc.bad)
		})
	}
}

func TestOpenClientsNeedNoSecret(t *testing.T) {
	b := bridge(t, "")
	b.Spec.Clients = v1alpha1.Clients{Mode: v1alpha1.ClientsOpen}
	_, problems := effective.Credentials(minimalPool(), b, secrets(map[string]map[string]string{"keys": {"a": "k"}}))
	if len(problems) != 0 {
		t.Errorf("unresolved: %v", problems)
	}
}

func TestStorePassword(t *testing.T) {
	const redis = "store: {type: Redis, redis: {addresses: ['a:1'], authSecretRef: {name: redis, key: password}}}"
	without := map[string]map[string]string{"keys": {"a": "sk"}, "k": {"x": "cwk-x"}}
	with := func(value string) map[string]map[string]string {
		return map[string]map[string]string{"keys": without["keys"], "k": without["k"], "redis": {"password": value}}
	}
	plain, _ := effective.Credentials(minimalPool(), bridge(t, ""), secrets(with("a b "+canary)))
	for name, tc := range map[string]struct {
		spec string
		data map[string]map[string]string
		want string
		bad  effective.Unresolved
	}{
		"password":              {redis, with("a b " + canary), "a b " + canary, effective.Unresolved{}},
		"with a line break":     {redis, with(canary + "\r\n"), canary, effective.Unresolved{}},
		"not ASCII":             {redis, with(canary + "ü"), canary + "ü", effective.Unresolved{}},
		"no reference":          {"store: {type: Redis, redis: {addresses: ['a:1']}}", with(canary), "", effective.Unresolved{}},
		"Memory":                {"store: {type: Memory}", with(canary), "", effective.Unresolved{}},
		"no Secret":             {redis, without, "", effective.Unresolved{Reason: v1alpha1.ReasonSecretNotFound, Message: "Secret redis does not exist: create it with key password"}},
		"no key":                {strings.Replace(redis, "key: password", "key: pass", 1), with(canary), "", effective.Unresolved{Reason: v1alpha1.ReasonKeyNotFound, Message: "Secret redis has no key pass: it has password"}},
		"empty":                 {redis, with("\n"), "", effective.Unresolved{Reason: v1alpha1.ReasonInvalidValue, Message: "it is empty"}},
		"two lines":             {redis, with(canary + "\n" + canary), "", effective.Unresolved{Reason: v1alpha1.ReasonInvalidValue, Message: "control characters"}},
		"not text":              {redis, with(canary + "\xff"), "", effective.Unresolved{Reason: v1alpha1.ReasonInvalidValue, Message: "not text"}},
		"a file that is no key": {redis, with(strings.Repeat(canary, 4000)), "", effective.Unresolved{Reason: v1alpha1.ReasonInvalidValue, Message: "longer than 16384"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := effective.Credentials(minimalPool(), bridge(t, tc.spec), secrets(tc.data))
			if got.StorePassword != tc.want {
				t.Errorf("a password of %d bytes, want %d", len(got.StorePassword), len(tc.want))
			}
			if (got.Hash != plain.Hash) != (tc.want != "") {
				t.Error("the hash does not follow the password")
			}
			if tc.bad.Reason == "" {
				if len(problems) != 0 {
					t.Errorf("unresolved: %v", problems)
				}
				return
			}
			tc.bad.Store = true
			expectProblem(t, problems, tc.bad)
			if !strings.HasPrefix(problems[0].Message, "spec.store.redis.authSecretRef: ") {
				t.Errorf("%q names no field", problems[0].Message)
			}
		})
	}
}

// FuzzCredentials: whatever a Secret holds, what comes out can stand in a header,
// and no message quotes what went in.
func FuzzCredentials(f *testing.F) {
	for _, seed := range []string{
		"sk-" + canary, "cwk-" + canary + "\n", accountJWT, "a.b.c", "e30.e30.x", `{"tokens":{"access_token":"x","account_id":"y"}}`,
		`{"tokens":null}`, `{"OPENAI_API_KEY":"x"}`, "{", "", "\r\n", strings.Repeat("ab", 32), "cwk-\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		lookup := func(string) (map[string][]byte, bool) {
			return map[string][]byte{"a": value, "b": append([]byte("cwk-"), value...)}, true
		}
		for _, p := range []*v1alpha1.AccountPool{minimalPool(), oauthPool()} {
			b := &v1alpha1.BridgePolicy{}
			b.Spec.Clients.KeysSecretRef = &v1alpha1.LocalObjectReference{Name: "k"}
			got, problems := effective.Credentials(p, b, lookup)
			for _, c := range got.Accounts {
				if (c.APIKey == "") == (c.AccessToken == "") {
					t.Error("want exactly one of API key and access token")
				}
				for _, s := range []string{c.Bearer(), c.ChatGPTAccountID} {
					if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
						t.Errorf("%q cannot stand in a header", s)
					}
				}
			}
			for _, digest := range got.Clients {
				if len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
					t.Errorf("%q is no digest", digest)
				}
			}
			for _, problem := range problems {
				if len(value) > 40 && strings.Contains(problem.Message, string(value)) {
					t.Error("a message quotes the secret")
				}
			}
		}
	})
}
