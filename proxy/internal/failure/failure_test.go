package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

func TestKindsKeepTheRulesOfClients(t *testing.T) {
	for code, k := range kinds {
		if k.status < 400 || k.errorType == "" {
			t.Errorf("%s: status %d, type %q", code, k.status, k.errorType)
		}
		if k.status == http.StatusRequestEntityTooLarge {
			t.Errorf("%s: 413 makes Codex resend in full and change its transport", code)
		}
		if k.status == http.StatusUnauthorized && code != InvalidAPIKey {
			t.Errorf("%s: 401 is for the client's own key alone", code)
		}
		if k.status == http.StatusTooManyRequests && k.retryAfter == 0 {
			t.Errorf("%s: Codex ends its turn at a 429 without a hint", code)
		}
	}
}

func TestRetryAfterIsTruthful(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		0: "", 100 * time.Millisecond: "1", 7 * time.Second: "7", 7100 * time.Millisecond: "8", time.Hour: "300",
	} {
		w := httptest.NewRecorder()
		New(InternalError, "x", After(wait)).writeHTTP(w, time.Now(), 0)
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: Retry-After %q, want %q", wait, got, want)
		}
		if ms := w.Header().Get("Retry-After-Ms"); (ms == "") != (want == "") || want != "" && ms != want+"000" {
			t.Errorf("%v: retry-after-ms %q", wait, ms)
		}
	}
}

// Those who are refused together must not come back together.
func TestRetryAfterIsSpread(t *testing.T) {
	const almostOne = 1 - 1e-9
	for wait, want := range map[time.Duration][2]string{
		time.Second:      {"1", "1099"},
		10 * time.Second: {"10", "10999"},
		40 * time.Second: {"43", "43999"},
		time.Minute:      {"64", "64999"},
		time.Hour:        {"304", "304999"},
	} {
		w := httptest.NewRecorder()
		New(InternalError, "x", After(wait)).writeHTTP(w, time.Now(), almostOne)
		if got := [2]string{w.Header().Get("Retry-After"), w.Header().Get("Retry-After-Ms")}; got != want {
			t.Errorf("%v: %v, want %v", wait, got, want)
		}
	}
	seen := map[string]bool{}
	for range 100 {
		w := httptest.NewRecorder()
		New(InternalError, "x", After(time.Minute)).WriteHTTP(w)
		seen[w.Header().Get("Retry-After-Ms")] = true
	}
	if len(seen) < 50 {
		t.Errorf("a hundred clients come back at %d moments", len(seen))
	}
}

func TestWhatAnErrorSaysOfItsRepetition(t *testing.T) {
	for name, tt := range map[string]struct {
		f               *Failure
		after           bool
		dispatch, retry string
	}{
		"nothing was sent":          {New(QueueTimeout, "x", Scope("http")), true, "none", "safe"},
		"a part was sent":           {New(UpstreamConnect, "x", Dispatched(DispatchPartial)), false, "partial", "unsafe"},
		"it was sent":               {New(NoAccounts, "x", Dispatched(DispatchSent)), false, "sent", "unsafe"},
		"the answer had begun":      {New(NoAccounts, "x", Dispatched(DispatchAcked)), false, "acked", "unsafe"},
		"nobody says":               {New(NoAccounts, "x"), true, "", ""},
		"the request is at fault":   {New(InvalidJSON, "x"), false, "", "never"},
		"even if nothing was sent":  {New(PayloadTooLarge, "x", Dispatched(DispatchNone)), false, "none", "never"},
		"it did not arrive in time": {New(RequestTimeout, "x", Dispatched(DispatchNone)), false, "none", "safe"},
		"it may have left":          {New(RequestTimeout, "x"), false, "", ""},
		"a quota":                   {New(UsageLimitReached, "x", Dispatched(DispatchNone)), true, "none", "safe"},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			tt.f.WriteHTTP(w)
			h := w.Header()
			if (h.Get("Retry-After") != "") != tt.after || h.Get("X-Causeway-Dispatch") != tt.dispatch || h.Get("X-Causeway-Retry") != tt.retry {
				t.Errorf("%v", h)
			}
			if got := gjson.Get(w.Body.String(), "error.causeway.dispatch").Str; got != tt.dispatch {
				t.Errorf("%s", w.Body)
			}
		})
	}
}

