package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const document100 = `{"rate_limit":{"allowed":true,"primary_window":{"used_percent":42,"limit_window_seconds":18000,"reset_after_seconds":60}}}`

func TestJudge(t *testing.T) {
	header := func(pairs ...string) func(string) string {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h.Get
	}
	for _, c := range []struct {
		name       string
		status     int
		header     func(string) string
		body       string
		before     int
		exists     bool
		reason     string
		until      time.Duration // 0 = no hint
		after      time.Duration
		rejections int
		known      bool
	}{
		{"usage", 200, header(), document100, 1, true, "", 0, 0, 0, true},
		{"no document", 200, header(), `<html>`, 0, true, "", 0, 0, 0, false},
		{"401 once", 401, header(), ``, 0, true, "", 0, again, 1, false},
		{"401 twice", 401, header(), ``, 1, true, account.ReasonAuthRejected, rejectedPause, 0, 2, false},
		{"402 once", 402, header(), ``, 0, true, "", 0, again, 1, false},
		{"402 twice", 402, header(), ``, 1, true, account.ReasonDeactivated, 0, 0, 2, false},
		{"404 of an endpoint that never answered", 404, header(), ``, 5, false, "", 0, 0, 0, false},
		{"404 once", 404, header(), ``, 0, true, "", 0, again, 1, false},
		{"404 twice", 404, header(), ``, 1, true, account.ReasonDeactivated, 0, 0, 2, false},
		{"403 alone", 403, header(), `{"error":{"code":"forbidden"}}`, 9, true, "", 0, 0, 0, false},
		{"closed by its code", 403, header(), `{"error":{"code":"account_deactivated"}}`, 0, false, account.ReasonDeactivated, 0, 0, 1, false},
		{"closed by the other form", 401, header(), `{"detail":{"code":"deactivated_workspace"}}`, 0, false, account.ReasonDeactivated, 0, 0, 1, false},
		{"429", 429, header("Retry-After", "3600"), ``, 0, true, "", 0, time.Hour, 0, false},
		{"429 for a moment", 429, header("Retry-After", "1"), ``, 0, true, "", 0, Interval, 0, false},
		{"429 without a hint", 429, header(), ``, 0, true, "", 0, 0, 0, false},
		{"500", 500, header(), ``, 1, true, "", 0, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := judge(Answer{Status: c.status, Header: c.header, Body: []byte(c.body)}, noon, c.before, c.exists)
			until := time.Duration(0)
			if !v.until.IsZero() {
				until = v.until.Sub(noon)
			}
			if v.reason != c.reason || until != c.until || v.after != c.after || v.rejections != c.rejections || v.usage.Known() != c.known {
				t.Errorf("%+v", v)
			}
		})
	}
}

// world is an upstream and a registry that note what they are told.
type world struct {
	t        *testing.T
	accounts []account.Account
	answer   func(name string) (Answer, error)
	asked    []string
	at       []time.Duration
	seen     map[string]account.Usage
	cooled   []string
	asking   bool
	began    time.Time
	// comes is there from the tenth minute on.
	comes account.Account
}

func (w *world) Ask(_ context.Context, a account.Account) (Answer, error) {
	if w.asking {
		w.t.Error("two questions at once")
	}
	w.asking = true
	<-time.After(time.Second)
	w.asking = false
	w.asked, w.at = append(w.asked, a.Name), append(w.at, time.Since(w.began))
	return w.answer(a.Name)
}

func (w *world) Observe(name string, u account.Usage) { w.seen[name] = u }

func (w *world) CoolDown(name string, _ time.Time, reason string) {
	w.cooled = append(w.cooled, name+" "+reason)
}

func run(t *testing.T, w *world, lasts time.Duration) {
	w.t, w.seen, w.began = t, map[string]account.Usage{}, time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	New(Options{
		Accounts: func() []account.Account {
			if w.comes.Name != "" && time.Since(w.began) >= 10*time.Minute {
				return []account.Account{w.comes}
			}
			return w.accounts
		},
		Asker: w, Sink: w, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	}).Run(ctx)
}

func login(name, token string) account.Account {
	return account.Account{Name: name, Kind: bundle.KindOAuth, Credential: bundle.Credential{AccessToken: token}}
}

func says(status int, body string) func(string) (Answer, error) {
	return func(string) (Answer, error) {
		return Answer{Status: status, Body: []byte(body)}, nil
	}
}

func TestB46_EveryAccountIsAskedAtItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: says(200, document100)}
		for i := range 10 {
			w.accounts = append(w.accounts, login(fmt.Sprint("a", i), "t"))
		}
		run(t, w, time.Hour)
		last, count := map[string]time.Duration{}, map[string]int{}
		for i, name := range w.asked {
			if before, ok := last[name]; ok && w.at[i]-before < Interval {
				t.Errorf("%s was asked again after %s", name, w.at[i]-before)
			}
			if last[name], count[name] = w.at[i], count[name]+1; count[name] == 1 && w.at[i] > spread+10*time.Second {
				t.Errorf("%s was asked first after %s", name, w.at[i])
			}
		}
		for _, a := range w.accounts {
			if n := count[a.Name]; n < 9 || n > 12 || len(w.seen[a.Name].Windows) != 1 {
				t.Errorf("%s was asked %d times in an hour, and %+v was seen", a.Name, n, w.seen[a.Name])
			}
		}
	})
}

func TestRejectionsNeedASecondAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{accounts: []account.Account{login("a", "t")}, answer: says(401, "")}
		run(t, w, 2*time.Minute)
		if len(w.asked) != 2 || w.at[1]-w.at[0] < again || fmt.Sprint(w.cooled) != "[a AuthRejected]" {
			t.Errorf("asked at %v, cooled %v", w.at, w.cooled)
		}
	})
}

func TestARenewedLoginIsNotRejected(t *testing.T) {
	for name, renewed := range map[string]int{"between two questions": 1, "while the second is out": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{accounts: []account.Account{login("a", "old")}}
				w.answer = func(string) (Answer, error) {
					if len(w.asked) == renewed {
						w.accounts = []account.Account{login("a", "new")}
					}
					return says(401, "")("")
				}
				run(t, w, spread+again+3*time.Second)
				if len(w.asked) < 2 || len(w.cooled) > 0 {
					t.Errorf("asked %v, cooled %v", w.asked, w.cooled)
				}
			})
		})
	}
}

func TestFailuresSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{accounts: []account.Account{login("a", "t")}, answer: func(string) (Answer, error) { return Answer{}, errors.New("reset") }}
		run(t, w, time.Hour)
		if len(w.asked) > 12 || len(w.cooled)+len(w.seen) > 0 {
			t.Errorf("asked %d times, cooled %v, seen %v", len(w.asked), w.cooled, w.seen)
		}
	})
}

func TestNobodyToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{answer: says(200, document100), comes: login("a", "t")}
		run(t, w, 12*time.Minute)
		if len(w.asked) != 1 {
			t.Errorf("asked %v", w.asked)
		}
	})
}

func TestForgetsWhoIsGone(t *testing.T) {
	known := map[string]*state{}
	plan([]account.Account{login("a", "t"), login("b", "t")}, known, noon, func() float64 { return 0 })
	plan([]account.Account{login("b", "t")}, known, noon, func() float64 { return 0 })
	if len(known) != 1 {
		t.Errorf("%d are remembered", len(known))
	}
}

func TestHTTP(t *testing.T) {
	var got *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = io.WriteString(w, strings.Repeat("x", MaxBody+5))
	}))
	defer server.Close()
	for endpoint, path := range map[string]string{
		"/backend-api/codex": "/backend-api/wham/usage", "/backend-api/codex/": "/backend-api/wham/usage", "/v1": "/v1/wham/usage", "": "/wham/usage",
	} {
		p := New(Options{Asker: HTTP{Client: server.Client(), Endpoint: func() string { return server.URL + endpoint }}})
		a := login("a", "secret-token")
		a.Credential.ChatGPTAccountID = "id"
		answer, err := p.question(t.Context(), a)
		if err != nil || answer.Status != 200 || len(answer.Body) != MaxBody {
			t.Errorf("%s: %v, status %d, %d bytes", endpoint, err, answer.Status, len(answer.Body))
			continue
		}
		if got.URL.Path != path || got.Header.Get("Authorization") != "Bearer secret-token" || got.Header.Get("Chatgpt-Account-Id") != "id" {
			t.Errorf("%s: %s %v", endpoint, got.URL.Path, got.Header)
		}
	}
	server.Close()
	p := New(Options{Asker: HTTP{Client: http.DefaultClient, Endpoint: func() string { return server.URL }}})
	if _, err := p.question(t.Context(), login("a", "secret-token")); err == nil || strings.Contains(err.Error(), "secret-token") {
		t.Errorf("%v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}
