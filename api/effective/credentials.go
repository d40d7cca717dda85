package effective

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// ClientKeyPrefix starts every client key.
const ClientKeyPrefix = "cwk-"

// Bounds of secrets, in bytes. A header line of a server is rarely allowed more
// than 16 KiB, so a longer one is a file that got into the wrong key.
const (
	maxSecret    = 16 << 10
	maxClientKey = 256
)

// Lookup returns the data of a Secret of the manifests' namespace, or false if
// there is none.
type Lookup func(secretName string) (map[string][]byte, bool)

// Unresolved is a reference to a Secret that gave nothing to use. Its message
// names Secret and key and never quotes what they hold.
type Unresolved struct {
	// Account is the account that cannot be used; empty if it is about clients.
	Account string
	// Client is the client that is not let in; empty if it is about an account, the
	// store or all clients.
	Client string
	// Store says that it is about the password of the store.
	Store bool
	// Reason is one of v1alpha1.ReasonSecretNotFound, ReasonKeyNotFound,
	// ReasonInvalidValue and, of a login, ReasonLoginPending, ReasonReauthRequired,
	// ReasonRefreshUncertain, ReasonIssuerUnreachable and ReasonIssuerRefused.
	Reason string
	// Message is one sentence with the way out.
	Message string
}

// Credentials resolves the references of a pool and of a bridge to Secrets. What
// cannot be resolved is left out and reported; the rest works. An account in
// state Disabled is neither resolved nor reported: a proxy gets no secret that it
// has no use for. b may be nil for the accounts alone.
//
// The document is sealed; Generation of the credentials is left to the caller.
func Credentials(p *v1alpha1.AccountPool, b *v1alpha1.BridgePolicy, lookup Lookup) (bundle.Credentials, []Unresolved) {
	out := bundle.Credentials{Accounts: map[string]bundle.Credential{}}
	var problems []Unresolved
	for i := range p.Spec.Accounts {
		a := &p.Spec.Accounts[i]
		if a.State == v1alpha1.AccountDisabled {
			continue
		}
		credential, problem := accountCredential(p.Name, a, lookup)
		if problem != nil {
			problem.Account = a.Name
			problems = append(problems, *problem)
			continue
		}
		out.Accounts[a.Name] = credential
	}
	if b != nil && b.Spec.Clients.KeysSecretRef != nil {
		clients, unresolved := clientKeys(b.Spec.Clients.KeysSecretRef.Name, lookup)
		out.Clients = clients
		problems = append(problems, unresolved...)
	}
	if b != nil && b.Spec.Store != nil && b.Spec.Store.Redis != nil && b.Spec.Store.Redis.AuthSecretRef != nil {
		password, problem := storePassword(*b.Spec.Store.Redis.AuthSecretRef, lookup)
		if problem != nil {
			problems = append(problems, *problem)
		}
		out.StorePassword = password
	}
	return out.Seal(), problems
}

// storePassword takes any text of visible characters and blanks: what a server's
// configuration can hold as a password.
func storePassword(ref v1alpha1.SecretKeyReference, lookup Lookup) (string, *Unresolved) {
	value, problem := secretValue(ref, lookup)
	switch {
	case problem != nil:
	case value == "":
		problem = invalidValue(ref, "is not a password: it is empty")
	case len(value) > maxSecret:
		problem = invalidValue(ref, fmt.Sprintf("is not a password: it is longer than %d bytes", maxSecret))
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		problem = invalidValue(ref, "is not a password: it has control characters or is not text")
	default:
		return value, nil
	}
	problem.Store = true
	problem.Message = "spec.store.redis.authSecretRef: " + problem.Message
	return "", problem
}

func accountCredential(pool string, a *v1alpha1.Account, lookup Lookup) (bundle.Credential, *Unresolved) {
	switch {
	case a.APIKey != nil:
		value, problem := secretValue(a.APIKey.SecretRef, lookup)
		if problem != nil {
			return bundle.Credential{}, problem
		}
		return apiKey(a.APIKey.SecretRef, value)
	case a.OAuth != nil:
		return login(pool, a, lookup)
	default:
		return bundle.Credential{}, &Unresolved{
			Reason: v1alpha1.ReasonInvalidValue, Message: "account has neither apiKey nor oauth: add one",
		}
	}
}

