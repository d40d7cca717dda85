package devicelogin

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/test/upstream"
)

// cluster is a literal world of one pool and one Secret. What an API server adds
// to it (validation, versions) is not what these tests are about; the conflict is
// played by hand.
type cluster struct {
	client.Client // everything else is not asked for
	pool          *v1alpha1.AccountPool
	secret        *corev1.Secret
	conflicts     int
	failure       error
	created       bool
}

var errNone = apierrors.NewNotFound(schema.GroupResource{}, "x")

func (c *cluster) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *v1alpha1.AccountPool:
		if c.pool == nil || c.pool.Name != key.Name || key.Namespace != "ns" {
			return errNone
		}
		c.pool.DeepCopyInto(o)
	case *corev1.Secret:
		if c.secret == nil || c.secret.Name != key.Name {
			return errNone
		}
		c.secret.DeepCopyInto(o)
	}
	return nil
}

func (c *cluster) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if c.failure != nil {
		return c.failure
	}
	c.secret, _ = o.(*corev1.Secret)
	c.created = true
	return nil
}

func (c *cluster) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	if c.failure != nil {
		return c.failure
	}
	raw, err := p.Data(o)
	if err != nil {
		return err
	}
	var patch struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Data map[string][]byte `json:"data"`
	}
	if err := json.Unmarshal(raw, &patch); err != nil {
		return err
	}
	if c.conflicts > 0 {
		c.conflicts--
		return apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("changed"))
	}
	if patch.Metadata.ResourceVersion != c.secret.ResourceVersion {
		return errors.New("the write has no precondition")
	}
	for k, v := range patch.Data {
		c.secret.Data[k] = v
	}
	return nil
}

func secret(value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "seeds", ResourceVersion: "7"},
		Data:       map[string][]byte{"a": []byte(value), "other": []byte("stays")},
	}
}

func newCluster(s *upstream.Server) *cluster {
	pool := &v1alpha1.AccountPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "team"}}
	pool.Spec.Provider = v1alpha1.Provider{Type: v1alpha1.ProviderChatGPT, CABundle: string(s.CA)}
	pool.Spec.Accounts = []v1alpha1.Account{
		{Name: "a", OAuth: &v1alpha1.OAuth{SeedSecretRef: v1alpha1.SecretKeyReference{Name: "seeds", Key: "a"}, TokenURL: s.URL + "/oauth/token"}},
		{Name: "key", APIKey: &v1alpha1.APIKey{}},
	}
	return &cluster{pool: pool}
}

func issuer(t *testing.T, polls int, rules ...upstream.Rule) *upstream.Server {
	t.Helper()
	return upstream.StartTLS(t, upstream.Options{Script: upstream.Script{
		Accounts: []upstream.Account{{Name: "person"}}, OAuth: upstream.OAuth{DevicePolls: polls}, Rules: rules,
	}})
}

// login runs the command; it returns what was printed and the pauses between polls.
func login(t *testing.T, c *cluster, change ...func(*options)) (string, []time.Duration, error) {
	t.Helper()
	o := options{pool: "team", account: "a", namespace: "ns"}
	for _, f := range change {
		f(&o)
	}
	var out strings.Builder
	var pauses []time.Duration
	err := run(t.Context(), c, o, &out, func(ctx context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		return ctx.Err()
	})
	return out.String(), pauses, err
}

func TestLogin(t *testing.T) {
	for name, have := range map[string]*corev1.Secret{
		"no Secret yet": nil, "another login": secret(`{"tokens":{"refresh_token":"rt-old"}}`), "a bare token": secret("rt-old"), "an empty key": secret(""),
		"a Secret without the key": {ObjectMeta: metav1.ObjectMeta{Name: "seeds", ResourceVersion: "7"}, Data: map[string][]byte{"other": []byte("stays")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := issuer(t, 2)
			c := newCluster(s)
			c.secret, c.conflicts = have, 2
			out, pauses, err := login(t, c)
			if err != nil {
				t.Fatal(err)
			}
			if len(pauses) != 3 || pauses[0] != time.Second {
				t.Errorf("pauses %v, want three of the issuer's second", pauses)
			}
			for _, want := range []string{s.URL + "/codex/device", "Type in the code ", "kubectl -n ns describe accountpool team", "Secret seeds"} {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in\n%s", want, out)
				}
			}
			seed, problem := effective.SeedOf(&c.pool.Spec.Accounts[0], func(string) (map[string][]byte, bool) { return c.secret.Data, true })
			if problem != nil || seed.RefreshToken != s.RefreshToken("person") || seed.AccountID != "acct-person" || seed.AccessToken == "" {
				t.Fatalf("the seed is of no use: %v", problem)
			}
			if strings.Contains(out, seed.RefreshToken) || strings.Contains(out, seed.AccessToken) {
				t.Error("a token is printed")
			}
			if have != nil && string(c.secret.Data["other"]) != "stays" || c.created != (have == nil) {
				t.Error("more was written than the key")
			}
		})
	}
}

