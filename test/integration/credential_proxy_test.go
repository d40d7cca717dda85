package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/test/upstream"
)

// bridge puts a policy on the pool, with one proxy that acknowledges nothing.
func (l *logins) bridge() {
	l.t.Helper()
	l.must(l.client.Create(l.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: sampleClients}, Data: map[string][]byte{"demo": []byte("cwk-demo")},
	}))
	policy := &v1alpha1.BridgePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: samplePolicy}}
	policy.Spec.AccountPoolRef.Name = loginPool
	policy.Spec.Clients.KeysSecretRef = &v1alpha1.LocalObjectReference{Name: sampleClients}
	l.must(l.client.Create(l.t.Context(), policy))
}

// serves waits until the proxies' document has that generation of a token; 0 = the
// account is not in it.
func (l *logins) serves(account string, generation int64) bundle.Credential {
	l.t.Helper()
	var got bundle.Credential
	l.passing(fmt.Sprintf("generation %d of %s at the proxies", generation, account), func(ctx context.Context) error {
		document, err := l.credentials(ctx)
		if err != nil {
			return err
		}
		if got = document.Accounts[account]; got.Generation != generation {
			return fmt.Errorf("generation %d", got.Generation)
		}
		return nil
	})
	return got
}

// rejected plays a proxy that saw the upstream answer 401 to a token.
func (l *logins) rejected(account string, generation int64) {
	l.t.Helper()
	l.rejectedBy(0, generation, account)
}

// rejectedBy plays one of several proxies, with the tokens of several accounts.
func (l *logins) rejectedBy(proxy int, generation int64, accounts ...string) {
	l.t.Helper()
	l.eventually("the report", func(ctx context.Context) error {
		var r v1alpha1.BridgeReplica
		if err := l.client.Get(ctx, l.key(fmt.Sprintf("%s-blue-%d", samplePolicy, proxy)), &r); err != nil {
			return err
		}
		at := metav1.NewTime(l.clock.Now())
		r.Status.ReportSequence++
		r.Status.ReportedAt = &at
		r.Status.Accounts = nil
		for _, name := range accounts {
			r.Status.Accounts = append(r.Status.Accounts, v1alpha1.ReplicaAccount{
				Name: name, State: v1alpha1.AccountConditionReauthRequired, Reason: "AuthRejected", CredentialGeneration: generation,
			})
		}
		return l.client.Status().Update(ctx, &r)
	})
}

// TestB56_ThreeProxiesRejectFiftyTokens: each of them says so of every account, and
// two operators hear it; one is stopped in the midst and another takes its place.
// There is one exchange for each rotation, and all proxies get the token it gave.
func TestB56_ThreeProxiesRejectFiftyTokens(t *testing.T) {
	l := newLogins(t, manyAccounts)
	l.bridge()
	first := l.start(func(o *operator) {
		o.answered = func(n int) {
			if n == manyAccounts/2 {
				o.kill() // tokens are in its hands
			}
		}
	})
	l.start()
	l.reach(2)
	l.runPods(samplePolicy, 3)
	names := make([]string, manyAccounts)
	for i := range names {
		names[i] = fmt.Sprintf("a%02d", i)
	}
	for proxy := range 3 {
		l.rejectedBy(proxy, 2, names...)
	}
	l.start()
	l.reach(3)
	l.exchanged(2)
	for _, name := range names {
		l.serves(name, 3)
	}
	if first.asks.Load() == 0 {
		t.Error("the first operator never raced")
	}
}

