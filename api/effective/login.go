package effective

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// authFile is what the Codex CLI keeps in auth.json, as far as we use it.
type authFile struct {
	APIKey *string `json:"OPENAI_API_KEY"`
	Tokens *struct {
		IDToken      string `json:"id_token"`
		AccessToken  string `json:"access_token"`
		RefreshToken string `json:"refresh_token"`
		AccountID    string `json:"account_id"`
	} `json:"tokens"`
}

// maxAccountID bounds the value of header chatgpt-account-id, in bytes.
const maxAccountID = 128

// login takes what an OAuth account's Secret holds: an auth.json with an access
// token, or an access token alone. It does not judge whether a token has expired:
// that needs a clock, and the upstream knows better.
func login(ref v1alpha1.SecretKeyReference, value string) (bundle.Credential, *Unresolved) {
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, "{") {
		return loginFile(ref, value)
	}
	if !isHeaderSafe(value) {
		return bundle.Credential{}, invalidValue(ref, "is not a login: "+shape(value))
	}
	if claims(value) == nil {
		return bundle.Credential{}, refreshOnly(ref)
	}
	return bundle.Credential{AccessToken: value, ChatGPTAccountID: accountOf(value)}, nil
}

func loginFile(ref v1alpha1.SecretKeyReference, value string) (bundle.Credential, *Unresolved) {
	var file authFile
	if err := json.Unmarshal([]byte(value), &file); err != nil {
		// The error would quote what it stumbled over.
		return bundle.Credential{}, invalidValue(ref, "is not a login: it looks like an auth.json and is not valid JSON of that form")
	}
	t := file.Tokens
	switch {
	case t == nil && file.APIKey != nil && *file.APIKey != "":
		return bundle.Credential{}, invalidValue(ref, "is an auth.json with an API key and no login: use apiKey instead of oauth")
	case t == nil || (t.AccessToken == "" && t.RefreshToken == ""):
		return bundle.Credential{}, invalidValue(ref, "is not a login: it has neither tokens.access_token nor tokens.refresh_token")
	case t.AccessToken == "":
		return bundle.Credential{}, refreshOnly(ref)
	case !isHeaderSafe(t.AccessToken):
		return bundle.Credential{}, invalidValue(ref, "is not a login: tokens.access_token: "+shape(t.AccessToken))
	}
	account := t.AccountID
	for _, token := range []string{t.AccessToken, t.IDToken} {
		if account == "" {
			account = accountOf(token)
		}
	}
	if account != "" && !isAccountID(account) {
		return bundle.Credential{}, invalidValue(ref, "is not a login: tokens.account_id has to be at most 128 visible ASCII characters")
	}
	return bundle.Credential{AccessToken: t.AccessToken, ChatGPTAccountID: account}, nil
}

func refreshOnly(ref v1alpha1.SecretKeyReference) *Unresolved {
	problem := invalidValue(ref, "holds a login that has to be refreshed, which a later version will do: "+
		"use apiKey, or an auth.json with tokens.access_token")
	problem.Reason = v1alpha1.ReasonNotYetEffective
	return problem
}

// claims are the claims of a JWT, unverified: the token is ours to send, not to
// trust. It is nil if token has not the form of a JWT.
func claims(token string) map[string]json.RawMessage {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || parts[2] == "" {
		return nil
	}
	header, body := segment(parts[0]), segment(parts[1])
	if header == nil {
		return nil
	}
	return body
}

// segment decodes one part of a JWT; nil if it is no JSON object.
func segment(part string) map[string]json.RawMessage {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(part, "="))
	if err != nil {
		return nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	return object
}

// accountOf is the ChatGPT account that a token was made for, or empty.
func accountOf(token string) string {
	var auth struct {
		AccountID string `json:"chatgpt_account_id"`
	}
	raw, ok := claims(token)["https://api.openai.com/auth"]
	if !ok || json.Unmarshal(raw, &auth) != nil || !isAccountID(auth.AccountID) {
		return ""
	}
	return auth.AccountID
}

func isAccountID(s string) bool { return isHeaderSafe(s) && len(s) <= maxAccountID }