// TestWhatCannotWorkIsSaidBeforeAnybodyLogsIn: the issuer is not asked at all.
func TestWhatCannotWorkIsSaidBeforeAnybodyLogsIn(t *testing.T) {
	immutable := secret("rt")
	yes := true
	immutable.Immutable = &yes
	for name, tc := range map[string]struct {
		change func(*cluster, *options)
		says   string
	}{
		"no pool":           {func(_ *cluster, o *options) { o.pool = "teem" }, "AccountPool teem does not exist in namespace ns"},
		"another namespace": {func(_ *cluster, o *options) { o.namespace = "default" }, "does not exist in namespace default"},
		"no account":        {func(_ *cluster, o *options) { o.account = "b" }, "has no account b: it has a with oauth"},
		"an API key":        {func(_ *cluster, o *options) { o.account = "key" }, "has an apiKey and no login"},
		"no login in the Secret": {func(c *cluster, _ *options) { c.secret = secret("what is this?") },
			"key a of Secret seeds holds something that is no login"},
		"an immutable Secret": {func(c *cluster, _ *options) { c.secret = immutable }, "is immutable"},
		"nobody to ask": {func(c *cluster, _ *options) {
			c.pool.Spec.Provider.Type = v1alpha1.ProviderGeneric
		}, "needs oauth.tokenURL and oauth.clientID"},
	} {
		t.Run(name, func(t *testing.T) {
			s := issuer(t, 0)
			c := newCluster(s)
			_, _, err := login(t, c, func(o *options) { tc.change(c, o) })
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
			if n := len(s.Ledger().Requests()); n != 0 {
				t.Errorf("the issuer was asked %d times", n)
			}
		})
	}
}

func TestForce(t *testing.T) {
	s := issuer(t, 0)
	c := newCluster(s)
	c.secret = secret("what is this?")
	if _, _, err := login(t, c, func(o *options) { o.force = true }); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(c.secret.Data["a"]), s.RefreshToken("person")) {
		t.Error("nothing was written")
	}
}

func TestWhatGoesWrongAtTheIssuer(t *testing.T) {
	at := func(path, action string, status, repeat int) upstream.Rule {
		return upstream.Rule{Match: upstream.Match{Route: path}, Repeat: repeat, Fault: &upstream.Fault{Action: action, Status: status}}
	}
	const code, poll, token = "/api/accounts/deviceauth/usercode", "/api/accounts/deviceauth/token", "/oauth/token"
	for name, tc := range map[string]struct {
		rule upstream.Rule
		says string // empty = it works all the same
	}{
		"no device login":       {at(code, upstream.ActStatus, 404, 0), "has no device login"},
		"no code":               {at(code, upstream.ActHTML, 200, 0), "not the JSON"},
		"the issuer is broken":  {at(code, upstream.ActStatus, 500, 0), "status 500"},
		"a poll that is lost":   {at(poll, upstream.ActReset, 0, 1), ""},
		"a poll that is 502":    {at(poll, upstream.ActStatus, 502, 1), ""},
		"a poll that is denied": {at(poll, upstream.ActStatus, 410, 0), "status 410"},
		"no tokens":             {at(token, upstream.ActStatus, 400, 0), "fetching the tokens"},
		"tokens that got lost":  {at(token, upstream.ActReset, 0, 0), "fetching the tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			s := issuer(t, 0, tc.rule)
			c := newCluster(s)
			_, _, err := login(t, c)
			switch {
			case tc.says == "" && err != nil:
				t.Error(err)
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
}

func TestALoginThatCannotBeStoredIsSaidToBeLost(t *testing.T) {
	s := issuer(t, 0)
	c := newCluster(s)
	c.failure = apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "seeds", errors.New("no"))
	_, _, err := login(t, c)
	if err == nil || !strings.Contains(err.Error(), "run the command again") || strings.Contains(err.Error(), s.RefreshToken("person")) {
		t.Errorf("got %v", err)
	}
}

func TestFlags(t *testing.T) {
	for text, says := range map[string]string{
		"":                          "--pool is missing",
		"--pool p":                  "--account is missing",
		"--pool p --account a":      "",
		"--pool p --account a b":    `unexpected argument "b"`,
		"--poool p":                 "flag provided but not defined",
		"--pool p --account a -n x": "",
	} {
		_, err := parse(strings.Fields(text), &strings.Builder{})
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: got %v, want %q", text, err, says)
		}
	}
	if _, err := parse([]string{"-h"}, &strings.Builder{}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	if got := fmt.Sprintf("%v %+v %#v", tokens{"CANARY", "CANARY", "CANARY"}, tokens{id: "CANARY"}, tokens{refresh: "CANARY"}); strings.Contains(got, "CANARY") {
		t.Error("tokens are printed")
	}
}
