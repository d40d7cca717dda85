package credential

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/controllers/internal/login"
	"github.com/causeway-dev/causeway/test/upstream"
)

// scripted starts an issuer with one account whose refresh token is rt-0.
func scripted(t *testing.T, rules ...upstream.Rule) (*upstream.Server, effective.Issuer) {
	t.Helper()
	for i := range rules {
		rules[i].Match.Route = upstream.RouteOAuth
	}
	s := upstream.StartTLS(t, upstream.Options{Script: upstream.Script{
		Accounts: []upstream.Account{{Name: "a", RefreshToken: "rt-0"}}, Rules: rules,
	}})
	return s, effective.Issuer{TokenURL: s.URL + "/oauth/token", ClientID: "client", CABundle: string(s.CA)}
}

func faulty(at, action string) upstream.Rule {
	return upstream.Rule{Fault: &upstream.Fault{At: at, Action: action}}
}

func TestExchange(t *testing.T) {
	for name, form := range map[string]bool{"JSON": false, "form": true} {
		t.Run(name, func(t *testing.T) {
			s, issuer := scripted(t)
			issuer.Form = form
			got := HTTP{}.Exchange(t.Context(), issuer, "rt-0")
			if got.Outcome != login.Granted || got.Grant.RefreshToken != s.RefreshToken("a") || got.Grant.AccountID != "acct-a" ||
				got.Grant.Lifetime != time.Hour {
				t.Fatalf("got %s/%s", got.Outcome, got.Cause)
			}
			if got := (HTTP{}).Exchange(t.Context(), issuer, "rt-0"); got.Outcome != login.Denied {
				t.Errorf("a second use: %s", got.Outcome)
			}
		})
	}
}

// TestB57_ALostReplyIsNotAskedForAgain: one request, whatever becomes of it.
func TestB57_ALostReplyIsNotAskedForAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		rule    upstream.Rule
		want    login.Outcome
		rotated bool
	}{
		"reset after it rotated":   {faulty(upstream.AtAfterHeaders, upstream.ActReset), login.Unknown, true},
		"end after it rotated":     {faulty(upstream.AtAfterHeaders, upstream.ActFin), login.Unknown, true},
		"silence after it rotated": {faulty(upstream.AtAfterHeaders, upstream.ActMute), login.Unknown, true},
		"garbage after it rotated": {faulty(upstream.AtAfterHeaders, upstream.ActGarbage), login.Unknown, true},
		"a page after it rotated":  {faulty(upstream.AtAfterHeaders, upstream.ActHTML), login.Unknown, true},
		"reset before":             {faulty(upstream.AtBeforeHeaders, upstream.ActReset), login.Unknown, false},
		"502":                      {upstream.Rule{Fault: &upstream.Fault{Action: upstream.ActStatus, Status: 502}}, login.Unknown, false},
		"429":                      {upstream.Rule{Fault: &upstream.Fault{Action: upstream.ActStatus, Status: 429}}, login.Unreachable, false},
		"403":                      {upstream.Rule{Fault: &upstream.Fault{Action: upstream.ActStatus, Status: 403}}, login.Refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, issuer := scripted(t, tc.rule)
			got := HTTP{timeout: 500 * time.Millisecond}.Exchange(t.Context(), issuer, "rt-0")
			if got.Outcome != tc.want {
				t.Errorf("got %s, want %s", got.Outcome, tc.want)
			}
			if rotated := s.RefreshToken("a") != "rt-0"; rotated != tc.rotated {
				t.Errorf("rotated: %v", rotated)
			}
			if n := len(s.Ledger().Requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

// TestB114_ACancelledCallerDoesNotAbandonAnExchange: the caller goes while the
// issuer has rotated and not answered.
func TestB114_ACancelledCallerDoesNotAbandonAnExchange(t *testing.T) {
	s, issuer := scripted(t, faulty(upstream.AtAfterHeaders, upstream.ActHold))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan Reply, 1)
	go func() { done <- HTTP{}.Exchange(ctx, issuer, "rt-0") }()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) { return s.Held() == 1, nil })
	if err != nil {
		t.Fatal("no request came")
	}
	cancel()
	s.Release()
	if got := <-done; got.Outcome != login.Granted || got.Grant.RefreshToken != s.RefreshToken("a") {
		t.Errorf("got %s", got.Outcome)
	}
}

func TestNothingWasSentIsSaidOnlyIfItIsTrue(t *testing.T) {
	_, issuer := scripted(t)
	_, other := scripted(t)
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, change := range map[string]func(*effective.Issuer){
		"nobody listens":           func(i *effective.Issuer) { i.TokenURL = closed.URL },
		"another authority":        func(i *effective.Issuer) { i.CABundle = other.CABundle },
		"only the system's":        func(i *effective.Issuer) { i.CABundle = "" },
		"a bundle of nothing":      func(i *effective.Issuer) { i.CABundle = "x" },
		"a name that is not there": func(i *effective.Issuer) { i.TokenURL = "https://issuer.invalid/token" },
	} {
		t.Run(name, func(t *testing.T) {
			i := issuer
			change(&i)
			if got := (HTTP{timeout: 2 * time.Second}).Exchange(t.Context(), i, "rt-0"); got.Outcome != login.Unreachable {
				t.Errorf("got %s", got.Outcome)
			}
		})
	}
}

func TestAnIssuerIsNeitherFollowedNorReadWithoutEnd(t *testing.T) {
	var elsewhere atomic.Int32
	target := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer target.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, target.URL, http.StatusTemporaryRedirect)
		default:
			_, _ = w.Write([]byte(`{"access_token":"at","x":"` + strings.Repeat("x", login.MaxReply) + `"}`))
		}
	}))
	defer server.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for path, want := range map[string]login.Outcome{"/redirect": login.Refused, "/long": login.Unknown} {
		got := HTTP{}.Exchange(t.Context(), effective.Issuer{TokenURL: server.URL + path, ClientID: "c", CABundle: ca}, "rt")
		if got.Outcome != want {
			t.Errorf("%s: got %s, want %s", path, got.Outcome, want)
		}
	}
	if elsewhere.Load() > 0 {
		t.Error("the refresh token was taken elsewhere")
	}
}
