package account

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Window is how much of one quota window an account has used.
type Window struct {
	// Name is the provider's: Primary, Secondary or Monthly.
	Name string
	// Used is in percent; above 100 it is 100.
	Used float64
	// Length of the window; never 0. It tells windows apart, not their position:
	// some plans have only a monthly window, in the first place.
	Length time.Duration
	// ResetsAt is when the window begins anew; zero = not known.
	ResetsAt time.Time
}

// long windows are a day or longer; what is left of them is worth saving. Shorter
// ones come back by themselves while people wait.
func (w Window) long() bool { return w.Length >= longWindow }

const longWindow = 24 * time.Hour

// Usage is what an upstream tells at one moment of the windows of an account. A
// window that is not listed is not known, which is not the same as unused.
type Usage struct {
	Windows []Window
	// Refused says that the upstream takes no more turns. Only the usage document
	// can say so; a window at 100 % alone does not, since plans with credits go on.
	Refused bool
}

// Known says whether anything was told at all.
func (u Usage) Known() bool { return len(u.Windows) > 0 }

// windowNames are the names of windows on the wire.
var windowNames = [...]struct{ wire, name string }{
	{"primary", "Primary"}, {"secondary", "Secondary"}, {"monthly", "Monthly"},
}

// maxWindowLength is more than the longest month.
const maxWindowLength = plausible

// UsageFromHeaders reads x-codex-primary-used-percent, -window-minutes and
// -reset-at, and the same of secondary and monthly, of a response or of a
// handshake.
func UsageFromHeaders(get func(name string) string, now time.Time) Usage {
	var u Usage
	for _, w := range windowNames {
		at := "X-Codex-" + w.name + "-"
		used := get(at + "Used-Percent")
		if strings.TrimSpace(used) == "" {
			continue
		}
		u.add(Window{
			Name: w.name, Used: percent(used), Length: minutes(number(get(at + "Window-Minutes"))),
			ResetsAt: ahead(epoch(number(get(at+"Reset-At"))), now),
		})
	}
	return u
}

// UsageFromEvent reads an event codex.rate_limits. One with the limits of a
// single model (its limit_id is not the plan's own) says nothing about the
// account and is left out.
func UsageFromEvent(data []byte, now time.Time) Usage {
	root := gjson.ParseBytes(data)
	if root.Get("type").Str != "codex.rate_limits" || !planLimit(root.Get("limit_id")) {
		return Usage{}
	}
	return usageFrom(root.Get("rate_limits"), "", now)
}

// UsageFromDocument reads the answer of the usage endpoint of the ChatGPT
// backend.
func UsageFromDocument(data []byte, now time.Time) Usage {
	limits := gjson.GetBytes(data, "rate_limit")
	u := usageFrom(limits, "_window", now)
	allowed := limits.Get("allowed")
	u.Refused = allowed.Type == gjson.False || !allowed.Exists() && limits.Get("limit_reached").Bool()
	return u
}

// planLimit: the limits of the plan have no identity, or this one.
func planLimit(id gjson.Result) bool { return id.Str == "" || id.Str == "codex" }

func usageFrom(limits gjson.Result, suffix string, now time.Time) Usage {
	var u Usage
	for _, w := range windowNames {
		v := limits.Get(w.wire + suffix)
		used := v.Get("used_percent")
		if used.Type != gjson.Number && used.Type != gjson.String {
			continue
		}
		u.add(Window{Name: w.name, Used: percent(used.String()), Length: length(v), ResetsAt: reset(v, now)})
	}
	return u
}

func length(v gjson.Result) time.Duration {
	if s := amount(v.Get("limit_window_seconds")); s > 0 {
		return minutes(s / 60)
	}
	return minutes(amount(v.Get("window_minutes")))
}

// reset prefers the relative form: it does not depend on two clocks.
func reset(v gjson.Result, now time.Time) time.Time {
	for _, name := range [...]string{"reset_after_seconds", "resets_in_seconds"} {
		if s := amount(v.Get(name)); s > 0 {
			return ahead(in(s, now), now)
		}
	}
	for _, name := range [...]string{"reset_at", "resets_at"} {
		if at := moment(v.Get(name)); !at.IsZero() {
			return ahead(at, now)
		}
	}
	return time.Time{}
}

// add takes in a window that can be told apart.
func (u *Usage) add(w Window) {
	if w.Used >= 0 && w.Length > 0 {
		u.Windows = append(u.Windows, w)
	}
}

// percent is negative for what is no share.
func percent(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(n >= 0) {
		return -1
	}
	return min(n, fullPercent)
}

func minutes(n float64) time.Duration {
	if !(n > 0 && n < maxWindowLength.Minutes()) {
		return 0
	}
	return time.Duration(n * float64(time.Minute))
}

// ahead is at, or zero for what is past or implausible.
func ahead(at, now time.Time) time.Time {
	if at.After(now) && at.Sub(now) < plausible {
		return at
	}
	return time.Time{}
}

// usage is what is remembered of an account's windows.
type usage struct {
	windows []seen
}

// seen is a window as it was told last.
type seen struct {
	Window
	at time.Time
}

// maxWindows bounds what is remembered of one account.
const maxWindows = 4

// learn takes in what was told now. Windows that were not mentioned stay as they
// were: a header may tell of one and an event of the other. A name that comes with
// another length is of another plan.
func (u *usage) learn(told Usage, now time.Time) {
	for _, w := range told.Windows {
		u.windows = slices.DeleteFunc(u.windows, func(s seen) bool { return s.Length == w.Length || s.Name == w.Name })
		if len(u.windows) < maxWindows {
			u.windows = append(u.windows, seen{w, now})
		}
	}
}

// current lists what is still known. A window that has begun anew since, or of
// which nobody has spoken for its whole length, is not known any more.
func (u *usage) current(now time.Time) []Window {
	var list []Window
	for _, s := range u.windows {
		if s.known(now) {
			list = append(list, s.Window)
		}
	}
	return list
}

func (s *seen) known(now time.Time) bool {
	if s.ResetsAt.IsZero() {
		return now.Sub(s.at) < s.Length
	}
	return now.Before(s.ResetsAt)
}

// load sums up the windows for the selection.
type load struct {
	// short and long are the highest use of a window of that kind in percent;
	// below 0 = not known.
	short, long float64
	// longReset and shortReset are the earliest ends; zero = not known.
	shortReset, longReset time.Time
}

func (u *usage) load(now time.Time) load {
	sum := load{short: -1, long: -1}
	for i := range u.windows {
		s := &u.windows[i]
		if !s.known(now) {
			continue
		}
		used, end := &sum.short, &sum.shortReset
		if s.long() {
			used, end = &sum.long, &sum.longReset
		}
		*used = max(*used, s.Used)
		if !s.ResetsAt.IsZero() {
			*end = earlier(*end, s.ResetsAt)
		}
	}
	return sum
}

// fullUntil is the latest end of a window that is used up; zero = none is, or
// nobody told its end. It counts only next to a refusal.
func (u *usage) fullUntil(now time.Time) (until time.Time) {
	for _, w := range u.current(now) {
		if w.Used >= fullPercent && w.ResetsAt.After(until) {
			until = w.ResetsAt
		}
	}
	return until
}
