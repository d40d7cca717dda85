package session

import (
	"net/url"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// routeOf is the route that a turn takes upstream.
func routeOf(provider bundle.Provider, t Transport) circuit.Key {
	key := circuit.Key{Family: "responses", Transport: t.String()}
	if provider.Type == bundle.ProviderChatGPT {
		key.Family = "codex-responses"
	}
	if u, err := url.Parse(provider.Endpoint); err == nil {
		key.Host = u.Host
	}
	return key
}

// anyone is the caller where clients are not told apart.
const anyone = "*"

// takePermit asks the circuit of the route, last of all: whoever is let through
// goes on at once. A flight has one permit for each attempt.
func (a *actor) takePermit(f *flight) *failure.Failure {
	if a.services.Routes == nil || f.permit != nil {
		return nil
	}
	caller := f.turn.Client
	if caller == "" {
		caller = anyone
	}
	permit, refusal := a.services.Routes.Permit(routeOf(f.turn.Runtime.Bundle.Pool.Provider, f.transport), caller)
	if refusal != nil {
		return refusal
	}
	f.permit = permit
	return nil
}

// answered tells the route of the attempt's first event, as soon as it comes: an
// answer of an hour does not keep a circuit from closing.
func (f *flight) answered() {
	if f.permit != nil {
		f.permit.Event()
	}
}

// endPermit tells the route how the attempt ended.
func (f *flight) endPermit(k outcome.Kind) {
	if f.permit == nil {
		return
	}
	account := ""
	if f.lease != nil {
		account = f.lease.Account().Name
	}
	f.permit.Done(k, account)
	f.permit = nil
}
