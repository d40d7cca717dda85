package upstream

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

func refresh(t *testing.T, s *Server, token string) reply {
	t.Helper()
	return call(t, s, http.MethodPost, "/oauth/token", "", `{"grant_type":"refresh_token","client_id":"app","refresh_token":"`+token+`"}`)
}

func issuerScript() Script {
	return Script{Accounts: []Account{{Name: "a", RefreshToken: "rt-first", Plan: "plus"}}}
}

func TestRefreshTokensRotateAndServeOnce(t *testing.T) {
	s := Start(t, Options{Script: issuerScript()})
	r := refresh(t, s, "rt-first")
	access, next := r.get("access_token"), r.get("refresh_token")
	if r.status != http.StatusOK || next == "" || next != s.RefreshToken("a") {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(r.get("id_token"), ".")[1])
	if err != nil || gjson.GetBytes(claims, `https://api\.openai\.com/auth.chatgpt_account_id`).String() != "acct-a" {
		t.Errorf("claims: %s, %v", claims, err)
	}
	if got := post(t, s, access, body()); got.status != http.StatusOK {
		t.Errorf("access token: %d %s", got.status, got.body)
	}
	if d := ended(t, s, 1)[0]; d.Account != "a" {
		t.Errorf("ledger: account %q", d.Account)
	}
	form := call(t, s, http.MethodPost, "/oauth/token", "", "grant_type=refresh_token&refresh_token="+next,
		"Content-Type", "application/x-www-form-urlencoded")
	if form.status != http.StatusOK {
		t.Fatalf("form: %d %s", form.status, form.body)
	}
	if r := refresh(t, s, "rt-first"); r.status != http.StatusBadRequest || r.get("error") != "invalid_grant" {
		t.Errorf("reuse: %d %s", r.status, r.body)
	}
	if r := refresh(t, s, gjson.GetBytes(form.body, "refresh_token").String()); r.status != http.StatusBadRequest {
		t.Errorf("the family survived the reuse: %d %s", r.status, r.body)
	}
	if r := post(t, s, access, body()); r.status != http.StatusUnauthorized || r.get("error.code") != "token_invalidated" {
		t.Errorf("access token after the reuse: %d %s", r.status, r.body)
	}
	if err := s.Script(issuerScript()); err != nil {
		t.Fatal(err)
	}
	if r := refresh(t, s, "rt-first"); r.status != http.StatusBadRequest {
		t.Error("a new script brought a dead token back to life")
	}
}

func TestRefreshWhoseReplyIsLostHasRotated(t *testing.T) {
	script := issuerScript()
	script.OAuth.OpenAIErrors = true
	script.Rules = []Rule{{Match: Match{Route: RouteOAuth, Account: "a"}, Repeat: 1, Fault: &Fault{At: AtAfterHeaders, Action: ActReset}}}
	s := Start(t, Options{Script: script})
	if r := refresh(t, s, "rt-first"); r.err == nil {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	if s.RefreshToken("a") == "rt-first" {
		t.Error("the token did not rotate")
	}
	if r := refresh(t, s, "rt-first"); r.status != http.StatusUnauthorized || r.get("error.code") != "refresh_token_reused" {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

func TestAccessTokenExpires(t *testing.T) {
	script := issuerScript()
	script.OAuth.AccessTTL = Duration(time.Nanosecond)
	s := Start(t, Options{Script: script})
	access := gjson.GetBytes(refresh(t, s, "rt-first").body, "access_token").String()
	if r := post(t, s, access, body()); r.status != http.StatusUnauthorized || r.get("error.code") != "token_expired" {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

func TestDeviceFlow(t *testing.T) {
	script := issuerScript()
	script.OAuth.DevicePolls = 1
	s := Start(t, Options{Script: script})
	start := call(t, s, http.MethodPost, "/api/accounts/deviceauth/usercode", "", `{"client_id":"app"}`)
	ask := string(encode(object{"device_auth_id", start.get("device_auth_id"), "user_code", start.get("user_code")}))
	if r := call(t, s, http.MethodPost, "/api/accounts/deviceauth/token", "", ask); r.status != http.StatusForbidden {
		t.Errorf("first poll: %d %s", r.status, r.body)
	}
	r := call(t, s, http.MethodPost, "/api/accounts/deviceauth/token", "", ask)
	code := r.get("authorization_code")
	if r.status != http.StatusOK || code == "" {
		t.Fatalf("second poll: %d %s", r.status, r.body)
	}
	exchange := "grant_type=authorization_code&code=" + code
	if r := call(t, s, http.MethodPost, "/oauth/token", "", exchange); r.status != http.StatusOK {
		t.Errorf("exchange: %d %s", r.status, r.body)
	}
	if r := call(t, s, http.MethodPost, "/oauth/token", "", exchange); r.status != http.StatusBadRequest {
		t.Errorf("second exchange of one code: %d", r.status)
	}
	if r := call(t, s, http.MethodPost, "/oauth/token", "", "grant_type=password"); r.get("error") != "unsupported_grant_type" {
		t.Errorf("got %s", r.body)
	}
}
