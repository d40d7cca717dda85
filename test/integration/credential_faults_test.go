package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/causeway-dev/causeway/api/effective"
	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/test/upstream"
)

// passing is await with the clock going on by a few seconds each look.
func (l *logins) passing(what string, check func(ctx context.Context) error) {
	l.t.Helper()
	looks := 0
	l.await(what, func(ctx context.Context) error {
		err := check(ctx)
		// Slowly enough for an exchange under way to end before its time is up.
		if looks++; err != nil && looks%10 == 0 {
			l.age(3 * time.Second)
		}
		return err
	})
}

// TestAnOperatorThatIsKilledBeforeOrAfterTheExchangeLosesNoLogin: SIGKILL leaves no
// time to finish anything. Where the tokens were in nobody's hands, or are stored,
// no login is lost.
func TestAnOperatorThatIsKilledBeforeOrAfterTheExchangeLosesNoLogin(t *testing.T) {
	for _, step := range []string{"before the announcement", "after the announcement", "before the exchange", "after the token is stored"} {
		t.Run(step, func(t *testing.T) {
			l := newLogins(t, 1) // of several, one may be at another step, with tokens in hand
			first := l.start(func(o *operator) { steps[step](o, nth(1, func() { o.crash() })) })
			first.wait()
			second := l.start()
			l.passing("the login", func(ctx context.Context) error { return l.reached(ctx, "a00", 2) })
			l.exchanged(1)
			if stored := step == "after the token is stored"; (second.asks.Load() == 0) != stored {
				t.Errorf("the second operator made %d exchanges, which is not what is tested", second.asks.Load())
			}
		})
	}
}

// TestAnOperatorThatIsKilledWithTokensInHandSaysWhatIsLost: no protocol brings back
// tokens that only a dead process had; the account must not be used on, nor retried
// without end, and a new login makes it good.
func TestAnOperatorThatIsKilledWithTokensInHandSaysWhatIsLost(t *testing.T) {
	l := newLogins(t, 2)
	first := l.start(func(o *operator) { steps["after the exchange"](o, nth(1, func() { o.crash() })) })
	first.wait()
	l.start()
	var lost string
	l.passing("a verdict", func(ctx context.Context) error {
		for _, account := range l.accounts {
			r, shown, err := l.record(ctx, account)
			if err != nil {
				return err
			}
			if r.Lost != "" {
				lost = account
				if r.Lost != effective.CauseReplyLost || shown.State != effective.LoginReauth {
					t.Errorf("lost for %s, shown as %s", r.Lost, shown.State)
				}
				return nil
			}
		}
		return errors.New("no login is lost")
	})
	if asked, _ := l.issuer.Exchanges(lost); asked != 2 {
		t.Errorf("a refresh token was presented %d times, want 2", asked)
	}
	l.poolSays(v1alpha1.ReasonReauthRequired, "") // of the other account, if it was under way as well
	l.relogin(lost, "rt-canary-anew")
	l.passing("the new login", func(ctx context.Context) error {
		r, shown, err := l.record(ctx, lost)
		if err == nil && (r.Lost != "" || shown.State != effective.LoginRefreshing || shown.Credential.AccessToken == "") {
			err = fmt.Errorf("lost %q, state %s", r.Lost, shown.State)
		}
		return err
	})
}

// relogin gives an account a new login, as a person does.
func (l *logins) relogin(account, token string) {
	l.t.Helper()
	l.must(l.issuer.Script(upstream.Script{
		Accounts: []upstream.Account{{Name: account, RefreshToken: token}},
		OAuth:    upstream.OAuth{AccessTTL: upstream.Duration(tokenLife), OpenAIErrors: true},
	}))
	l.edit(&corev1.Secret{}, loginSeeds, func(o client.Object) { o.(*corev1.Secret).Data[account] = []byte(token) })
}

