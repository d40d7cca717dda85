package proxy

import (
	"context"
	"net/http"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/usage"
)

// pollUsage asks the provider how full the windows of each account are, until ctx
// ends. Platform keys have no such thing.
func (p *process) pollUsage(ctx context.Context) {
	client := &http.Client{
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return p.server.Upstream(p.runtime.Load()).RoundTrip(r)
		}),
		// A redirect would carry the account's login to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	usage.New(usage.Options{
		Accounts: p.chatGPTAccounts, Sink: p.accounts, Clock: clock.RealClock{}, Log: p.log,
		Asker: usage.HTTP{Client: client, Endpoint: func() string { return p.runtime.Load().Bundle.Pool.Provider.Endpoint }},
	}).Run(ctx)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
