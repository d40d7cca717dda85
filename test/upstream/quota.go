package upstream

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Quota is what an account may use and what the service says about it.
type Quota struct {
	Primary   *Window `json:"primary,omitempty"`
	Secondary *Window `json:"secondary,omitempty"`
	// Turns per primary window (or for good, without one); 0 means no limit.
	// Each turn adds its share to the primary window's percentage.
	Turns int `json:"turns,omitempty"`
	// Code of the refusal: usage_limit_reached (ChatGPT's default),
	// rate_limit_exceeded (the platform's) or insufficient_quota.
	Code string `json:"code,omitempty"`
	// RetryAfter adds the header to a refusal.
	RetryAfter Duration `json:"retryAfter,omitempty"`
	// Requests adds x-ratelimit-*-requests headers with this limit a minute.
	Requests int `json:"requests,omitempty"`
	Tokens   int `json:"tokens,omitempty"`
	// Credits adds the x-codex-credits-* headers.
	Credits string `json:"credits,omitempty"`
}

// Window is one of an account's usage windows.
type Window struct {
	UsedPercent   float64  `json:"usedPercent,omitempty"`
	WindowMinutes int      `json:"windowMinutes,omitempty"`
	ResetsIn      Duration `json:"resetsIn,omitempty"` // 0 means the window's length
}

func (w Window) resetsIn() time.Duration {
	if w.ResetsIn > 0 {
		return time.Duration(w.ResetsIn)
	}
	return time.Duration(w.WindowMinutes) * time.Minute
}

// quotas counts the turns of every account.
type quotas struct {
	mu       sync.Mutex
	accounts map[string]*usedQuota
}

type usedQuota struct {
	Quota
	plan  string
	since time.Time
	turns int
}

func newQuotas() *quotas { return &quotas{accounts: map[string]*usedQuota{}} }

func (q *quotas) install(s Script) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.accounts = map[string]*usedQuota{}
	for _, a := range s.Accounts {
		if a.Quota == nil {
			continue
		}
		u := &usedQuota{Quota: *a.Quota, plan: orDefault(a.Plan, "pro"), since: time.Now()}
		if u.Primary != nil {
			w := *u.Primary // a window that ends is reset, the script is not
			u.Primary = &w
		}
		q.accounts[a.Name] = u
	}
}

// current returns the account's use, in a window that has not ended; nil
// without a quota. q.mu must be held.
func (q *quotas) current(account string, now time.Time) *usedQuota {
	u := q.accounts[account]
	if u == nil || u.Primary == nil {
		return u
	}
	if length := u.Primary.resetsIn(); length > 0 && now.Sub(u.since) >= length {
		u.turns, u.since, u.Primary.UsedPercent = 0, now, 0
	}
	return u
}

