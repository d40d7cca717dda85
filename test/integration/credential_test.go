package integration

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/controllers/credential"
)

func TestLoginsAreTakenOverAndRefreshedInTime(t *testing.T) {
	l := newLogins(t, 3)
	l.start()
	l.reach(2) // the seed is 1, the first token 2
	l.exchanged(1)
	for i := range int64(3) {
		l.age(8 * 24 * time.Hour)
		l.reach(3 + i)
	}
	l.exchanged(4)
	var seeds corev1.Secret
	l.get(&seeds, loginSeeds)
	for _, account := range l.accounts {
		if string(seeds.Data[account]) != firstToken(account) {
			t.Error("the user's Secret was written")
		}
	}
	if n := len(seeds.ManagedFields); n != 1 {
		t.Errorf("the user's Secret has %d writers", n)
	}
}

// TestB56_TwoOperatorsExchangeOnce: both see every login come due at the same
// moment, again and again.
func TestB56_TwoOperatorsExchangeOnce(t *testing.T) {
	l := newLogins(t, manyAccounts)
	a, b := l.start(), l.start()
	l.reach(2)
	for i := range int64(2) {
		l.age(8 * 24 * time.Hour)
		l.reach(3 + i)
	}
	l.exchanged(3)
	if a.asks.Load() == 0 || b.asks.Load() == 0 {
		t.Errorf("they did not race: %d and %d exchanges", a.asks.Load(), b.asks.Load())
	}
	if total := a.asks.Load() + b.asks.Load(); total != 3*manyAccounts {
		t.Errorf("%d exchanges for %d rotations", total, 3*manyAccounts)
	}
}

// steps are the moments of a refresh in which a process may end.
var steps = map[string]func(o *operator, kill func()){
	"before the announcement": func(o *operator, kill func()) {
		o.writing = func(_ string, n int) {
			if n == 1 {
				kill()
			}
		}
	},
	"after the announcement": func(o *operator, kill func()) {
		o.written = func(_ string, n int) error {
			if n == 1 {
				kill()
			}
			return nil
		}
	},
	"before the exchange": func(o *operator, kill func()) { o.asking = func(int) { kill() } },
	"after the exchange":  func(o *operator, kill func()) { o.answered = func(int) { kill() } },
	"before the token is stored": func(o *operator, kill func()) {
		o.writing = func(_ string, n int) {
			if n == 2 {
				kill()
			}
		}
	},
	"after the token is stored": func(o *operator, kill func()) {
		o.written = func(_ string, n int) error {
			if n == 2 {
				kill()
			}
			return nil
		}
	},
}

// TestT46_AnOperatorThatIsStoppedInAnyStepLosesNoLogin: fifty refreshes are under way
// when the process is asked to end, and another takes over.
func TestT46_AnOperatorThatIsStoppedInAnyStepLosesNoLogin(t *testing.T) {
	for name, at := range steps {
		t.Run(name, func(t *testing.T) {
			l := newLogins(t, manyAccounts)
			first := l.start(func(o *operator) { at(o, nth(20, func() { o.kill() })) })
			first.wait()
			if n := first.asks.Load(); n == 0 && !strings.HasPrefix(name, "before the announcement") || n == manyAccounts {
				t.Errorf("the first operator made %d exchanges, which is not what is tested", n)
			}
			l.start()
			l.reach(2)
			l.exchanged(1)
		})
	}
}

// T45: an operator stands still right after it has announced a refresh, another one
// waits the announcement out and refreshes; when the first wakes, it sends nothing:
// the token it has in hand is used up.
func TestT45_AnOperatorThatStoodStillSendsNoUsedToken(t *testing.T) {
	l := newLogins(t, 1)
	account := l.accounts[0]
	woke := make(chan struct{})
	first := l.start(func(o *operator) {
		o.written = func(_ string, n int) error {
			if n != 1 {
				return nil
			}
			defer close(woke)
			l.start()
			return wait.PollUntilContextTimeout(l.t.Context(), 100*time.Millisecond, loginPatience, true, func(context.Context) (bool, error) {
				l.age(time.Second)
				asked, _ := l.issuer.Exchanges(account)
				return asked > 0, nil
			})
		}
	})
	<-woke
	l.reach(2)
	if n := first.asks.Load(); n != 0 {
		t.Errorf("it presented a token %d times after it woke", n)
	}
	l.exchanged(1)
}

// present exchanges a refresh token behind the operator's back.
func (l *logins) present(token string) {
	l.t.Helper()
	credential.HTTP{}.Exchange(l.t.Context(), effective.Issuer{
		TokenURL: l.issuer.URL + "/oauth/token", ClientID: "thief", CABundle: string(l.issuer.CA),
	}, token)
}

// jwtOf is an access token that only its times tell something of.
func jwtOf(issued, expires time.Time) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"none"}`)) + "." + part(fmt.Appendf(nil, `{"iat":%d,"exp":%d}`, issued.Unix(), expires.Unix())) + ".canary"
}
