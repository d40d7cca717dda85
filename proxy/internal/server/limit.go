package server

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// errorPeek is how much of a refusal is read for its hints; error objects are
// far smaller.
const errorPeek = 64 << 10

// quotaCodes are of limits that do not go away by waiting a moment.
var quotaCodes = map[string]bool{
	"insufficient_quota": true, "usage_limit_reached": true, "usage_not_included": true, "quota_exceeded": true,
}

// limited takes an account out of rotation until its limit resets, and passes
// the refusal on. Without Retry-After a 429 ends a Codex turn for good, so that
// one is added if the upstream gave its hint in another form.
func (p *pass) limited(res *http.Response) {
	body := peek(res)
	now := time.Now()
	until, known := account.ResetHint(res.Header.Get, body, now)
	p.lease.CoolDown(until, limitReason(body))
	p.server.log.InfoContext(p.r.Context(), "Upstream limit reached", "account", p.account, "reason", limitReason(body), "until", until)
	if known && res.Header.Get("Retry-After") == "" {
		wait := min(until.Sub(now), failure.MaxRetryAfter)
		res.Header.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	}
}

func limitReason(body []byte) string {
	for _, path := range [...]string{"error.code", "error.type"} {
		if quotaCodes[gjson.GetBytes(body, path).Str] {
			return account.ReasonQuotaExhausted
		}
	}
	return account.ReasonRateLimited
}

// peek reads the start of a body and puts it back.
func peek(res *http.Response) []byte {
	start, err := io.ReadAll(io.LimitReader(res.Body, errorPeek))
	rest := io.Reader(res.Body)
	if err != nil {
		rest = failing{err}
	}
	res.Body = joined{io.MultiReader(bytes.NewReader(start), rest), res.Body}
	return start
}

type joined struct {
	io.Reader
	io.Closer
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