func secretValue(ref v1alpha1.SecretKeyReference, lookup Lookup) (string, *Unresolved) {
	data, ok := lookup(ref.Name)
	if !ok {
		return "", &Unresolved{
			Reason: v1alpha1.ReasonSecretNotFound, Message: fmt.Sprintf("Secret %s does not exist: create it with key %s", ref.Name, ref.Key),
		}
	}
	value, ok := data[ref.Key]
	if !ok {
		return "", &Unresolved{
			Reason: v1alpha1.ReasonKeyNotFound, Message: fmt.Sprintf("Secret %s has no key %s: %s", ref.Name, ref.Key, keysOf(data)),
		}
	}
	return trimNewline(string(value)), nil
}

// keysOf names the keys of a Secret, which are no secret, because a wrong key is
// mostly a misspelt one.
func keysOf(data map[string][]byte) string {
	const most = 5
	if len(data) == 0 {
		return "it is empty"
	}
	keys := slices.Sorted(maps.Keys(data))
	if len(keys) > most {
		return fmt.Sprintf("it has %s and %d more", strings.Join(keys[:most], ", "), len(keys)-most)
	}
	return "it has " + strings.Join(keys, ", ")
}

// trimNewline drops one final line break, which editors and echo add.
func trimNewline(s string) string {
	return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r")
}

// isHeaderSafe says whether s can stand in a header: visible ASCII only.
func isHeaderSafe(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxSecret
}

func apiKey(ref v1alpha1.SecretKeyReference, value string) (bundle.Credential, *Unresolved) {
	if !isHeaderSafe(value) {
		return bundle.Credential{}, invalidValue(ref, "is not an API key: "+shape(value))
	}
	return bundle.Credential{APIKey: value}, nil
}

func invalidValue(ref v1alpha1.SecretKeyReference, what string) *Unresolved {
	return &Unresolved{
		Reason: v1alpha1.ReasonInvalidValue, Message: fmt.Sprintf("key %s of Secret %s %s", ref.Key, ref.Name, what),
	}
}

// shape says what is wrong with a secret text without quoting any of it.
func shape(value string) string {
	switch {
	case value == "":
		return "it is empty"
	case len(value) > maxSecret:
		return fmt.Sprintf("it is longer than %d bytes", maxSecret)
	default:
		return "it has white space, control or non-ASCII characters"
	}
}

func clientKeys(secret string, lookup Lookup) (map[string]string, []Unresolved) {
	data, ok := lookup(secret)
	if !ok {
		return nil, []Unresolved{{
			Reason:  v1alpha1.ReasonSecretNotFound,
			Message: fmt.Sprintf("Secret %s of clients.keysSecretRef does not exist: create it with one key per client", secret),
		}}
	}
	if len(data) == 0 {
		return nil, []Unresolved{{
			Reason:  v1alpha1.ReasonKeyNotFound,
			Message: fmt.Sprintf("Secret %s of clients.keysSecretRef is empty: add one key per client", secret),
		}}
	}
	clients := make(map[string]string, len(data))
	owners := make(map[string]string, len(data))
	var problems []Unresolved
	for _, name := range slices.SortedFunc(maps.Keys(data), cmp.Compare[string]) {
		ref := v1alpha1.SecretKeyReference{Name: secret, Key: name}
		digest, problem := clientDigest(ref, trimNewline(string(data[name])))
		if problem == nil && owners[digest] != "" {
			problem = invalidValue(ref, fmt.Sprintf("is the same client key as %s: give each client its own", owners[digest]))
		}
		if problem != nil {
			problem.Client = name
			problems = append(problems, *problem)
			continue
		}
		clients[name], owners[digest] = digest, name
	}
	return clients, problems
}

// clientDigest takes a client key or its SHA-256.
func clientDigest(ref v1alpha1.SecretKeyReference, value string) (string, *Unresolved) {
	if strings.HasPrefix(value, ClientKeyPrefix) {
		if len(value) == len(ClientKeyPrefix) || len(value) > maxClientKey || !isHeaderSafe(value) {
			return "", invalidValue(ref, fmt.Sprintf("is not a client key: after %s it needs 1 to %d visible ASCII characters",
				ClientKeyPrefix, maxClientKey-len(ClientKeyPrefix)))
		}
		return bundle.KeyDigest(value), nil
	}
	if raw, err := hex.DecodeString(value); err == nil && len(raw) == 32 {
		return strings.ToLower(value), nil
	}
	return "", invalidValue(ref, "is not a client key: it has to start with "+ClientKeyPrefix+
		", or be the SHA-256 of a key as 64 hex digits")
}
