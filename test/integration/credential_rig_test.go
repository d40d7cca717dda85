package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/controllers"
	"github.com/causeway-dev/causeway/controllers/credential"
	"github.com/causeway-dev/causeway/test/upstream"
)

const (
	loginPool  = "chatgpt"
	loginSeeds = "seeds"
	// manyAccounts is what one pool may have and a little less.
	manyAccounts = 50
	// tokenLife is longer than the age at which tokens are refreshed.
	tokenLife = 10 * 24 * time.Hour
	// loginPatience is long because the exchanges of fifty logins take a busy
	// machine a while; no test waits for it when all is well.
	loginPatience = 3 * time.Minute
	// loginResync is longer than resync: fifty logins are looked at each time.
	loginResync = time.Second
)

// logins is a namespace with a pool of ChatGPT accounts and their issuer.
type logins struct {
	*cluster
	issuer   *upstream.Server
	accounts []string
}

// firstToken is the refresh token that the seed of an account holds.
func firstToken(account string) string { return "rt-canary-" + account }

// newLogins makes n accounts with a refresh token each, and no operator.
func newLogins(t *testing.T, n int, rules ...upstream.Rule) *logins {
	t.Helper()
	l := &logins{cluster: newCluster(t)}
	script := upstream.Script{Rules: rules, OAuth: upstream.OAuth{AccessTTL: upstream.Duration(tokenLife), OpenAIErrors: true}}
	seeds := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: loginSeeds}, Data: map[string][]byte{}}
	for i := range n {
		name := fmt.Sprintf("a%02d", i)
		l.accounts = append(l.accounts, name)
		script.Accounts = append(script.Accounts, upstream.Account{Name: name, RefreshToken: firstToken(name)})
		seeds.Data[name] = []byte(firstToken(name))
	}
	l.issuer = upstream.StartTLS(t, upstream.Options{Script: script})
	l.must(l.client.Create(t.Context(), seeds))
	l.must(l.client.Create(t.Context(), l.pool(loginPool)))
	return l
}

// pool is the manifest of a pool of all accounts.
func (l *logins) pool(name string) *v1alpha1.AccountPool {
	p := &v1alpha1.AccountPool{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}}
	p.Spec.Provider = v1alpha1.Provider{Type: v1alpha1.ProviderChatGPT, CABundle: string(l.issuer.CA)}
	for _, account := range l.accounts {
		p.Spec.Accounts = append(p.Spec.Accounts, v1alpha1.Account{Name: account, OAuth: &v1alpha1.OAuth{
			SeedSecretRef: v1alpha1.SecretKeyReference{Name: loginSeeds, Key: account}, TokenURL: l.issuer.URL + "/oauth/token",
		}})
	}
	return p
}

// record is what the Secret of a login holds, as far as tests look.
type record struct {
	Generation   int64     `json:"generation"`
	RefreshToken string    `json:"refreshToken"`
	AccessToken  string    `json:"accessToken"`
	ExpiresAt    time.Time `json:"expiresAt"`
	Lost         string    `json:"lost"`
	Intent       *struct {
		Nonce string `json:"nonce"`
	} `json:"intent"`
	Trouble *struct {
		Outcome string `json:"outcome"`
	} `json:"trouble"`
}

func (l *logins) record(ctx context.Context, account string) (record, effective.Login, error) {
	var s corev1.Secret
	if err := l.client.Get(ctx, l.key(effective.LoginSecretName(loginPool, account)), &s); err != nil {
		return record{}, effective.Login{}, err
	}
	var r record
	if err := json.Unmarshal(s.Data["login.json"], &r); err != nil {
		return record{}, effective.Login{}, err
	}
	shown, ok := effective.HeldLogin(loginPool, account, func(string) (map[string][]byte, bool) { return s.Data, true })
	if !ok {
		return r, shown, errors.New("nothing for proxies")
	}
	return r, shown, nil
}

// reach waits until every account has the generation, settled, and the token that
// the issuer takes now.
func (l *logins) reach(generation int64, accounts ...string) {
	l.t.Helper()
	if len(accounts) == 0 {
		accounts = l.accounts
	}
	l.await(fmt.Sprintf("generation %d of %d logins", generation, len(accounts)), func(ctx context.Context) error {
		for _, account := range accounts {
			if err := l.reached(ctx, account, generation); err != nil {
				return fmt.Errorf("%s: %w", account, err)
			}
		}
		return nil
	})
}

// await is eventually with more patience.
func (l *logins) await(what string, check func(ctx context.Context) error) {
	l.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(l.t.Context(), 50*time.Millisecond, loginPatience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		l.t.Fatalf("waiting for %s: %v\nlast lines of the operator:\n%s", what, last, l.logs.tail(20))
	}
}

func (l *logins) reached(ctx context.Context, account string, generation int64) error {
	r, shown, err := l.record(ctx, account)
	switch {
	case err != nil:
		return err
	case r.Generation != generation || r.Intent != nil:
		return fmt.Errorf("generation %d, want %d; intent %v, trouble %v, lost %q", r.Generation, generation, r.Intent, r.Trouble, r.Lost)
	case r.RefreshToken != l.issuer.RefreshToken(account):
		return errors.New("the refresh token that is kept is not the one that the issuer takes")
	case shown.State != effective.LoginRefreshing || shown.Credential.AccessToken != r.AccessToken || shown.Credential.Generation != generation ||
		shown.Credential.ChatGPTAccountID != "acct-"+account:
		return fmt.Errorf("proxies get state %s, generation %d", shown.State, shown.Credential.Generation)
	}
	return nil
}

