package account

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

const (
	// maxEpochSeconds tells seconds from milliseconds: as seconds it is the year
	// 5138, as milliseconds March 1973.
	maxEpochSeconds = 1e11
	// minEpochSeconds tells an epoch from a plain number of seconds where a format
	// allows both: as an epoch it is September 2001, as a duration 31 years.
	minEpochSeconds = 1e9
	// plausible bounds a hint: no window of a provider is longer than a year. What
	// lies further ahead is a mistake and is not believed at all.
	plausible = 366 * 24 * time.Hour
)

// ResetHint reads when the upstream says to come back. It is of use only for an
// answer that refuses a turn: most formats tell of windows that are not used up
// as well. In order of trust:
//
//  1. what is said about this refusal: header Retry-After (seconds or a date),
//     header retry-after-ms; in the error object, or in a body around it,
//     resets_at or reset_at (Unix seconds or milliseconds, or RFC 3339),
//     resets_in_seconds and reset_after_seconds; header
//     x-codex-primary-reset-at, or secondary, whose window is used up. The latest
//     of them counts;
//  2. "try again in 1m2s" in the message;
//  3. header x-ratelimit-reset-requests or -tokens (see limitReset), which say
//     when a limit is full again, and so later than needed.
//
// until is at most MaxCoolDown from now; ok is false if no hint lies ahead. get
// returns a header's value by its name, "" if it is absent.
func ResetHint(get func(name string) string, errorObject []byte, now time.Time) (until time.Time, ok bool) {
	for _, level := range [...]func(func(string) string, []byte, time.Time) []time.Time{saidOfRefusal, saidInMessage, saidOfLimits} {
		if until = latestAhead(level(get, errorObject, now), now); !until.IsZero() {
			break
		}
	}
	if limit := now.Add(MaxCoolDown); until.After(limit) {
		until = limit
	}
	return until, !until.IsZero()
}

func saidOfRefusal(get func(string) string, raw []byte, now time.Time) []time.Time {
	return []time.Time{
		retryAfter(get("Retry-After"), now),
		in(number(get("Retry-After-Ms"))/1e3, now),
		moment(member(raw, "resets_at")),
		moment(member(raw, "reset_at")),
		in(amount(member(raw, "resets_in_seconds")), now),
		in(amount(member(raw, "reset_after_seconds")), now),
		usedUpUntil(get, "primary"),
		usedUpUntil(get, "secondary"),
	}
}

func saidInMessage(_ func(string) string, raw []byte, now time.Time) []time.Time {
	return []time.Time{in(tryAgainIn(member(raw, "message").Str), now)}
}

// saidOfLimits prefers the limit of which nothing is left.
func saidOfLimits(get func(string) string, _ []byte, now time.Time) []time.Time {
	var used, all []time.Time
	for _, unit := range [...]string{"Requests", "Tokens"} {
		reset := limitReset(get("X-Ratelimit-Reset-"+unit), now)
		all = append(all, reset)
		if strings.TrimSpace(get("X-Ratelimit-Remaining-"+unit)) == "0" {
			used = append(used, reset)
		}
	}
	if !latestAhead(used, now).IsZero() {
		return used
	}
	return all
}

func latestAhead(hints []time.Time, now time.Time) (latest time.Time) {
	for _, h := range hints {
		if h.After(now) && h.Sub(now) < plausible && h.After(latest) {
			latest = h
		}
	}
	return latest
}

func retryAfter(value string, now time.Time) time.Time {
	if date, err := http.ParseTime(strings.TrimSpace(value)); err == nil {
		return date
	}
	return in(number(value), now)
}

// usedUpUntil is when a window of the ChatGPT backend begins anew, if the headers
// say that it is used up.
func usedUpUntil(get func(string) string, window string) time.Time {
	if number(get("X-Codex-"+window+"-Used-Percent")) < fullPercent {
		return time.Time{}
	}
	return epoch(number(get("X-Codex-" + window + "-Reset-At")))
}

