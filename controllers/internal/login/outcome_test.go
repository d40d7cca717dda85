package login

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/effective"
)

func jwt(claims string) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256"}`) + "." + part(claims) + ".x"
}

func TestRead(t *testing.T) {
	long := strings.Repeat("x", 20<<10)
	for name, tc := range map[string]struct {
		status int
		body   string
		want   Outcome
		cause  string
	}{
		"granted":                     {200, `{"access_token":"at","refresh_token":"rt","id_token":"` + jwt("{}") + `","expires_in":3600}`, Granted, ""},
		"granted with little":         {200, `{"access_token":"at"}`, Granted, ""},
		"granted with strange extras": {200, `{"access_token":"at","refresh_token":"rt","expires_in":"soon","id_token":7,"code":{},"error":null}`, Granted, ""},
		"B57: success that is cut":    {200, `{"access_token":"at","refresh_to`, Unknown, ""},
		"success without a token":     {200, `{}`, Unknown, ""},
		"a token no header can hold":  {200, `{"access_token":"a t"}`, Unknown, ""},
		"a token that is too long":    {200, `{"access_token":"` + long + `"}`, Unknown, ""},
		"HTML with 200":               {200, `<html>`, Unknown, ""},
		"denied with 200":             {200, `{"error":"invalid_grant"}`, Denied, effective.CauseDenied},

		"standard denial":          {400, `{"error":"invalid_grant","error_description":"x"}`, Denied, effective.CauseDenied},
		"reused":                   {401, `{"error":{"message":"x","type":"invalid_request_error","code":"refresh_token_reused"}}`, Denied, effective.CauseReused},
		"expired":                  {401, `{"error":{"code":"refresh_token_expired"}}`, Denied, effective.CauseDenied},
		"invalidated":              {401, `{"error":{"code":"refresh_token_invalidated"}}`, Denied, effective.CauseDenied},
		"session ended":            {401, `{"code":"app_session_terminated"}`, Denied, effective.CauseDenied},
		"deactivated":              {403, `{"error":{"code":"account_deactivated"}}`, Denied, effective.CauseGone},
		"401 of an unknown word":   {401, `{"error":"something_new"}`, Denied, effective.CauseDenied},
		"unknown client":           {401, `{"error":"invalid_client"}`, Refused, effective.CauseClient},
		"client may not":           {400, `{"error":"unauthorized_client"}`, Refused, effective.CauseClient},
		"bad request":              {400, `{"error":"invalid_request"}`, Refused, effective.CauseAnswer},
		"a page before the issuer": {403, `<html>Just a moment...</html>`, Refused, effective.CauseAnswer},
		"401 of a gateway":         {401, `<html>`, Refused, effective.CauseAnswer},
		"not there":                {404, `nope`, Refused, effective.CauseAnswer},
		"redirect":                 {302, ``, Refused, effective.CauseAnswer},
		"come later":               {429, `{"error":"slow_down"}`, Unreachable, ""},
		"B57: gateway timeout":     {504, `<html>`, Unknown, ""},
		"issuer broke":             {500, `{"error":"server_error"}`, Unknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g, o, cause := Read(tc.status, []byte(tc.body))
			if o != tc.want || cause != tc.cause || (g.AccessToken != "") != (o == Granted) {
				t.Errorf("got %s/%s, want %s/%s", o, cause, tc.want, tc.cause)
			}
		})
	}
}

func TestReadOfTimesAndAccount(t *testing.T) {
	access := jwt(`{"exp":1900000000,"https://api.openai.com/auth":{"chatgpt_account_id":"acc-1"}}`)
	for name, tc := range map[string]struct {
		body string
		life time.Duration
	}{
		"number": {`,"expires_in":3600`, time.Hour}, "text": {`,"expires_in":"3600"`, time.Hour}, "none": {``, 0},
		"negative": {`,"expires_in":-1`, 0}, "for ever": {`,"expires_in":1e18`, 0}, "no number": {`,"expires_in":NaN`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g, o, _ := Read(200, []byte(`{"access_token":"`+access+`"`+tc.body+`}`))
			if name == "no number" {
				if o != Unknown { // that is no JSON
					t.Errorf("got %s", o)
				}
				return
			}
			if o != Granted || g.Lifetime != tc.life || g.AccountID != "acc-1" || g.ExpiresAt.Unix() != 1900000000 {
				t.Errorf("got %s %v %v %v", o, g.Lifetime, g.AccountID, g.ExpiresAt)
			}
		})
	}
}

// FuzzRead: whatever an issuer answers, a grant can be sent, and a cause is ours.
func FuzzRead(f *testing.F) {
	f.Add(200, []byte(`{"access_token":"at","refresh_token":"rt","expires_in":3600}`))
	f.Add(401, []byte(`{"error":{"code":"refresh_token_reused"}}`))
	f.Add(400, []byte(`{"error":"invalid_grant"}`))
	f.Add(502, []byte(`<html>`))
	causes := map[string]bool{"": true, effective.CauseDenied: true, effective.CauseReused: true, effective.CauseGone: true,
		effective.CauseClient: true, effective.CauseAnswer: true}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		g, o, cause := Read(status, body)
		if !causes[cause] || (o == Granted) != effective.IsToken(g.AccessToken) || g.RefreshToken != "" && !effective.IsToken(g.RefreshToken) ||
			g.Lifetime < 0 {
			t.Errorf("%s %q", o, cause)
		}
	})
}
