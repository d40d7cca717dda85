package effective

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// LoginSecretName is the Secret in which the operator keeps the login of one
// OAuth account. The name of an account has no dot, so no two accounts of a
// namespace share one.
func LoginSecretName(pool, account string) string { return pool + "-login." + account }

// LoginKey is the key of that Secret that is read by others than the credential
// controller. It holds a Login, and never a refresh token.
const LoginKey = "account.json"

// LoginState is how a login is.
type LoginState string

// States of a login.
const (
	// LoginPending: the first exchange of a refresh token is under way.
	LoginPending LoginState = "Pending"
	// LoginRefreshing: all is well.
	LoginRefreshing LoginState = "Refreshing"
	// LoginFixed: there is nothing to refresh it with; it ends with its token.
	LoginFixed LoginState = "Fixed"
	// LoginUnreachable: the issuer does not answer; it is asked again.
	LoginUnreachable LoginState = "Unreachable"
	// LoginRefused: the issuer refuses the request as such; it is asked again.
	LoginRefused LoginState = "Refused"
	// LoginUncertain: a request was sent and its reply got lost, so that nobody
	// knows whether the refresh token still serves; it is tried once more.
	LoginUncertain LoginState = "Uncertain"
	// LoginReauth: a human has to log in anew.
	LoginReauth LoginState = "ReauthRequired"
)

// Login is what the credential controller says of the login of one account.
type Login struct {
	State LoginState `json:"state"`
	// Cause explains LoginReauth and LoginRefused: a Cause constant.
	Cause string `json:"cause,omitempty"`
	// Credential is what proxies send; its AccessToken is empty if there is
	// nothing that could serve.
	Credential bundle.Credential `json:"credential,omitzero"`
	// ExpiresAt is when the access token ends; zero = unknown.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// Causes of LoginReauth and LoginRefused.
const (
	// CauseDenied: the issuer does not accept the refresh token.
	CauseDenied = "Denied"
	// CauseReused: it says that the refresh token was used before.
	CauseReused = "Reused"
	// CauseReplyLost: it does not accept the refresh token, and the reply to an
	// earlier exchange of it never arrived.
	CauseReplyLost = "ReplyLost"
	// CauseGone: it says that the account is deactivated, suspended or deleted.
	CauseGone = "Gone"
	// CauseExpired: the access token has ended and there is no refresh token.
	CauseExpired = "Expired"
	// CauseRejected: the upstream rejects the access token and there is no
	// refresh token.
	CauseRejected = "Rejected"
	// CauseDuplicate: another account has the same login.
	CauseDuplicate = "Duplicate"
	// CauseClient: the issuer does not know the client.
	CauseClient = "Client"
	// CauseAnswer: it answered what no issuer answers.
	CauseAnswer = "Answer"
)

// String hides the credential from a careless %v.
func (l Login) String() string { return "login " + string(l.State) }

// GoString is String, for %#v.
func (l Login) GoString() string { return l.String() }

// HeldLogin is the login that the operator keeps for an account; false if it
// keeps none, or none that can be read.
func HeldLogin(pool, account string, lookup Lookup) (Login, bool) {
	data, ok := lookup(LoginSecretName(pool, account))
	if !ok {
		return Login{}, false
	}
	var l Login
	if json.Unmarshal(data[LoginKey], &l) != nil || l.State == "" {
		return Login{}, false
	}
	c := l.Credential
	if c.APIKey != "" || c.AccessToken != "" && !isHeaderSafe(c.AccessToken) || c.ChatGPTAccountID != "" && !isAccountID(c.ChatGPTAccountID) {
		return Login{}, false // somebody edited it
	}
	return l, true
}

// Healthy says whether nobody has to do or to know anything.
func (l Login) Healthy() bool {
	return l.State == LoginRefreshing || l.State == LoginFixed || l.State == LoginPending
}

// Problem says what is wrong with the login of an account and what to do about
// it, in one sentence; reason is a constant of v1alpha1.
func (l Login) Problem(a *v1alpha1.Account) (reason, message string) {
	seed := a.OAuth.SeedSecretRef
	again := fmt.Sprintf("log in again (causeway-operator login) so that key %s of Secret %s holds a new login", seed.Key, seed.Name)
	switch l.State {
	case LoginReauth:
		return v1alpha1.ReasonReauthRequired, reauthText(l.Cause) + ": " + again
	case LoginUncertain:
		return v1alpha1.ReasonRefreshUncertain, "the issuer's reply to a refresh got lost, so the login may be spent; " +
			"it is tried once more by itself"
	case LoginRefused:
		if l.Cause == CauseClient {
			return v1alpha1.ReasonIssuerRefused, "the issuer does not know the client: correct oauth.clientID and oauth.tokenURL"
		}
		return v1alpha1.ReasonIssuerRefused, "the issuer refuses to refresh: check oauth.tokenURL; it is asked again by itself"
	case LoginUnreachable:
		return v1alpha1.ReasonIssuerUnreachable, "the issuer cannot be reached: check oauth.tokenURL and that the operator may connect to it; " +
			"it is asked again by itself"
	case LoginPending:
		return v1alpha1.ReasonLoginPending, "the refresh token is about to be exchanged for the first time"
	default:
		return v1alpha1.ReasonRefreshing, "the login is refreshed in time"
	}
}

func reauthText(cause string) string {
	switch cause {
	case CauseReused:
		return "the issuer says that the refresh token was already used, by somebody else who has the same login"
	case CauseReplyLost:
		return "the issuer does not accept the refresh token, after a refresh whose reply got lost"
	case CauseGone:
		return "the issuer says that the account is deactivated"
	case CauseDuplicate:
		return "another account has the same login, and two that refresh one login lose it"
	case CauseExpired:
		return "the access token has expired and there is no refresh token"
	case CauseRejected:
		return "the upstream rejects the access token and there is no refresh token"
	default:
		return "the issuer does not accept the refresh token any more"
	}
}
