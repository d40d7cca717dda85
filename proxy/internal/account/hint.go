package account

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// maxEpochSeconds tells seconds from milliseconds: as seconds it is the year
// 5138. A larger resets_at is not what it says and is not believed.
const maxEpochSeconds = 1e11

// ResetHint reads when the upstream says to come back: header Retry-After
// (seconds or a date), header retry-after-ms, and in the error object, or in a
// body around it, resets_at (Unix seconds) and resets_in_seconds. The latest of
// them counts, at most MaxCoolDown from now; ok is false if none lies ahead.
// get returns a header's value by its name, "" if it is absent.
func ResetHint(get func(name string) string, errorObject []byte, now time.Time) (until time.Time, ok bool) {
	hints := [...]time.Time{
		retryAfter(get("Retry-After"), now),
		in(number(get("Retry-After-Ms"))/1e3, now),
		at(field(errorObject, "resets_at")),
		in(field(errorObject, "resets_in_seconds"), now),
	}
	for _, h := range hints {
		if h.After(now) && h.After(until) {
			until = h
		}
	}
	if limit := now.Add(MaxCoolDown); until.After(limit) {
		until = limit
	}
	return until, !until.IsZero()
}

func retryAfter(value string, now time.Time) time.Time {
	if date, err := http.ParseTime(strings.TrimSpace(value)); err == nil {
		return date
	}
	return in(number(value), now)
}

// in is now plus seconds; zero for what is no positive number.
func in(seconds float64, now time.Time) time.Time {
	if !(seconds > 0) { // also NaN
		return time.Time{}
	}
	// Before the conversion: a duration of more than 292 years overflows.
	seconds = min(seconds, 2*MaxCoolDown.Seconds())
	return now.Add(time.Duration(math.Ceil(seconds*1e3)) * time.Millisecond)
}

func at(epoch float64) time.Time {
	if !(epoch > 0 && epoch < maxEpochSeconds) {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Ceil(epoch * 1e3)))
}

func number(text string) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0
	}
	return n
}

// field reads a number from the error object or from a body {"error": object}.
// Some gateways write numbers as strings.
func field(raw []byte, name string) float64 {
	for _, path := range [...]string{name, "error." + name} {
		switch v := gjson.GetBytes(raw, path); v.Type {
		case gjson.Number:
			return v.Num
		case gjson.String:
			return number(v.Str)
		default:
		}
	}
	return 0
}