// limitReset reads "6m0s", "1d2h", "250ms", plain seconds or a Unix time.
func limitReset(value string, now time.Time) time.Time {
	if n := number(value); n != 0 {
		if n >= minEpochSeconds {
			return epoch(n)
		}
		return in(n, now)
	}
	seconds, rest := span(value)
	if strings.TrimSpace(rest) != "" {
		return time.Time{}
	}
	return in(seconds, now)
}

// in is now plus seconds; zero for what is no positive number.
func in(seconds float64, now time.Time) time.Time {
	if !(seconds > 0) { // also NaN
		return time.Time{}
	}
	// Before the conversion: a duration of more than 292 years overflows.
	seconds = min(seconds, 2*plausible.Seconds())
	return now.Add(time.Duration(math.Ceil(seconds*1e3)) * time.Millisecond)
}

// epoch is a Unix time in seconds or milliseconds; zero for what is neither.
func epoch(n float64) time.Time {
	switch {
	case !(n > 0 && n < maxEpochSeconds*1e3):
		return time.Time{}
	case n < maxEpochSeconds:
		n *= 1e3
	}
	return time.UnixMilli(int64(math.Ceil(n)))
}

// moment is a point in time as providers write it: a number or text with one,
// or RFC 3339.
func moment(v gjson.Result) time.Time {
	if v.Type == gjson.String {
		if date, err := time.Parse(time.RFC3339, strings.TrimSpace(v.Str)); err == nil {
			return date
		}
	}
	return epoch(amount(v))
}

// amount is a number, or text with one: some gateways write numbers so.
func amount(v gjson.Result) float64 {
	switch v.Type {
	case gjson.Number:
		return v.Num
	case gjson.String:
		return number(v.Str)
	default:
		return 0
	}
}

func number(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0
	}
	return n
}

// member reads from the error object or from a body {"error": object}.
func member(raw []byte, name string) gjson.Result {
	if v := gjson.GetBytes(raw, name); v.Exists() && v.Type != gjson.Null {
		return v
	}
	return gjson.GetBytes(raw, "error."+name)
}

// maxMessage bounds how much of a message is looked through.
const maxMessage = 2 << 10

// tryAgainIn is the seconds in "Please try again in 1m2.5s." and its like; 0 =
// the message names none.
func tryAgainIn(message string) float64 {
	message = strings.ToLower(message[:min(len(message), maxMessage)])
	for _, phrase := range [...]string{"again in", "retry after", "retry in"} {
		if _, rest, found := strings.Cut(message, phrase); found {
			seconds, _ := span(rest)
			return seconds
		}
	}
	return 0
}

// unitSeconds are the units of a span.
var unitSeconds = map[string]float64{
	"ms": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
	"s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
	"m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
	"h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600,
	"d": 86400, "day": 86400, "days": 86400,
}

// span reads a duration at the start of text: numbers, each with a unit, next to
// each other or apart ("1d2h", "1 hour 20 minutes"). rest is what follows it.
func span(text string) (seconds float64, rest string) {
	rest = text
	for {
		at := strings.TrimLeft(rest, " ")
		digits := prefix(at, func(c byte) bool { return c >= '0' && c <= '9' || c == '.' })
		word := strings.TrimLeft(at[len(digits):], " ")
		name := prefix(word, func(c byte) bool { return c >= 'a' && c <= 'z' })
		unit, known := unitSeconds[name]
		// A dot may end a sentence; it is no part of a number then.
		n, err := strconv.ParseFloat(digits, 64)
		if !known || err != nil {
			return seconds, rest
		}
		seconds, rest = seconds+n*unit, word[len(name):]
	}
}

func prefix(text string, in func(byte) bool) string {
	for i := range len(text) {
		if !in(text[i]) {
			return text[:i]
		}
	}
	return text
}

// fullPercent is a window that is used up.
const fullPercent = 100
