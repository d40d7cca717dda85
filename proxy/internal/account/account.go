// Package account knows the accounts of the pool: which one may take a turn,
// which one does, and for how long one is left alone.
//
// What is decided (Pick, refuse, ResetHint) is pure; Registry adds the lock, the
// live counters and the waiting.
package account

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
)

// Account is what a turn needs to know of the account it runs on. It does not
// change during a lease, whatever happens to the configuration meanwhile.
type Account struct {
	Name string
	// Kind is bundle.KindAPIKey or bundle.KindOAuth.
	Kind string
	// MaxConcurrent bounds live turns; 0 = unlimited.
	MaxConcurrent int
	Credential    bundle.Credential
}

// String names the account, so that a careless %v prints no credential.
func (a Account) String() string { return a.Name }

// GoString is String, for %#v.
func (a Account) GoString() string { return a.Name }

// LogValue is String, for slog.
func (a Account) LogValue() slog.Value { return slog.StringValue(a.Name) }

// Want says which account a turn asks for.
type Want struct {
	// Model that the account must allow; empty = any account will do.
	Model string
	// Only this account will do, because what the turn builds on lives there;
	// empty = no such bond.
	Only string
	// Prefer this account if it is usable and has room.
	Prefer string
	// Continues says that the turn goes on with a conversation that has begun; so
	// does one with Only or Prefer. It may spend what a quota of the pool keeps back
	// from new ones.
	Continues bool
	// Exclude accounts that this turn has tried.
	Exclude []string
	// Client is who asks: a digest of the client's identity. Clients share the
	// waiting room fairly. Empty = one of them.
	Client string
	// Lane is the kind of traffic, whose limits apply. The zero value is HTTP.
	Lane bulkhead.Lane
	// Permit is the lane's permit that the turn has already: only an account is
	// asked for. nil, or one that was given back = both.
	Permit *bulkhead.Permit
}

// class names all of a want that decides whether an account can be had: of two
// wants of a class either both can be served or neither. Prefer decides which
// account it is, Client and Lane who is next.
func (w *Want) class() string {
	tried := slices.Clone(w.Exclude)
	slices.Sort(tried)
	// Quoted, because the model is the client's text: a zero byte in it must not
	// look like the end of it. No name of an account holds one.
	flags := strconv.FormatBool(w.goesOn()) + strconv.FormatBool(w.Permit != nil)
	return strconv.Quote(w.Model) + w.Only + "\x00" + flags + "\x00" + strings.Join(tried, "\x00")
}

func (w *Want) goesOn() bool { return w.Continues || w.Only != "" || w.Prefer != "" }

// States of an account, as in AccountPool.status.accounts.
const (
	Usable         = "Usable"
	CoolingDown    = "CoolingDown"
	QuotaExhausted = "QuotaExhausted"
	ReauthRequired = "ReauthRequired"
	Disabled       = "Disabled"
	Draining       = "Draining"
	Unknown        = "Unknown"
)

// AllStates lists the states, for metrics that show each of them.
func AllStates() []string {
	return []string{Usable, CoolingDown, QuotaExhausted, ReauthRequired, Disabled, Draining, Unknown}
}