// TestT60_ARejectedTokenIsRefreshedOutOfTurn: once for its generation; a login that
// cannot be refreshed is taken from the proxies, and the other account stays.
func TestT60_ARejectedTokenIsRefreshedOutOfTurn(t *testing.T) {
	l := newLogins(t, 2)
	l.bridge()
	l.start()
	l.reach(2)
	l.serves("a00", 2)
	l.runPods(samplePolicy, 1)

	l.rejected("a00", 2)
	l.reach(3, "a00")
	got := l.serves("a00", 3)
	if got.ChatGPTAccountID != "acct-a00" {
		t.Errorf("the account is %q", got.ChatGPTAccountID)
	}
	t.Run("B59: a report about an older token", func(t *testing.T) {
		l.rejected("a00", 1)
		l.looks(3, "credential")
		l.reach(3, "a00")
	})
	t.Run("the new one is rejected, too", func(t *testing.T) {
		l.rejected("a00", 3)
		l.looks(3, "credential")
		l.reach(3, "a00")
		l.age(time.Minute)
		l.reach(4, "a00")
	})
	t.Run("the login is lost", func(t *testing.T) {
		l.spend("a00")
		l.rejected("a00", 4)
		l.age(5 * time.Minute)
		l.serves("a00", 0)
		l.serves("a01", 2)
		l.poolSays(v1alpha1.ReasonReauthRequired, "a00")
		l.passing("the state of the account", func(ctx context.Context) error {
			var pool v1alpha1.AccountPool
			if err := l.client.Get(ctx, l.key(loginPool), &pool); err != nil {
				return err
			}
			for _, a := range pool.Status.Accounts {
				if a.Name == "a00" && a.State == v1alpha1.AccountConditionReauthRequired {
					return nil
				}
			}
			return errors.New("it does not need a new login")
		})
	})
	t.Run("a new login", func(t *testing.T) {
		l.relogin("a00", "rt-canary-anew")
		l.serves("a00", 6)
		l.poolSays(v1alpha1.ReasonRefreshing, "")
	})
}

// spend uses the refresh token of an account twice, as somebody else would who has
// the same login; the issuer revokes it.
func (l *logins) spend(account string) {
	l.t.Helper()
	token := l.issuer.RefreshToken(account)
	for range 2 {
		l.present(token)
	}
	if !l.issuer.Revoked(account) {
		l.t.Fatal("the login is not revoked")
	}
}

func TestALoginThatCannotBeRefreshedServesWhileItsTokenDoes(t *testing.T) {
	l := newLogins(t, 1)
	l.bridge()
	l.start()
	l.reach(2)
	l.spend("a00")
	l.age(8 * 24 * time.Hour) // two days before the token ends
	l.passing("the verdict", func(ctx context.Context) error {
		r, _, err := l.record(ctx, "a00")
		if err == nil && r.Lost != effective.CauseReused {
			err = fmt.Errorf("lost %q, trouble %v", r.Lost, r.Trouble)
		}
		return err
	})
	l.poolSays(v1alpha1.ReasonReauthRequired, "a00")
	l.serves("a00", 2)
	l.age(2 * 24 * time.Hour)
	l.serves("a00", 0)
}

// TestAnAuthFileServesAtOnce: its access token reaches the proxies without any
// exchange, and is refreshed in time.
func TestAnAuthFileServesAtOnce(t *testing.T) {
	l := newLogins(t, 1, oauthFault("a00", upstream.AtBeforeHeaders, upstream.ActStatus, 1))
	access := jwtOf(l.clock.Now(), l.clock.Now().Add(24*time.Hour))
	l.edit(&corev1.Secret{}, loginSeeds, func(o client.Object) {
		o.(*corev1.Secret).Data["a00"] = []byte(`{"tokens": {"access_token": "` + access + `", "refresh_token": "` + firstToken("a00") +
			`", "account_id": "acct-seed"}, "last_refresh": "2026-01-01T00:00:00Z"}`)
	})
	l.bridge()
	l.start()
	if got := l.serves("a00", 1); got.AccessToken != access || got.ChatGPTAccountID != "acct-seed" {
		t.Error("it is another token")
	}
	if n := len(l.issuer.Ledger().Requests()); n != 0 {
		t.Errorf("%d exchanges", n)
	}
	l.age(23 * time.Hour)
	l.passing("the refresh", func(ctx context.Context) error { return l.reached(ctx, "a00", 2) })
	l.exchanged(1)
}

