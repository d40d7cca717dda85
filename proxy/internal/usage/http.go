package usage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// HTTP asks over HTTP.
type HTTP struct {
	// Client must not follow redirects to other hosts with the credential.
	Client *http.Client
	// Endpoint is the pool's base URL now, which has /responses below it.
	Endpoint func() string
}

// document is where usage is told; the base URL of the responses is one level
// deeper than that of the backend.
func document(endpoint string) string {
	return strings.TrimSuffix(strings.TrimRight(endpoint, "/"), "/codex") + "/wham/usage"
}

// Ask is an Asker's. An error names the host and never the credential.
func (h HTTP) Ask(ctx context.Context, a account.Account) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, document(h.Endpoint()), nil)
	if err != nil {
		return Answer{}, fmt.Errorf("making the request for usage: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	upstream.Authorize(req.Header, a.Credential)
	res, err := h.Client.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("asking for usage: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // what was read is all that is wanted
	body, err := io.ReadAll(io.LimitReader(res.Body, MaxBody))
	if err != nil {
		return Answer{}, fmt.Errorf("reading usage: %w", err)
	}
	return Answer{Status: res.StatusCode, Header: res.Header.Get, Body: body}, nil
}