func TestAnErrorNamesTheDeadline(t *testing.T) {
	f := New(EventlessTimeout, "late", Deadline("firstEvent", "caller"), Dispatched(DispatchSent))
	w := httptest.NewRecorder()
	f.WriteHTTP(w)
	for form, raw := range map[string]string{"body": gjson.Get(w.Body.String(), "error").Raw,
		"event": gjson.GetBytes(f.Event("r", -1, time.Now()), "response.error").Raw} {
		if gjson.Get(raw, "causeway.deadline_kind").Str != "firstEvent" || gjson.Get(raw, "causeway.deadline_source").Str != "caller" {
			t.Errorf("%s: %s", form, raw)
		}
	}
}

func TestWriteHTTP(t *testing.T) {
	now := time.Unix(1_000, 0)
	w := httptest.NewRecorder()
	New(UsageLimitReached, "full", Param("model"), Reason("quota"), ResetsAt(now.Add(90*time.Second))).writeHTTP(w, now, 0)
	body := w.Body.String()
	for path, want := range map[string]string{
		"error.code": UsageLimitReached, "error.message": "full", "error.param": "model", "error.reason": "quota",
		"error.resets_at": "1090", "error.resets_in_seconds": "90",
	} {
		if got := gjson.Get(body, path).String(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if w.Code != http.StatusTooManyRequests || !json.Valid(w.Body.Bytes()) || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %s", w.Code, body)
	}
}

func TestLimitsAreNamed(t *testing.T) {
	w := httptest.NewRecorder()
	New(BulkheadFull, "full", Scope("account"), After(1500*time.Millisecond)).WriteHTTP(w)
	body := w.Body.String()
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "2" ||
		gjson.Get(body, "error.causeway.limit_scope").Str != "account" || gjson.Get(body, "error.causeway.dispatch").Str != DispatchNone {
		t.Errorf("%d, Retry-After %q, %s", w.Code, w.Header().Get("Retry-After"), body)
	}
	w = httptest.NewRecorder()
	New(StreamIncomplete, "cut").WriteHTTP(w)
	if strings.Contains(w.Body.String(), "causeway") {
		t.Errorf("an empty object: %s", w.Body.String())
	}
}

func TestUpstreamObjectIsPassedOn(t *testing.T) {
	f := New(UpstreamError, "x")
	f.Raw = json.RawMessage(`{"code":"weird","message":"m","extra":[1]}`)
	w := httptest.NewRecorder()
	f.WriteHTTP(w)
	if got := strings.TrimSpace(w.Body.String()); got != `{"error":{"code":"weird","message":"m","extra":[1]}}` {
		t.Error(got)
	}
}

func TestEvent(t *testing.T) {
	now := time.Unix(5, 0)
	raw := New(StreamIncomplete, "cut").Event("resp_1", 7, now)
	for path, want := range map[string]string{
		"type": "response.failed", "sequence_number": "7", "response.id": "resp_1", "response.status": "failed",
		"response.error.code": StreamIncomplete, "response.created_at": "5", "response.object": "response",
	} {
		if got := gjson.GetBytes(raw, path).String(); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if gjson.GetBytes(New(StreamIncomplete, "cut").Event("r", -1, now), "sequence_number").Exists() {
		t.Error("a stream without numbers got one")
	}
}

func TestB60_ForeignErrorsKeepTheirTextInTheLog(t *testing.T) {
	f := From(errors.New("dial with sk-canary"))
	w := httptest.NewRecorder()
	f.WriteHTTP(w)
	if f.Code != InternalError || strings.Contains(w.Body.String()+f.Error(), "canary") {
		t.Errorf("%s", w.Body.String())
	}
	wrapped := fmt.Errorf("serving: %w", New(NoAccounts, "none"))
	if From(wrapped).Code != NoAccounts {
		t.Error("a wrapped failure was not found")
	}
	if New("never heard of", "x").Status != http.StatusBadGateway {
		t.Error("an unknown code has no status")
	}
}