// TestNoLoginLeavesItsSecret: no token is in a log, an event, a status or any object
// but Secrets, and no refresh token in anything that a pod mounts.
func TestNoLoginLeavesItsSecret(t *testing.T) {
	l := newLogins(t, 5,
		oauthFault("a01", upstream.AtAfterHeaders, upstream.ActReset, 1), oauthFault("a02", upstream.AtBeforeHeaders, upstream.ActHTML, 0),
		oauthFault("a03", upstream.AtBeforeHeaders, upstream.ActStatus, 0))
	l.edit(&corev1.Secret{}, loginSeeds, func(o client.Object) {
		o.(*corev1.Secret).Data["a04"] = []byte(`{"tokens": {"refresh_token": "rt-canary broken"}}`)
	})
	l.bridge()
	l.start()
	l.serves("a00", 2)
	l.runPods(samplePolicy, 1)
	l.rejected("a00", 2)
	l.serves("a00", 3)
	l.poolSays(v1alpha1.ReasonReauthRequired, "a01")

	var tokens []string
	for _, account := range l.accounts {
		tokens = append(tokens, firstToken(account))
		if r, _, err := l.record(t.Context(), account); err == nil {
			tokens = append(tokens, r.RefreshToken, r.AccessToken)
		}
	}
	tokens = append(tokens, "rt-canary")
	texts := map[string]string{"log": l.logs.String(), "log of the process": processLog.String()}
	l.each(func(kind string, o client.Object) {
		if kind == "Secret" {
			return
		}
		raw, err := json.Marshal(o)
		l.must(err)
		texts[kind+"/"+o.GetName()] = string(raw)
	})
	for i, e := range l.events() {
		texts[fmt.Sprintf("Event/%d", i)] = fmt.Sprintf("%+v", e)
	}
	for where, text := range texts {
		for _, token := range tokens {
			if token != "" && strings.Contains(text, token) {
				t.Errorf("%s holds token %.12s", where, token)
			}
		}
	}
	l.mountsNoRefreshToken()
}

// mountsNoRefreshToken looks into all that the proxies' pods mount.
func (l *logins) mountsNoRefreshToken() {
	l.t.Helper()
	var d appsv1.Deployment
	l.get(&d, samplePolicy+"-blue")
	mounted := map[string]string{}
	secret := func(name string) {
		var s corev1.Secret
		l.get(&s, name)
		for key, value := range s.Data {
			mounted[name+"/"+key] = string(value)
		}
	}
	config := func(name string) {
		var m corev1.ConfigMap
		l.get(&m, name)
		for key, value := range m.Data {
			mounted[name+"/"+key] = value
		}
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		switch {
		case v.Secret != nil:
			secret(v.Secret.SecretName)
		case v.ConfigMap != nil:
			config(v.ConfigMap.Name)
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				if source.Secret != nil {
					secret(source.Secret.Name)
				}
				if source.ConfigMap != nil {
					config(source.ConfigMap.Name)
				}
			}
		}
	}
	if len(mounted) < 2 {
		l.t.Errorf("the pods mount %d files, which is not what is tested", len(mounted))
	}
	access := false
	for where, text := range mounted {
		for _, account := range l.accounts {
			r, _, err := l.record(l.t.Context(), account)
			if err != nil {
				continue
			}
			access = access || r.AccessToken != "" && strings.Contains(text, r.AccessToken)
			for _, token := range []string{r.RefreshToken, firstToken(account), l.issuer.RefreshToken(account)} {
				if token != "" && strings.Contains(text, token) {
					l.t.Errorf("%s, which pods mount, holds a refresh token of %s", where, account)
				}
			}
		}
	}
	if !access {
		l.t.Error("no access token is mounted, either")
	}
}
