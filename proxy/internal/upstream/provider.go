package upstream

import (
	"net/http"

	"github.com/causeway-dev/causeway/api/bundle"
)

// Scope is where an anchor can be resolved.
type Scope uint8

const (
	// ScopeConnection: with store:false the platform keeps only the newest
	// response, in memory, on the one socket it was made on.
	ScopeConnection Scope = iota
	// ScopeAccount: any connection of the same account resolves it; a foreign
	// account answers with silence.
	ScopeAccount
)

// AnchorScope is the scope of a provider type. What is unknown gets the
// narrower one.
func AnchorScope(providerType string) Scope {
	if providerType == bundle.ProviderChatGPT {
		return ScopeAccount
	}
	return ScopeConnection
}

// Target is where and as whom to connect.
type Target struct {
	// Endpoint is the base URL; responses are at Endpoint + "/responses".
	Endpoint   string
	Account    string
	Credential bundle.Credential
	// Header is sent on the WebSocket upgrade or with the HTTP request.
	Header http.Header
}

func (t Target) responsesURL() string { return t.Endpoint + "/responses" }