// poolSays waits until the pool's condition tells of the account.
func (l *logins) poolSays(reason, account string) {
	l.t.Helper()
	l.passing("RefreshHealthy/"+reason, func(ctx context.Context) error {
		var pool v1alpha1.AccountPool
		if err := l.client.Get(ctx, l.key(loginPool), &pool); err != nil {
			return err
		}
		c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionRefreshHealthy)
		if c == nil {
			return errors.New("there is none")
		}
		if c.Reason != reason || account != "" && !strings.Contains(c.Message, account) {
			return fmt.Errorf("it is %s/%s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	})
}

func oauthFault(account, at, action string, repeat int) upstream.Rule {
	return upstream.Rule{Match: upstream.Match{Route: upstream.RouteOAuth, Account: account}, Repeat: repeat,
		Fault: &upstream.Fault{At: at, Action: action}}
}

// TestB57_AReplyThatGotLost: the operator does not ask again at once, says so, and
// asks once when its announcement has run out.
func TestB57_AReplyThatGotLost(t *testing.T) {
	t.Run("before the token rotated", func(t *testing.T) {
		l := newLogins(t, 1, oauthFault("a00", upstream.AtBeforeHeaders, upstream.ActReset, 1))
		l.start()
		l.uncertain()
		l.passing("the second try", func(ctx context.Context) error { return l.reached(ctx, "a00", 2) })
		l.exchanged(1)
		l.poolSays(v1alpha1.ReasonRefreshing, "")
	})
	t.Run("after the token rotated", func(t *testing.T) {
		l := newLogins(t, 1, oauthFault("a00", upstream.AtAfterHeaders, upstream.ActReset, 1))
		l.start()
		l.uncertain()
		l.passing("the verdict", func(ctx context.Context) error {
			r, _, err := l.record(ctx, "a00")
			if err == nil && r.Lost != effective.CauseReplyLost {
				err = fmt.Errorf("lost %q, trouble %v", r.Lost, r.Trouble)
			}
			return err
		})
		if asked, _ := l.issuer.Exchanges("a00"); asked != 2 {
			t.Errorf("a refresh token was presented %d times, want 2", asked)
		}
		l.age(time.Hour)
		l.looks(3, "credential")
		if asked, _ := l.issuer.Exchanges("a00"); asked != 2 {
			t.Errorf("a login that is lost is still asked for: %d times", asked)
		}
		l.poolSays(v1alpha1.ReasonReauthRequired, "a00")
	})
}

// uncertain waits for the alarm, and that nothing is asked while it lasts.
func (l *logins) uncertain() {
	l.t.Helper()
	l.await("the alarm", func(ctx context.Context) error {
		r, shown, err := l.record(ctx, "a00")
		if err == nil && (shown.State != effective.LoginUncertain || r.Intent != nil) {
			err = fmt.Errorf("state %s", shown.State)
		}
		return err
	})
	l.age(19 * time.Second)
	l.looks(3, "credential")
	if n := len(l.issuer.Ledger().Requests()); n != 1 {
		l.t.Errorf("%d requests within the time of the announcement, want 1", n)
	}
	l.await("the event", func(context.Context) error {
		for _, e := range l.events() {
			if e.Reason == v1alpha1.ReasonRefreshUncertain && e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, "a00") {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// TestT71_AWriteWhoseAnswerGotLostIsNotMadeTwice: of the announcement, and of the
// tokens.
func TestT71_AWriteWhoseAnswerGotLostIsNotMadeTwice(t *testing.T) {
	for name, lost := range map[string]int{"the announcement": 1, "the tokens": 2} {
		t.Run(name, func(t *testing.T) {
			l := newLogins(t, 3)
			var drops atomic.Int32
			l.start(func(o *operator) {
				o.written = func(_ string, n int) error {
					if n == lost {
						drops.Add(1)
						return errors.New("the connection broke")
					}
					return nil
				}
			})
			l.reach(2)
			l.exchanged(1)
			if drops.Load() != 3 {
				t.Errorf("%d answers got lost, want 3", drops.Load())
			}
		})
	}
}

// TestTokensOutliveAnAPIServerThatDoesNotTakeThem: they are kept in memory, tried
// again, and the process does not end before they are stored.
func TestTokensOutliveAnAPIServerThatDoesNotTakeThem(t *testing.T) {
	l := newLogins(t, 3)
	var closed atomic.Bool
	var refused atomic.Int32
	o := l.start(func(o *operator) {
		o.answered = func(n int) {
			if n == 1 {
				closed.Store(true)
			}
		}
		o.api = func(*http.Request) error {
			if closed.Load() {
				refused.Add(1)
				return errors.New("no route to host")
			}
			return nil
		}
	})
	l.await("tokens that cannot be stored", func(context.Context) error {
		if n := refused.Load(); n < 20 {
			return fmt.Errorf("%d writes and reads were refused", n)
		}
		return nil
	})
	o.kill()
	ended := make(chan struct{})
	go func() { o.wait(); close(ended) }()
	before := refused.Load()
	l.await("tries to store them at the end", func(context.Context) error {
		if n := refused.Load(); n < before+5 {
			return fmt.Errorf("%d", n-before)
		}
		return nil
	})
	select {
	case <-ended:
		t.Error("the process ended with tokens in hand")
	default:
	}
	closed.Store(false)
	<-ended
	l.start()
	l.reach(2)
	l.exchanged(1)
}

// TestASecretThatIsDeletedDuringAnExchange: the process has all that is left of the
// login.
func TestASecretThatIsDeletedDuringAnExchange(t *testing.T) {
	l := newLogins(t, 1)
	l.start(func(o *operator) {
		o.answered = func(n int) {
			if n > 1 {
				return
			}
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: effective.LoginSecretName(loginPool, "a00")}}
			if err := l.client.Delete(context.WithoutCancel(t.Context()), s); err != nil {
				t.Error(err)
			}
		}
	})
	l.reach(2)
	l.exchanged(1)
}

func TestASeedThatWasUsedIsNotUsedAgain(t *testing.T) {
	l := newLogins(t, 1)
	o := l.start()
	l.reach(2)
	l.relogin("a00", "rt-canary-second")
	l.reach(4) // the new seed is 3
	seed := func(value string) {
		l.edit(&corev1.Secret{}, loginSeeds, func(o client.Object) { o.(*corev1.Secret).Data["a00"] = []byte(value) })
		l.looks(3, "credential")
	}
	seed(firstToken("a00")) // as a revert in git would
	seed(`{"tokens": {"refresh_token": "rt-canary-second"}}`)
	seed("")
	l.reach(4)

	// Neither a pool that is made anew nor an operator that forgot everything
	// begins again with what was used.
	seed("rt-canary-second")
	l.must(l.client.Delete(t.Context(), &v1alpha1.AccountPool{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: loginPool}}))
	o.kill()
	o.wait()
	l.must(l.client.Create(t.Context(), l.pool(loginPool)))
	l.start()
	var pool v1alpha1.AccountPool
	l.get(&pool, loginPool)
	l.await("the new owner", func(ctx context.Context) error {
		var s corev1.Secret
		if err := l.client.Get(ctx, l.key(effective.LoginSecretName(loginPool, "a00")), &s); err != nil {
			return err
		}
		if owner := metav1.GetControllerOf(&s); owner == nil || owner.UID != pool.UID || len(s.OwnerReferences) != 2 {
			return fmt.Errorf("owners are %v", s.OwnerReferences)
		}
		return nil
	})
	l.age(8 * 24 * time.Hour)
	l.reach(5)
	if asked, given := l.issuer.Exchanges("a00"); asked != 2 || given != 2 {
		t.Errorf("presented %d times, given %d times, want 2", asked, given)
	}
}

// TestTwoAccountsWithOneLogin: the second is refused, in the same pool and in
// another, and the first goes on.
func TestTwoAccountsWithOneLogin(t *testing.T) {
	l := newLogins(t, 2)
	l.edit(&corev1.Secret{}, loginSeeds, func(o client.Object) { o.(*corev1.Secret).Data["a01"] = []byte(firstToken("a00")) })
	l.start()
	l.reach(2, "a00")
	l.must(l.client.Create(t.Context(), l.pool("other")))
	for _, name := range []string{effective.LoginSecretName(loginPool, "a01"), effective.LoginSecretName("other", "a00")} {
		l.await("the refusal in "+name, func(ctx context.Context) error {
			var s corev1.Secret
			if err := l.client.Get(ctx, l.key(name), &s); err != nil {
				return err
			}
			if !strings.Contains(string(s.Data[effective.LoginKey]), effective.CauseDuplicate) {
				return errors.New("it is not refused")
			}
			return nil
		})
	}
	l.age(8 * 24 * time.Hour)
	l.reach(3, "a00")
	if asked, given := l.issuer.Exchanges("a00"); asked != 2 || given != 2 {
		t.Errorf("presented %d times, given %d times, want 2", asked, given)
	}
}

func TestAForeignSecretIsLeftAlone(t *testing.T) {
	l := newLogins(t, 1)
	name := effective.LoginSecretName(loginPool, "a00")
	l.must(l.client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}, Data: map[string][]byte{"mine": []byte("x")},
	}))
	l.start()
	l.await("the refusal", func(context.Context) error {
		for _, e := range l.events() {
			if e.Reason == v1alpha1.EventAdoptionRefused && strings.Contains(e.Note, name) {
				return nil
			}
		}
		return errors.New("no event")
	})
	var s corev1.Secret
	l.get(&s, name)
	if len(s.Data) != 1 || len(s.OwnerReferences) != 0 || len(l.issuer.Ledger().Requests()) != 0 {
		t.Error("it was written, or the token was used")
	}
}
