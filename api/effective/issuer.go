package effective

import "github.com/causeway-dev/causeway/api/v1alpha1"

// The issuer of logins with ChatGPT, and the public OAuth client of the Codex CLI
// (CLIENT_ID in its sources, codex-rs/login), for which an auth.json was made.
const (
	DefaultTokenURL = "https://auth.openai.com/oauth/token"
	DefaultClientID = "app_EMoamEEZ73f0CkXaXp7hrann"
)

// Issuer is whom an OAuth account's tokens come from.
type Issuer struct {
	TokenURL string
	ClientID string
	// Form sends requests as RFC 6749 has them; otherwise they are JSON, as the
	// Codex CLI sends them.
	Form bool
	// CABundle holds PEM certificates to trust besides the system's; empty = none.
	CABundle string
}

// IssuerOf applies defaults to the account's oauth, which must be set. It is false
// if there is no default for the provider and the account names no tokenURL or no
// clientID.
func IssuerOf(p *v1alpha1.AccountPool, a *v1alpha1.Account) (Issuer, bool) {
	i := Issuer{TokenURL: a.OAuth.TokenURL, ClientID: a.OAuth.ClientID, CABundle: p.Spec.Provider.CABundle}
	if p.Spec.Provider.Type == v1alpha1.ProviderGeneric {
		i.Form = true
		return i, i.TokenURL != "" && i.ClientID != ""
	}
	if i.TokenURL == "" {
		i.TokenURL = DefaultTokenURL
	}
	if i.ClientID == "" {
		i.ClientID = DefaultClientID
	}
	return i, true
}