// take uses up one turn, or says why not.
func (q *quotas) take(req *request) *apiError {
	if !req.generate {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.current(req.account, req.received)
	if u == nil {
		return nil
	}
	if u.Turns > 0 && u.turns >= u.Turns || u.Turns == 0 && u.Primary != nil && u.Primary.UsedPercent >= 100 {
		return u.refusal(req)
	}
	u.turns++
	return nil
}

func (u *usedQuota) percent() float64 {
	p := 0.0
	if u.Primary != nil {
		p = u.Primary.UsedPercent
	}
	if u.Turns > 0 {
		p += (100 - p) * float64(u.turns) / float64(u.Turns)
	}
	return p
}

func (u *usedQuota) resetAt() time.Time {
	if u.Primary == nil {
		return u.since.Add(time.Hour)
	}
	return u.since.Add(u.Primary.resetsIn())
}

func (u *usedQuota) refusal(req *request) *apiError {
	e := &apiError{status: http.StatusTooManyRequests, code: u.Code, headers: u.headers(req)}
	if e.code == "" && req.mode == ModePlatform {
		e.code = "rate_limit_exceeded"
	}
	switch e.code {
	case "rate_limit_exceeded":
		e.typ, e.message = "rate_limit_error", "Rate limit reached for requests."
	case "insufficient_quota":
		e.typ, e.message = "insufficient_quota", "You exceeded your current quota, please check your plan and billing details."
	default: // the ChatGPT backend puts it into the type
		e.typ, e.code, e.message = "usage_limit_reached", "", "The usage limit has been reached"
		left := u.resetAt().Sub(req.received)
		e.extra = []any{"plan_type", u.plan, "resets_at", u.resetAt().Unix(), "resets_in_seconds", int(left.Seconds())}
	}
	if u.RetryAfter > 0 {
		e.headers["retry-after"] = strconv.Itoa(int(time.Duration(u.RetryAfter).Seconds()))
	}
	return e
}

// headers about quotas that come with an answer, and those of a script.
func (q *quotas) headers(req *request, scripted map[string]string) map[string]string {
	out := map[string]string{"x-request-id": "req_" + randomHex(8)}
	q.mu.Lock()
	if u := q.current(req.account, req.received); u != nil {
		for k, v := range u.headers(req) {
			out[k] = v
		}
	}
	q.mu.Unlock()
	for k, v := range scripted {
		out[k] = v
	}
	return out
}

func (u *usedQuota) headers(req *request) map[string]string {
	out := map[string]string{}
	if req.mode == ModeChatGPT {
		if u.Primary != nil {
			windowHeaders(out, "primary", u.percent(), *u.Primary, u.resetAt())
		}
		if u.Secondary != nil {
			windowHeaders(out, "secondary", u.Secondary.UsedPercent, *u.Secondary, u.since.Add(u.Secondary.resetsIn()))
		}
		if u.Credits != "" {
			out["x-codex-credits-has-credits"], out["x-codex-credits-unlimited"] = "true", "false"
			out["x-codex-credits-balance"] = u.Credits
		}
		return out
	}
	for name, limit := range map[string]int{"requests": u.Requests, "tokens": u.Tokens} {
		if limit > 0 {
			left := max(limit-u.turns, 0)
			out["x-ratelimit-limit-"+name] = strconv.Itoa(limit)
			out["x-ratelimit-remaining-"+name] = strconv.Itoa(left)
			out["x-ratelimit-reset-"+name] = time.Until(u.resetAt()).Round(time.Millisecond).String()
		}
	}
	return out
}

func windowHeaders(out map[string]string, name string, percent float64, w Window, reset time.Time) {
	prefix := "x-codex-" + name + "-"
	out[prefix+"used-percent"] = strconv.FormatFloat(percent, 'f', -1, 64)
	out[prefix+"window-minutes"] = strconv.Itoa(w.WindowMinutes)
	out[prefix+"reset-at"] = fmt.Sprint(reset.Unix())
}

// event is codex.rate_limits, which the ChatGPT backend sends before a
// response on a socket; nil where there is none.
func (q *quotas) event(req *request) *event {
	if req.mode != ModeChatGPT || req.transport != TransportWS || !req.generate {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.current(req.account, req.received)
	if u == nil {
		return nil
	}
	return &event{"codex.rate_limits", encode(object{
		"type", "codex.rate_limits", "plan_type", u.plan,
		"rate_limits", object{
			"allowed", true, "limit_reached", u.percent() >= 100,
			"primary", u.window(u.Primary, u.percent(), "window_minutes"),
			"secondary", u.window(u.Secondary, 0, "window_minutes"),
		},
		"credits", u.credits(),
	})}
}

// window is one window of the event or of the usage document, which name its
// length differently.
func (u *usedQuota) window(w *Window, percent float64, length string) any {
	if w == nil {
		return nil
	}
	reset := u.since.Add(w.resetsIn())
	o := object{"used_percent", max(percent, w.UsedPercent), length, w.WindowMinutes, "reset_at", reset.Unix()}
	if length == "limit_window_seconds" {
		o[3] = w.WindowMinutes * 60
		o = append(o, "reset_after_seconds", int(time.Until(reset).Seconds()))
	}
	return o
}

func (u *usedQuota) credits() object {
	return object{"has_credits", u.Credits != "", "unlimited", false, "balance", orNil(u.Credits)}
}

// usage is the document of /backend-api/wham/usage.
func (q *quotas) usage(account string) object {
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.current(account, time.Now())
	if u == nil {
		u = &usedQuota{plan: "pro", since: time.Now()}
	}
	limited := u.percent() >= 100
	return object{
		"plan_type", u.plan,
		"rate_limit", object{
			"allowed", !limited, "limit_reached", limited,
			"primary_window", u.window(u.Primary, u.percent(), "limit_window_seconds"),
			"secondary_window", u.window(u.Secondary, 0, "limit_window_seconds"),
		},
		"credits", u.credits(),
		"rate_limit_reset_credits", object{"available_count", 0},
		"additional_rate_limits", []any{},
	}
}
