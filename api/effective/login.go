package effective

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

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
	// LastRefresh is free text here: a login is not refused for a strange date.
	LastRefresh string `json:"last_refresh"`
}

// maxAccountID bounds the value of header chatgpt-account-id, in bytes.
const maxAccountID = 128

// Seed is a login as a user gave it. At least one of the two tokens is set. It
// must not be printed.
type Seed struct {
	RefreshToken string
	AccessToken  string
	// AccountID is the ChatGPT account; empty = none.
	AccountID string
	// IssuedAt and ExpiresAt are those of the access token; zero = unknown.
	IssuedAt, ExpiresAt time.Time
}

// String hides the login from a careless %v.
func (s Seed) String() string { return "login" }

// GoString is String, for %#v.
func (s Seed) GoString() string { return s.String() }

// Digest identifies the login: the hex SHA-256 of its refresh token, or of its
// access token if that is all. A file that is only written anew is no new login.
func (s Seed) Digest() string {
	token := s.RefreshToken
	if token == "" {
		token = s.AccessToken
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// SeedOf reads the Secret that an OAuth account names: an auth.json, a refresh
// token, or an access token. The account must have oauth. It does not judge
// whether a token has expired: that needs a clock, and the upstream knows better.
func SeedOf(a *v1alpha1.Account, lookup Lookup) (Seed, *Unresolved) {
	ref := a.OAuth.SeedSecretRef
	value, problem := secretValue(ref, lookup)
	if problem == nil {
		var seed Seed
		if seed, problem = parseSeed(ref, value); problem == nil {
			return seed, nil
		}
	}
	problem.Account = a.Name
	return Seed{}, problem
}

func parseSeed(ref v1alpha1.SecretKeyReference, value string) (Seed, *Unresolved) {
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, "{") {
		return parseAuthFile(ref, value)
	}
	if !isHeaderSafe(value) {
		return Seed{}, invalidValue(ref, "is not a login: "+shape(value))
	}
	if claims(value) == nil {
		return Seed{RefreshToken: value}, nil
	}
	s := Seed{AccessToken: value, AccountID: accountOf(value)}
	s.IssuedAt, s.ExpiresAt = TokenTimes(value)
	return s, nil
}

func parseAuthFile(ref v1alpha1.SecretKeyReference, value string) (Seed, *Unresolved) {
	var file authFile
	if err := json.Unmarshal([]byte(value), &file); err != nil {
		// The error would quote what it stumbled over.
		return Seed{}, invalidValue(ref, "is not a login: it looks like an auth.json and is not valid JSON of that form")
	}
	if what := file.flaw(); what != "" {
		return Seed{}, invalidValue(ref, what)
	}
	t := file.Tokens
	s := Seed{AccessToken: t.AccessToken, RefreshToken: t.RefreshToken, AccountID: t.AccountID}
	if s.AccountID == "" {
		s.AccountID = AccountIDOf(t.AccessToken, t.IDToken)
	}
	if s.AccountID != "" && !isAccountID(s.AccountID) {
		return Seed{}, invalidValue(ref, "is not a login: tokens.account_id has to be at most 128 visible ASCII characters")
	}
	s.IssuedAt, s.ExpiresAt = TokenTimes(s.AccessToken)
	if at, err := time.Parse(time.RFC3339, file.LastRefresh); err == nil && s.IssuedAt.IsZero() {
		s.IssuedAt = at.UTC()
	}
	return s, nil
}

// flaw says why the file is no login; empty = it is one.
func (f authFile) flaw() string {
	t := f.Tokens
	switch {
	case t == nil && f.APIKey != nil && *f.APIKey != "":
		return "is an auth.json with an API key and no login: use apiKey instead of oauth"
	case t == nil || (t.AccessToken == "" && t.RefreshToken == ""):
		return "is not a login: it has neither tokens.access_token nor tokens.refresh_token"
	case t.AccessToken != "" && !isHeaderSafe(t.AccessToken):
		return "is not a login: tokens.access_token: " + shape(t.AccessToken)
	case t.RefreshToken != "" && !isHeaderSafe(t.RefreshToken):
		return "is not a login: tokens.refresh_token: " + shape(t.RefreshToken)
	default:
		return ""
	}
}

// login resolves an OAuth account: the tokens that the operator keeps for it,
// and before there are any, or where there is no operator, the seed as it is.
func login(pool string, a *v1alpha1.Account, lookup Lookup) (bundle.Credential, *Unresolved) {
	if held, ok := HeldLogin(pool, a.Name, lookup); ok {
		if held.Credential.AccessToken != "" {
			return held.Credential, nil
		}
		reason, message := held.Problem(a)
		return bundle.Credential{}, &Unresolved{Reason: reason, Message: message}
	}
	seed, problem := SeedOf(a, lookup)
	if problem != nil {
		return bundle.Credential{}, problem
	}
	if seed.AccessToken == "" {
		problem := invalidValue(a.OAuth.SeedSecretRef, "holds a refresh token, which the operator is about to exchange; "+
			"a proxy without an operator needs an auth.json with tokens.access_token")
		problem.Reason = v1alpha1.ReasonLoginPending
		return bundle.Credential{}, problem
	}
	return bundle.Credential{AccessToken: seed.AccessToken, ChatGPTAccountID: seed.AccountID}, nil
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

// AccountIDOf is the ChatGPT account that the first of the tokens that names one
// was made for, or empty.
func AccountIDOf(tokens ...string) string {
	for _, token := range tokens {
		if id := accountOf(token); id != "" {
			return id
		}
	}
	return ""
}

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

// maxTokenTime bounds what is believed of a claim: the year 2200, in seconds.
const maxTokenTime = 7258118400

// TokenTimes are the claims iat and exp of an access token; zero where it has
// none, or is no JWT.
func TokenTimes(token string) (issued, expires time.Time) {
	c := claims(token)
	at := func(name string) time.Time {
		var seconds float64
		if json.Unmarshal(c[name], &seconds) != nil || seconds <= 0 || seconds > maxTokenTime {
			return time.Time{}
		}
		return time.Unix(int64(seconds), 0).UTC()
	}
	return at("iat"), at("exp")
}

// IsToken says whether s can be sent as a token: 1 to 16384 visible ASCII
// characters.
func IsToken(s string) bool { return isHeaderSafe(s) }

func isAccountID(s string) bool { return isHeaderSafe(s) && len(s) <= maxAccountID }
