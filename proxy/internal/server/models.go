package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

const (
	// maxModels bounds the upstream's list, in bytes. Codex' catalogue carries
	// the base instructions of each model, some 20 KB each.
	maxModels = 16 << 20
	// modelsTime bounds the whole look-up; Codex waits for it at its start.
	modelsTime = 30 * time.Second
)

// models answers with the upstream's list, less what no account may use. Both
// paths and both kinds of client get the same form: OpenAI's list, and Codex'
// catalogue next to it.
func (s *Server) models(c *call) {
	ctx, cancel := context.WithTimeout(c.r.Context(), modelsTime)
	defer cancel()
	raw, header, err := s.fetchModels(ctx, c)
	var list []byte
	if err == nil {
		list, err = modelList(raw, allowedModels(c.rt.Bundle.Pool.Accounts))
	}
	if err != nil {
		f := failure.From(err)
		s.refuse(c, f)
		s.done(c, outcomeOf(f))
		return
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	if etag := header.Get("X-Models-Etag"); etag != "" {
		h.Set("X-Models-Etag", etag)
	}
	if id := header.Get(upstream.RequestIDHeader); id != "" {
		h.Set(upstream.RequestIDHeader, id)
	}
	_, _ = c.w.Write(list)
	s.done(c, telemetry.OutcomeOK)
}

func outcomeOf(f *failure.Failure) telemetry.Outcome {
	switch f.Code {
	case failure.UpstreamConnect:
		return telemetry.OutcomeConnect
	case failure.UpstreamAuth, failure.UpstreamError, failure.UpstreamProtocol:
		return telemetry.OutcomeUpstreamError
	case failure.RateLimitExceeded:
		return telemetry.OutcomeLimited
	default:
		return telemetry.OutcomeRefused
	}
}

// fetchModels asks the upstream on behalf of some account.
func (s *Server) fetchModels(ctx context.Context, c *call) ([]byte, http.Header, error) {
	lease, err := s.acquire(ctx, c, bulkhead.Background)
	if err != nil {
		return nil, nil, err
	}
	defer lease.Release()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.rt.Bundle.Pool.Provider.Endpoint+"/models", nil)
	if err != nil {
		return nil, nil, failure.New(failure.InternalError, "The pool's endpoint is not a URL.")
	}
	req.URL.RawQuery = c.r.URL.RawQuery
	req.Header = modelsHeader(c.r.Header)
	toUpstream(req.Header, c.id, lease.Account().Credential)
	res, err := s.upstream.of(c.rt).RoundTrip(req)
	if err != nil {
		return nil, nil, failure.New(failure.UpstreamConnect, "The upstream's list of models cannot be read.")
	}
	defer res.Body.Close()
	toClient(res.Header, c.id)
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxModels+1))
	switch {
	case err != nil:
		return nil, nil, failure.New(failure.UpstreamError, "The upstream's list of models ended early.")
	case len(raw) > maxModels:
		return nil, nil, failure.New(failure.UpstreamProtocol, "The upstream's list of models is too large.")
	case res.StatusCode == http.StatusOK:
		lease.Succeeded()
		return raw, res.Header, nil
	default:
		return nil, nil, s.modelsRefused(lease, res, raw)
	}
}

// modelsRefused says why there is no list. The upstream's status is not passed
// on: Codex reads a meaning into it that is about turns.
func (s *Server) modelsRefused(lease *account.Lease, res *http.Response, body []byte) error {
	now := time.Now()
	switch res.StatusCode {
	case http.StatusUnauthorized:
		lease.CoolDown(time.Time{}, account.ReasonAuthRejected)
		return failure.New(failure.UpstreamAuth, "The upstream rejected the credential of the account that was asked for its models.")
	case http.StatusTooManyRequests:
		until, known := account.ResetHint(res.Header.Get, body, now)
		lease.CoolDown(until, limitReason(body))
		f := failure.New(failure.RateLimitExceeded, "The account that was asked for its models has reached a limit.")
		if known {
			f.RetryAfter = until.Sub(now)
		}
		return f
	default:
		return failure.New(failure.UpstreamError, "The upstream does not list its models.", failure.Reason(http.StatusText(res.StatusCode)))
	}
}

// modelsHeader leaves out what asks for less than the whole list.
func modelsHeader(client http.Header) http.Header {
	h := client.Clone()
	for _, name := range []string{
		"Connection", "Te", "Upgrade", "Http2-Settings", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization",
		"Transfer-Encoding", "Trailer", "Accept-Encoding", "Range", "If-None-Match", "If-Modified-Since",
		"Content-Type", "Content-Length", "Content-Encoding",
	} {
		h.Del(name)
	}
	return h
}

// allowedModels are those that some account may use; nil = all.
func allowedModels(accounts []bundle.Account) []string {
	allowed := []string{}
	for _, a := range accounts {
		if a.State == bundle.AccountDisabled {
			continue
		}
		if len(a.Models) == 0 {
			return nil
		}
		allowed = append(allowed, a.Models...)
	}
	return allowed
}

var errNoModels = failure.New(failure.UpstreamProtocol, "The upstream's answer is not a list of models.")

// modelList filters an upstream's list and gives it both forms. Entries are
// copied byte for byte: Codex and gateways put fields of their own there.
func modelList(raw []byte, allowed []string) ([]byte, error) {
	if !gjson.ValidBytes(raw) {
		return nil, errNoModels
	}
	root := gjson.ParseBytes(raw)
	catalogue, data := root.Get("models"), root.Get("data")
	if !catalogue.IsArray() && !data.IsArray() {
		return nil, errNoModels
	}
	var slugs, ids [][]byte
	for _, m := range catalogue.Array() {
		slug := m.Get("slug").Str
		if !permits(allowed, slug) {
			continue
		}
		slugs = append(slugs, []byte(m.Raw))
		if !data.IsArray() {
			entry, err := json.Marshal(platformModel{ID: slug, Object: "model", OwnedBy: "openai"})
			if err != nil {
				return nil, errNoModels
			}
			ids = append(ids, entry)
		}
	}
	for _, m := range data.Array() {
		if permits(allowed, m.Get("id").Str) {
			ids = append(ids, []byte(m.Raw))
		}
	}
	return slices.Concat([]byte(`{"models":[`), bytes.Join(slugs, []byte{','}), []byte(`],"object":"list","data":[`),
		bytes.Join(ids, []byte{','}), []byte("]}\n")), nil
}

// platformModel is an entry of OpenAI's list.
type platformModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func permits(allowed []string, model string) bool {
	return allowed == nil || slices.Contains(allowed, model)
}