// exchanged asserts that tokens were presented exactly n times for each account,
// and given each time.
func (l *logins) exchanged(n int) {
	l.t.Helper()
	for _, account := range l.accounts {
		if asked, given := l.issuer.Exchanges(account); asked != n || given != n || l.issuer.Revoked(account) {
			l.t.Errorf("%s: a refresh token was presented %d times and tokens given %d times, want %d; revoked: %v",
				account, asked, given, n, l.issuer.Revoked(account))
		}
	}
}

// age moves the clock on.
func (l *logins) age(d time.Duration) { l.clock.SetTime(l.clock.Now().Add(d)) }

// operator is one process of the operator, as main runs it.
type operator struct {
	l      *logins
	cancel context.CancelFunc
	done   chan error
	keeper *credential.Keeper
	dead   atomic.Bool
	// writing and written are called, if set, around a change of a login's Secret,
	// with its number for the account, from 1. What written returns is the error
	// that the operator gets in the place of the answer; nil = the answer.
	writing func(account string, n int)
	written func(account string, n int) error
	// api is called, if set, before each request; its error is the answer.
	api func(*http.Request) error
	// asking and answered are called around an exchange, with its number.
	asking, answered func(n int)

	mu     sync.Mutex // guards writes
	writes map[string]int
	asks   atomic.Int64
}

// start runs an operator until the test ends.
func (l *logins) start(change ...func(*operator)) *operator {
	l.t.Helper()
	o := &operator{l: l, done: make(chan error, 1), keeper: credential.NewKeeper(), writes: map[string]int{}}
	for _, f := range change {
		f(o)
	}
	logger := logr.FromSlogHandler(slog.NewJSONHandler(l.logs, &slog.HandlerOptions{Level: slog.Level(-4)}))
	period := loginResync
	cacheOptions := controllers.CacheOptions([]string{l.namespace})
	cacheOptions.SyncPeriod = &period
	cfg := l.operatorConfig()
	cfg.Wrap(o.wrap)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: l.scheme, Cache: cacheOptions, Logger: logger, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: anyName,
	})
	l.must(err)
	l.must(controllers.Setup(mgr, controllers.Options{ProxyImage: proxyImage, Clock: l.clock, Logins: o.keeper, Exchanger: o}))
	var ctx context.Context
	ctx, o.cancel = context.WithCancel(context.WithoutCancel(l.t.Context()))
	go func() { o.done <- mgr.Start(ctx) }()
	l.t.Cleanup(func() { o.kill(); o.wait() })
	return o
}

// kill asks the process to end, as a signal does; wait returns when it has ended.
func (o *operator) kill() { o.cancel() }

func (o *operator) wait() {
	o.l.t.Helper()
	err, ok := <-o.done
	if !ok {
		return
	}
	close(o.done)
	if err != nil {
		o.l.t.Errorf("operator ended with %v", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(o.l.t.Context()), patience)
	defer cancel()
	if o.dead.Load() {
		return // what it held is lost
	}
	if err := o.keeper.Wait(ctx); err != nil {
		o.l.t.Error(err)
	}
}

// crash ends the process as SIGKILL does: nothing of it reaches anybody any more.
func (o *operator) crash() {
	o.dead.Store(true)
	o.cancel()
}

var errCrashed = errors.New("the process is dead")

// Exchange is that of credential.HTTP with the hooks of the test.
func (o *operator) Exchange(ctx context.Context, issuer effective.Issuer, token string) credential.Reply {
	n := int(o.asks.Add(1))
	if o.asking != nil {
		o.asking(n)
	}
	if o.dead.Load() {
		return credential.Reply{Outcome: "Unknown"}
	}
	reply := credential.HTTP{}.Exchange(ctx, issuer, token)
	if o.answered != nil {
		o.answered(n)
	}
	return reply
}

func (o *operator) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		account, n := o.count(req)
		if account != "" && o.writing != nil {
			o.writing(account, n)
		}
		if o.dead.Load() {
			return nil, errCrashed
		}
		if o.api != nil {
			if err := o.api(req); err != nil {
				return nil, err
			}
		}
		resp, err := next.RoundTrip(req)
		var lost error
		if account != "" && o.written != nil {
			lost = o.written(account, n)
		}
		if o.dead.Load() {
			lost = errCrashed
		}
		if lost != nil && err == nil {
			resp.Body.Close()
			return nil, lost
		}
		return resp, err
	})
}

// count numbers the changes of the Secret of a login after it was made: the first
// announces an exchange, the second stores what came of it.
func (o *operator) count(req *http.Request) (account string, n int) {
	_, name, ok := strings.Cut(req.URL.Path, "/secrets/"+loginPool+"-login.")
	if !ok || req.Method != http.MethodPatch {
		return "", 0
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes[name]++
	return name, o.writes[name]
}

// nth calls f once, at the nth call of what it returns.
func nth(n int64, f func()) func() {
	var calls atomic.Int64
	return func() {
		if calls.Add(1) == n {
			f()
		}
	}
}
