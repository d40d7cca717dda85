package upstream

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"
)

func TestChatGPTQuota(t *testing.T) {
	s := Start(t, Options{Mode: ModeChatGPT, Script: Script{Accounts: []Account{{
		Name: "a", Token: "sk", Plan: "plus", Quota: &Quota{
			Turns: 2, Primary: &Window{WindowMinutes: 300, UsedPercent: 50}, Secondary: &Window{WindowMinutes: 10080, UsedPercent: 12},
			Credits: "3",
		},
	}}}})
	events := dial(t, s, "sk").turn()
	if e := events[0]; e.name != "codex.rate_limits" || gjson.GetBytes(e.payload, "rate_limits.primary.used_percent").Float() != 75 ||
		gjson.GetBytes(e.payload, "rate_limits.secondary.window_minutes").Int() != 10080 ||
		gjson.GetBytes(e.payload, "plan_type").String() != "plus" {
		t.Errorf("got %s", e.payload)
	}
	r := call(t, s, http.MethodPost, "/backend-api/codex/responses", "sk", body())
	if r.header.Get("X-Codex-Primary-Used-Percent") != "100" || r.header.Get("X-Codex-Secondary-Window-Minutes") != "10080" ||
		r.header.Get("X-Codex-Credits-Balance") != "3" {
		t.Errorf("headers: %v", r.header)
	}
	r = call(t, s, http.MethodPost, "/backend-api/codex/responses", "sk", body())
	e := gjson.GetBytes(r.body, "error")
	if r.status != http.StatusTooManyRequests || e.Get("type").String() != "usage_limit_reached" ||
		e.Get("resets_in_seconds").Int() < 17000 ||
		strconv.Itoa(int(e.Get("resets_at").Int())) != r.header.Get("X-Codex-Primary-Reset-At") {
		t.Errorf("got %d %v %s", r.status, r.header, r.body)
	}
	frame := last(dial(t, s, "sk").turn()).payload
	if gjson.GetBytes(frame, "status").Int() != 429 || gjson.GetBytes(frame, "headers.x-codex-primary-used-percent").String() != "100" {
		t.Errorf("got %s", frame)
	}
	usage := call(t, s, http.MethodGet, "/backend-api/wham/usage", "sk", "")
	if usage.get("rate_limit.limit_reached") != "true" || usage.get("rate_limit.primary_window.limit_window_seconds") != "18000" {
		t.Errorf("usage: %s", usage.body)
	}
	ds := ended(t, s, 4)
	if d := ds[2]; d.Outcome != OutcomeRefused || d.Status != 429 || d.Executed() {
		t.Errorf("ledger: %+v", d)
	}
}

func TestPlatformQuota(t *testing.T) {
	s := Start(t, Options{Script: Script{Accounts: []Account{{
		Name: "a", Token: "sk", Quota: &Quota{Turns: 1, Requests: 500, Tokens: 1000, RetryAfter: Duration(30 * time.Second)},
	}}}})
	r := post(t, s, "sk", body())
	if r.header.Get("X-Ratelimit-Limit-Requests") != "500" || r.header.Get("X-Ratelimit-Remaining-Requests") != "499" ||
		r.header.Get("X-Ratelimit-Reset-Tokens") == "" {
		t.Errorf("headers: %v", r.header)
	}
	r = post(t, s, "sk", body())
	if r.status != 429 || r.header.Get("Retry-After") != "30" || r.get("error.code") != "rate_limit_exceeded" {
		t.Errorf("got %d %v %s", r.status, r.header, r.body)
	}
}

func TestQuotaWindowResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuotas()
		w := &Window{WindowMinutes: 60, UsedPercent: 100}
		q.install(Script{Accounts: []Account{{Name: "a", Quota: &Quota{Primary: w}}}})
		ask := func() *apiError {
			return q.take(&request{account: "a", generate: true, received: time.Now(), mode: ModeChatGPT})
		}
		if e := ask(); e == nil || e.typ != "usage_limit_reached" {
			t.Fatalf("got %+v", e)
		}
		<-time.After(time.Hour)
		if e := ask(); e != nil {
			t.Errorf("after the reset: %+v", e)
		}
		if w.UsedPercent != 100 {
			t.Error("the script was changed")
		}
	})
}
