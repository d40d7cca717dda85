package account

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestB44_ResetHint(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := header
	message := func(text string) string { return `{"message":"` + text + `"}` }
	const full = "X-Codex-Primary-Used-Percent"
	cases := []struct {
		name   string
		header http.Header
		body   string
		want   time.Duration // 0 = no hint
	}{
		{"nothing", h(), ``, 0},
		{"seconds", h("Retry-After", "7"), ``, 7 * time.Second},
		{"seconds with blanks", h("Retry-After", " 7 "), ``, 7 * time.Second},
		{"fraction", h("Retry-After", "0.25"), ``, 250 * time.Millisecond},
		{"date", h("Retry-After", "Sun, 01 Mar 2026 12:02:00 GMT"), ``, 2 * time.Minute},
		{"past date", h("Retry-After", "Sun, 01 Mar 2026 11:00:00 GMT"), ``, 0},
		{"zero", h("Retry-After", "0"), ``, 0},
		{"negative", h("Retry-After", "-5"), ``, 0},
		{"not a number", h("Retry-After", "NaN"), ``, 0},
		{"words", h("Retry-After", "soon"), ``, 0},
		{"infinite is not believed", h("Retry-After", "inf"), ``, 0},
		{"out of range", h("Retry-After", "1e999"), ``, 0},
		{"overflow is not believed", h("Retry-After", "99999999999999"), ``, 0},
		{"a year is not believed", h("Retry-After", "31622400"), ``, 0},
		{"an implausible one hides no other", h("Retry-After", "99999999"), `{"resets_in_seconds":60}`, time.Minute},
		{"milliseconds", h("Retry-After-Ms", "1500"), ``, 1500 * time.Millisecond},
		{"the later header", h("Retry-After", "2", "Retry-After-Ms", "1500"), ``, 2 * time.Second},
		{"resets_in_seconds", h(), `{"type":"usage_limit_reached","resets_in_seconds":3600}`, time.Hour},
		{"in a body", h(), `{"error":{"resets_in_seconds":3600}}`, time.Hour},
		{"reset_after_seconds", h(), `{"reset_after_seconds":90.5}`, 90500 * time.Millisecond},
		{"resets_at", h(), `{"resets_at":1772370000}`, time.Hour},
		{"resets_at with a fraction", h(), `{"resets_at":1772370000.25}`, time.Hour + 250*time.Millisecond},
		{"as text", h(), `{"resets_at":"1772370000"}`, time.Hour},
		{"reset_at", h(), `{"error":{"reset_at":1772370000}}`, time.Hour},
		{"milliseconds since the epoch", h(), `{"resets_at":1772370000000}`, time.Hour},
		{"RFC 3339", h(), `{"resets_at":"2026-03-01T14:00:00+01:00"}`, time.Hour},
		{"RFC 3339 with fractions", h(), `{"resets_at":"2026-03-01T12:00:01.5Z"}`, 1500 * time.Millisecond},
		{"resets_at in the past", h(), `{"resets_at":1772360000}`, 0},
		{"a duration where a time belongs", h(), `{"resets_at":3600}`, 0},
		{"microseconds since the epoch", h(), `{"resets_at":1772370000000000}`, 0},
		{"null", h(), `{"resets_at":null,"resets_in_seconds":null}`, 0},
		{"null in front of the error object", h(), `{"resets_at":null,"error":{"resets_at":1772370000}}`, time.Hour},
		{"no JSON", h(), `<html>`, 0},
		{"a month is cut to a week", h(), `{"resets_in_seconds":2592000}`, MaxCoolDown},
		{"the latest of all", h("Retry-After", "30"), `{"resets_in_seconds":60,"resets_at":1772366430}`, time.Minute},
		{"a window of the backend that is used up", h(full, "100", "X-Codex-Primary-Reset-At", "1772370000"), ``, time.Hour},
		{"the other window", h("X-Codex-Secondary-Used-Percent", "100.0", "X-Codex-Secondary-Reset-At", "1772370000"), ``, time.Hour},
		{"a window that is not used up", h(full, "99.9", "X-Codex-Primary-Reset-At", "1772370000"), ``, 0},
		{"a window of which nothing is known", h("X-Codex-Primary-Reset-At", "1772370000"), ``, 0},
		{"requests", h("X-Ratelimit-Reset-Requests", "6m0s"), ``, 6 * time.Minute},
		{"days", h("X-Ratelimit-Reset-Tokens", "1d2h"), ``, 26 * time.Hour},
		{"parts of a second", h("X-Ratelimit-Reset-Tokens", "250ms"), ``, 250 * time.Millisecond},
		{"fractions of seconds", h("X-Ratelimit-Reset-Requests", "8.64s"), ``, 8640 * time.Millisecond},
		{"plain seconds", h("X-Ratelimit-Reset-Requests", "12"), ``, 12 * time.Second},
		{"an epoch", h("X-Ratelimit-Reset-Requests", "1772370000"), ``, time.Hour},
		{"no duration", h("X-Ratelimit-Reset-Requests", "6m0s?"), ``, 0},
		{"no unit", h("X-Ratelimit-Reset-Requests", "6m0"), ``, 0},
		{"the later limit", h("X-Ratelimit-Reset-Requests", "1s", "X-Ratelimit-Reset-Tokens", "2s"), ``, 2 * time.Second},
		{"the limit that is used up", h("X-Ratelimit-Reset-Requests", "1s", "X-Ratelimit-Remaining-Requests", "0",
			"X-Ratelimit-Reset-Tokens", "6m"), ``, time.Second},
		{"a limit says less than Retry-After", h("Retry-After", "2", "X-Ratelimit-Reset-Tokens", "6m"), ``, 2 * time.Second},
		{"a limit says less than the message", h("X-Ratelimit-Reset-Tokens", "6m"), message("Please try again in 2s."), 2 * time.Second},
		{"a message", h(), message("Rate limit reached for x. Please try again in 2.5s. Visit y."), 2500 * time.Millisecond},
		{"a message with minutes", h(), message("Please try again in 1m2s."), 62 * time.Second},
		{"a message with milliseconds", h(), message("try again in 900ms"), 900 * time.Millisecond},
		{"a message in words", h(), message("Try again in 1 hour 20 minutes."), 80 * time.Minute},
		{"a message of another kind", h(), message("Please retry after 6 seconds."), 6 * time.Second},
		{"a message in a body", h(), `{"error":{"message":"Please try again in 7s"}}`, 7 * time.Second},
		{"a message says less than a field", h(), `{"message":"try again in 7s","resets_in_seconds":3}`, 3 * time.Second},
		{"a message without a time", h(), message("Please try again in a moment."), 0},
		{"a message with a number alone", h(), message("Please try again in 5"), 0},
		{"a message with a date", h(), message("try again at Nov 30th, 2026 12:53 AM."), 0},
		{"a message that is a number", h(), `{"message":5}`, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			until, ok := ResetHint(c.header.Get, []byte(c.body), now)
			got := time.Duration(0)
			if ok {
				got = until.Sub(now)
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func FuzzResetHint(f *testing.F) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f.Add("7", "1d2h", "100", `{"resets_at":1772370000}`)
	f.Add("Sun, 01 Mar 2026 12:02:00 GMT", "1e308", "NaN", `{"message":"try again in 1m2.5.s"}`)
	f.Add("-1", "99999999999999999999d", "", `{"error":{"resets_at":"2026-03-01T14:00:00+01:00"}}`)
	f.Fuzz(func(t *testing.T, retry, limit, percent, body string) {
		get := func(name string) string {
			switch {
			case strings.HasPrefix(name, "Retry-After"):
				return retry
			case strings.HasSuffix(name, "-Percent"):
				return percent
			default:
				return limit
			}
		}
		until, ok := ResetHint(get, []byte(body), now)
		if ok != !until.IsZero() {
			t.Fatalf("ok = %v with %s", ok, until)
		}
		if ok && (!until.After(now) || until.After(now.Add(MaxCoolDown))) {
			t.Fatalf("%s is not within (0, %s] from now", until.Sub(now), MaxCoolDown)
		}
	})
}
