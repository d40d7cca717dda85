package usage

import (
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/account"
)

const statusOK = http.StatusOK

// rejectedPause is how long an account is left alone whose login the usage endpoint
// rejects twice (clients.md 3.4).
const rejectedPause = 300 * time.Second

// closedCodes are of accounts that the provider has closed.
var closedCodes = map[string]bool{
	"account_deactivated": true, "account_suspended": true, "account_deleted": true, "deactivated_workspace": true,
}

// verdict is what an answer means.
type verdict struct {
	usage account.Usage
	// reason to leave the account alone; empty = none. until as account.CoolDown
	// takes it.
	reason string
	until  time.Time
	// after is when to ask again; 0 = as usual.
	after time.Duration
	// rejections in a row, this one included.
	rejections int
}

// judge says what an answer means. before is how many rejections in a row came
// before it; exists says whether the endpoint has ever answered for any account.
//
//   - 200 tells usage.
//   - 401 may be a token that is just being renewed: the second in a row, half a
//     minute later and with the same token, rejects the login.
//   - 402 and 404 say that the provider has closed the account, if they come twice;
//     404 only if the endpoint is known to exist, which not every base URL has. An
//     error code that says so needs no second answer.
//   - 403 alone says nothing about the account, and so does everything else. 429 is
//     heeded.
func judge(a Answer, now time.Time, before int, exists bool) verdict {
	if closedCodes[code(a.Body)] {
		return verdict{reason: account.ReasonDeactivated, rejections: before + 1}
	}
	switch a.Status {
	case http.StatusOK:
		return verdict{usage: account.UsageFromDocument(a.Body, now)}
	case http.StatusUnauthorized:
		return twice(before, account.ReasonAuthRejected, now.Add(rejectedPause))
	case http.StatusPaymentRequired:
		return twice(before, account.ReasonDeactivated, time.Time{})
	case http.StatusNotFound:
		if exists {
			return twice(before, account.ReasonDeactivated, time.Time{})
		}
	case http.StatusTooManyRequests:
		if until, ok := account.ResetHint(a.Header, a.Body, now); ok {
			return verdict{after: max(until.Sub(now), Interval)}
		}
	}
	return verdict{}
}

func twice(before int, reason string, until time.Time) verdict {
	if before == 0 {
		return verdict{after: again, rejections: 1}
	}
	return verdict{reason: reason, until: until, rejections: before + 1}
}

func code(body []byte) string {
	for _, path := range [...]string{"error.code", "detail.code", "code"} {
		if v := gjson.GetBytes(body, path); v.Type == gjson.String {
			return v.Str
		}
	}
	return ""
}
