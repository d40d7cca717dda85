// Package login decides about the logins of OAuth accounts: when a token is
// refreshed, what an issuer's answer means, and what is kept of it. It is pure: a
// Record and a time go in, a Step or another Record comes out.
package login

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/effective"
)

// recordKey is the key, in the Secret of effective.LoginSecretName, that only the
// credential controller reads: it holds a Record.
const recordKey = "login.json"

// recordVersion is the form of a Record. One of a later form is left alone.
const recordVersion = 1

// maxSpent is how many earlier seeds are remembered. Whoever logs in more often
// than that does not go back to the first.
const maxSpent = 16

// Record is all that is kept of one login. It must not be printed.
type Record struct {
	Version int `json:"version"`
	// Generation rises by one with each change of the tokens.
	Generation int64 `json:"generation"`
	// Seed is the digest of the seed that the login began with, Spent those of
	// earlier ones, newest last: their refresh tokens were used.
	Seed  string   `json:"seed"`
	Spent []string `json:"spent,omitempty"`

	RefreshToken string `json:"refreshToken,omitempty"`
	AccessToken  string `json:"accessToken,omitempty"`
	// AccountID is the ChatGPT account, from the claims of the tokens.
	AccountID string `json:"accountID,omitempty"`
	// IssuedAt and ExpiresAt are those of the access token, as far as known, by the
	// clock of the operator where it saw them come.
	IssuedAt  time.Time `json:"issuedAt,omitzero"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// RefreshedAt is when Generation last rose.
	RefreshedAt time.Time `json:"refreshedAt,omitzero"`
	// Rejections counts refreshes in a row that were asked for by proxies which
	// had the token rejected soon after it was made.
	Rejections int `json:"rejections,omitempty"`

	// Intent is an exchange that was begun; nil once it is settled.
	Intent *Intent `json:"intent,omitempty"`
	// Settled is the nonce of the exchange that made Generation.
	Settled string `json:"settled,omitempty"`
	// Trouble is what the last exchange failed of; nil after a success.
	Trouble *Trouble `json:"trouble,omitempty"`
	// Doubt says that the refresh token may have been used by an exchange whose
	// outcome nobody knows.
	Doubt bool `json:"doubt,omitempty"`
	// Lost is why a human has to log in, an effective.Cause constant; empty = nobody has to.
	Lost string `json:"lost,omitempty"`
}

// Intent says that somebody is about to exchange the refresh token.
type Intent struct {
	// Generation is the one whose refresh token is exchanged.
	Generation int64  `json:"generation"`
	Nonce      string `json:"nonce"`
	Reason     Reason `json:"reason"`
	// StartedAt is by the clock of who began, for people; it is compared with nothing.
	StartedAt time.Time `json:"startedAt"`
}

// Trouble is a failed exchange.
type Trouble struct {
	Outcome Outcome `json:"outcome"`
	// Cause is an effective.Cause constant, where the issuer gave one.
	Cause string    `json:"cause,omitempty"`
	At    time.Time `json:"at"`
	// Failures in a row.
	Failures int `json:"failures"`
}

// String hides the tokens from a careless %v.
func (r Record) String() string { return fmt.Sprintf("login generation %d", r.Generation) }

// GoString is String, for %#v.
func (r Record) GoString() string { return r.String() }

// ErrUnreadable says that the Secret of a login holds no record that this version
// can read. It is never replaced: there may be a token in it.
var ErrUnreadable = errors.New("the Secret holds no login of this version's form")

// Decode reads the record of a Secret; false when there is none.
func Decode(data map[string][]byte) (Record, bool, error) {
	raw, ok := data[recordKey]
	if !ok {
		return Record{}, false, nil
	}
	var r Record
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&r); err != nil || r.Version != recordVersion || r.Generation < 1 {
		return Record{}, false, ErrUnreadable // the error would quote what it stumbled over
	}
	return r, true, nil
}

// Encode returns the content of the Secret: the record, and what others read.
func (r Record) Encode() (map[string][]byte, error) {
	r.Version = recordVersion
	record, err := json.Marshal(r) //nolint:gosec // this is the one place where the token is written down
	if err != nil {
		return nil, errors.New("encoding a login: it holds something that JSON cannot say")
	}
	shown, err := json.Marshal(r.Show())
	if err != nil {
		return nil, errors.New("encoding a login: it holds something that JSON cannot say")
	}
	return map[string][]byte{recordKey: record, effective.LoginKey: shown}, nil
}

// Show is what others are told of the record. It has no refresh token.
func (r Record) Show() effective.Login {
	l := effective.Login{ExpiresAt: r.ExpiresAt}
	if r.AccessToken != "" {
		l.Credential = bundle.Credential{AccessToken: r.AccessToken, ChatGPTAccountID: r.AccountID, Generation: r.Generation}
	}
	switch {
	case r.Lost != "":
		l.State, l.Cause = effective.LoginReauth, r.Lost
	case r.Trouble != nil && r.Trouble.Outcome != Denied:
		l.State, l.Cause = troubleStates[r.Trouble.Outcome], r.Trouble.Cause
	case r.AccessToken == "":
		l.State = effective.LoginPending
	case r.RefreshToken == "":
		l.State = effective.LoginFixed
	default:
		l.State = effective.LoginRefreshing
	}
	return l
}

var troubleStates = map[Outcome]effective.LoginState{
	Unreachable: effective.LoginUnreachable, Refused: effective.LoginRefused, Unknown: effective.LoginUncertain,
}

// Adopt begins a new login from a seed. What the record was before is over, an
// exchange that is under way included.
func (r Record) Adopt(s effective.Seed, now time.Time) Record {
	next := Record{
		Generation: r.Generation + 1, Seed: s.Digest(), RefreshToken: s.RefreshToken, AccessToken: s.AccessToken,
		AccountID: s.AccountID, IssuedAt: s.IssuedAt, ExpiresAt: s.ExpiresAt, RefreshedAt: now, Spent: slices.Clone(r.Spent),
	}
	if r.Seed != "" && r.Seed != next.Seed {
		next.Spent = append(next.Spent, r.Seed)
	}
	next.Spent = next.Spent[max(0, len(next.Spent)-maxSpent):]
	if next.IssuedAt.IsZero() || next.IssuedAt.After(now) {
		next.IssuedAt = now
	}
	return next
}

// Begin announces an exchange.
func (r Record) Begin(nonce string, reason Reason, now time.Time) Record {
	r.Doubt = r.Doubt || r.Intent != nil // whoever announced the one before never said how it ended
	r.Intent = &Intent{Generation: r.Generation, Nonce: nonce, Reason: reason, StartedAt: now}
	return r
}

// Grant is what an issuer gave for a refresh token. It must not be printed.
type Grant struct {
	AccessToken string
	// RefreshToken is the next one; empty = the old one goes on serving.
	RefreshToken string
	AccountID    string
	// Lifetime of the access token; 0 = the issuer did not say.
	Lifetime  time.Duration
	ExpiresAt time.Time // as the token claims; used if Lifetime is 0
}

// String hides the tokens from a careless %v.
func (g Grant) String() string { return "grant" }

// GoString is String, for %#v.
func (g Grant) GoString() string { return g.String() }

// shortLived is the age below which a rejected token says that a new one may be
// rejected, too.
const shortLived = time.Hour

// Settle puts a grant in the place of the tokens that were exchanged for it. It
// is false if the record is of another generation or login by now: then the grant
// is of no use to it.
func (r Record) Settle(i Intent, seed string, g Grant, now time.Time) (Record, bool) {
	if r.Generation != i.Generation || r.Seed != seed {
		return r, false
	}
	next := Record{
		Generation: r.Generation + 1, Seed: r.Seed, Spent: r.Spent, RefreshToken: g.RefreshToken, AccessToken: g.AccessToken,
		AccountID: g.AccountID, IssuedAt: now, ExpiresAt: g.ExpiresAt, RefreshedAt: now, Settled: i.Nonce,
	}
	if next.RefreshToken == "" {
		next.RefreshToken = r.RefreshToken
	}
	if next.AccountID == "" {
		next.AccountID = r.AccountID
	}
	if g.Lifetime > 0 {
		next.ExpiresAt = now.Add(g.Lifetime)
	}
	if i.Reason == ReasonRejected && now.Sub(r.RefreshedAt) < shortLived {
		next.Rejections = r.Rejections + 1
	}
	return next, true
}

// Fail notes a failed exchange. It is false if the record does not wait for that
// exchange any more: somebody else settled or replaced it.
func (r Record) Fail(i Intent, o Outcome, cause string, now time.Time) (Record, bool) {
	if r.Intent == nil || r.Intent.Nonce != i.Nonce || r.Generation != i.Generation {
		return r, false
	}
	failures := 1
	if r.Trouble != nil {
		failures += r.Trouble.Failures
	}
	r.Intent, r.Trouble = nil, &Trouble{Outcome: o, Cause: cause, At: now, Failures: failures}
	if o == Denied && r.Doubt && cause != effective.CauseGone {
		r.Trouble.Cause = effective.CauseReplyLost
	}
	r.Doubt = r.Doubt || o == Unknown
	return r, true
}

// Lose says that a human has to log in anew. The access token stays as long as
// it serves (see Next), unless it is another account's.
func (r Record) Lose(cause string) Record {
	r.Lost, r.Intent, r.Trouble = cause, nil, nil
	if cause == effective.CauseDuplicate {
		r.AccessToken, r.RefreshToken = "", ""
	}
	return r
}

// Drop takes away an access token that serves no more.
func (r Record) Drop() Record {
	r.AccessToken = ""
	return r
}
