package account

import (
	"net/http"
	"testing"
	"time"
)

func TestResetHint(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	h := func(pairs ...string) http.Header {
		header := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			header.Set(pairs[i], pairs[i+1])
		}
		return header
	}
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
		{"infinite", h("Retry-After", "inf"), ``, MaxCoolDown},
		{"out of range", h("Retry-After", "1e999"), ``, 0},
		{"overflow", h("Retry-After", "99999999999999"), ``, MaxCoolDown},
		{"milliseconds", h("Retry-After-Ms", "1500"), ``, 1500 * time.Millisecond},
		{"the later header", h("Retry-After", "2", "Retry-After-Ms", "1500"), ``, 2 * time.Second},
		{"resets_in_seconds", h(), `{"type":"usage_limit_reached","resets_in_seconds":3600}`, time.Hour},
		{"in a body", h(), `{"error":{"resets_in_seconds":3600}}`, time.Hour},
		{"resets_at", h(), `{"resets_at":1772370000}`, time.Hour},
		{"as text", h(), `{"resets_at":"1772370000"}`, time.Hour},
		{"resets_at in the past", h(), `{"resets_at":1772360000}`, 0},
		{"resets_at in milliseconds is not believed", h(), `{"resets_at":1772370000000}`, 0},
		{"null", h(), `{"resets_at":null,"resets_in_seconds":null}`, 0},
		{"no JSON", h(), `<html>`, 0},
		{"a month is cut to a week", h(), `{"resets_in_seconds":2592000}`, MaxCoolDown},
		{"the latest of all", h("Retry-After", "30"), `{"resets_in_seconds":60,"resets_at":1772366430}`, time.Minute},
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
