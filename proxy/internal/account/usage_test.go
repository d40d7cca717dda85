package account

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	fiveHours = 5 * time.Hour
	oneWeek   = 7 * 24 * time.Hour
)

func TestB46_UsageFromHeaders(t *testing.T) {
	const p, s = "X-Codex-Primary-", "X-Codex-Secondary-"
	cases := []struct {
		name string
		get  map[string]string
		want []Window
	}{
		{"nothing is not 0 percent", nil, nil},
		{"both windows", map[string]string{
			p + "Used-Percent": "42", p + "Window-Minutes": "300", p + "Reset-At": "1772370000",
			s + "Used-Percent": "7.5", s + "Window-Minutes": "10080",
		}, []Window{{"Primary", 42, fiveHours, noon.Add(time.Hour)}, {"Secondary", 7.5, oneWeek, time.Time{}}}},
		{"zero is known", map[string]string{p + "Used-Percent": "0", p + "Window-Minutes": "300"}, []Window{{"Primary", 0, fiveHours, time.Time{}}}},
		{"more than all", map[string]string{p + "Used-Percent": "104", p + "Window-Minutes": "300"}, []Window{{"Primary", 100, fiveHours, time.Time{}}}},
		{"a window that cannot be told apart", map[string]string{p + "Used-Percent": "42"}, nil},
		{"no share", map[string]string{p + "Used-Percent": "much", p + "Window-Minutes": "300"}, nil},
		{"a negative share", map[string]string{p + "Used-Percent": "-1", p + "Window-Minutes": "300"}, nil},
		{"no number", map[string]string{p + "Used-Percent": "NaN", p + "Window-Minutes": "300"}, nil},
		{"a length without end", map[string]string{p + "Used-Percent": "1", p + "Window-Minutes": "1e300"}, nil},
		{"a reset that is past", map[string]string{p + "Used-Percent": "1", p + "Window-Minutes": "300", p + "Reset-At": "1772360000"},
			[]Window{{"Primary", 1, fiveHours, time.Time{}}}},
		{"monthly alone", map[string]string{"X-Codex-Monthly-Used-Percent": "3", "X-Codex-Monthly-Window-Minutes": "43200"},
			[]Window{{"Monthly", 3, 30 * 24 * time.Hour, time.Time{}}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := header()
			for k, v := range c.get {
				h.Set(k, v)
			}
			if diff := cmp.Diff(c.want, UsageFromHeaders(h.Get, noon).Windows); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestB46_UsageFromEvent(t *testing.T) {
	primary := []Window{{"Primary", 42, fiveHours, noon.Add(time.Hour)}}
	const windows = `"rate_limits":{"allowed":true,"primary":{"used_percent":42,"window_minutes":300,"reset_at":1772370000},"secondary":null}}`
	for name, c := range map[string]struct {
		event string
		want  []Window
	}{
		"as Codex gets it":     {`{"type":"codex.rate_limits","plan_type":"pro",` + windows, primary},
		"of the plan by name":  {`{"type":"codex.rate_limits","limit_id":"codex",` + windows, primary},
		"of one model":         {`{"type":"codex.rate_limits","limit_id":"codex_small",` + windows, nil},
		"another event":        {`{"type":"response.created",` + windows, nil},
		"the other spelling":   {`{"type":"codex.rate_limits","rate_limits":{"primary":{"used_percent":42,"window_minutes":300,"resets_at":1772370000}}}`, primary},
		"without windows":      {`{"type":"codex.rate_limits","rate_limits":null}`, nil},
		"not an object":        {`[]`, nil},
		"not JSON":             {`{"type":"codex.rate_limits"`, nil},
		"no share":             {`{"type":"codex.rate_limits","rate_limits":{"primary":{"used_percent":null,"window_minutes":300}}}`, nil},
		"only a monthly one":   {`{"type":"codex.rate_limits","rate_limits":{"primary":{"used_percent":9,"window_minutes":43200}}}`, []Window{{"Primary", 9, 30 * 24 * time.Hour, time.Time{}}}},
		"a date, not a number": {`{"type":"codex.rate_limits","rate_limits":{"primary":{"used_percent":42,"window_minutes":300,"reset_at":"2026-03-01T13:00:00Z"}}}`, primary},
	} {
		t.Run(name, func(t *testing.T) {
			got := UsageFromEvent([]byte(c.event), noon)
			if diff := cmp.Diff(c.want, got.Windows); diff != "" || got.Refused {
				t.Errorf("refused = %v, -want +got\n%s", got.Refused, diff)
			}
		})
	}
}

func TestUsageFromDocument(t *testing.T) {
	doc := func(limits string) string { return `{"plan_type":"pro","credits":{},"rate_limit":` + limits + `}` }
	const windows = `"primary_window":{"used_percent":100,"limit_window_seconds":18000,"reset_after_seconds":3600,"reset_at":1},
		"secondary_window":{"used_percent":12,"limit_window_seconds":604800,"reset_at":1772452800}`
	both := []Window{{"Primary", 100, fiveHours, noon.Add(time.Hour)}, {"Secondary", 12, oneWeek, noon.Add(24 * time.Hour)}}
	for name, c := range map[string]struct {
		document string
		want     Usage
	}{
		"refused":                   {doc(`{"allowed":false,"limit_reached":true,` + windows + `}`), Usage{both, true}},
		"full, and paid by credits": {doc(`{"allowed":true,"limit_reached":true,` + windows + `}`), Usage{both, false}},
		"limit reached, no more":    {doc(`{"limit_reached":true,` + windows + `}`), Usage{both, true}},
		"neither is said":           {doc(`{` + windows + `}`), Usage{both, false}},
		"no limits":                 {doc(`null`), Usage{}},
		"nothing":                   {``, Usage{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, UsageFromDocument([]byte(c.document), noon)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestB46_UnknownUsageStaysUnknown(t *testing.T) {
	var u usage
	if l := u.load(noon); l.short >= 0 || l.long >= 0 {
		t.Errorf("of an account nobody spoke of: %+v", l)
	}
	u.learn(Usage{Windows: []Window{{"Primary", 40, fiveHours, noon.Add(time.Hour)}}}, noon)
	u.learn(Usage{Windows: []Window{{"Secondary", 70, oneWeek, time.Time{}}}}, noon)
	if l := u.load(noon); l.short != 40 || l.long != 70 || !l.shortReset.Equal(noon.Add(time.Hour)) || !l.longReset.IsZero() {
		t.Errorf("after both were told: %+v", l)
	}
	if l := u.load(noon.Add(time.Hour)); l.short >= 0 || l.long != 70 {
		t.Errorf("after the short window ended: %+v", l)
	}
	if l := u.load(noon.Add(oneWeek)); l.long >= 0 {
		t.Errorf("a week after anything was said: %+v", l)
	}
	u.learn(Usage{Windows: []Window{{"Primary", 3, fiveHours, noon.Add(6 * time.Hour)}}}, noon.Add(time.Hour))
	if w := u.current(noon.Add(time.Hour)); len(w) != 2 || w[1].Used != 3 {
		t.Errorf("the window that began anew: %+v", w)
	}
	u.learn(Usage{Windows: []Window{{"Primary", 5, oneWeek, time.Time{}}}}, noon)
	if w := u.current(noon); len(w) != 1 || w[0].Used != 5 {
		t.Errorf("after the plan changed: %+v", w)
	}
	for i := range 10 {
		u.learn(Usage{Windows: []Window{{string(rune('A' + i)), 1, time.Duration(i+1) * time.Minute, time.Time{}}}}, noon)
	}
	if len(u.windows) > maxWindows {
		t.Errorf("%d windows are remembered", len(u.windows))
	}
}

func TestFullWindow(t *testing.T) {
	var u usage
	u.learn(Usage{Windows: []Window{
		{"Primary", 100, fiveHours, noon.Add(time.Hour)}, {"Secondary", 99, oneWeek, noon.Add(24 * time.Hour)},
	}}, noon)
	if until := u.fullUntil(noon); !until.Equal(noon.Add(time.Hour)) {
		t.Error(until)
	}
	u.learn(Usage{Windows: []Window{{"Secondary", 100, oneWeek, noon.Add(24 * time.Hour)}}}, noon)
	if until := u.fullUntil(noon); !until.Equal(noon.Add(24 * time.Hour)) {
		t.Errorf("with both: %s", until)
	}
}
