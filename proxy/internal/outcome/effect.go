package outcome

import (
	"net/http"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// Effect is the row of a kind.
type Effect struct {
	Blame Blame
	// Route is what a closed circuit of the route learns.
	Route Route
	// Probe is what a half-open one learns, if the first valid event has not decided.
	Probe Probe
	// Account is what the account learns.
	Account Account
	// Retry is what may be done with the turn, at most once.
	Retry Retry
	// Unknown: the request may have run. It is said so, and never with a Retry-After.
	Unknown bool
	Client
}

// Client is what a client gets if nothing is retried.
type Client struct {
	// ClientStatus is the HTTP status, and that of an error frame; 0 = the upstream's
	// own, with its body.
	ClientStatus int
	// ClientCode is one of the codes of package failure; empty = the upstream's own.
	ClientCode string
	// Rewrite replaces the upstream's code if its failure goes to the client: it is a
	// code that ends a Codex session, and this one is retried. The message is kept.
	Rewrite string
}

// Blame is who is to blame.
type Blame uint8

// Blames.
const (
	BlameNobody Blame = iota
	BlameClient
	BlameProxy
	BlameNetwork
	BlameAccount
	BlameModel
	BlameRoute
	BlameUpstream
)

var blameNames = [...]string{"nobody", "client", "proxy", "network", "account", "model", "route", "upstream"}

func (b Blame) String() string { return blameNames[b] }

// Route is what an attempt tells a closed circuit of its route.
type Route uint8

// Route effects.
const (
	RouteNeutral Route = iota // no sample
	RouteSuccess
	RouteCounted // a failure
	// RouteIfMany is a failure if several accounts see it at the same time and none
	// succeeds, and no sample otherwise.
	RouteIfMany
)

// Probe is what an attempt tells a half-open circuit.
type Probe uint8

// Probe effects.
const (
	ProbeNeutral Probe = iota // the slot is free again, nothing is decided
	ProbeSuccess
	ProbeFailure
)

// Account is what an attempt tells about its account.
type Account uint8

// Account effects.
const (
	AccountNone Account = iota
	// AccountGood: it works; failures in a row and doubts are forgotten.
	AccountGood
	// AccountCoolDown: leave it alone until the hint, or for a short while.
	AccountCoolDown
	// AccountQuota: its plan is used up until the hint, or for long; worth a probe
	// before that.
	AccountQuota
	// AccountRefresh: refresh the credential; if that does not help, a person has to
	// log in again.
	AccountRefresh
	// AccountDeactivated: the provider has closed it.
	AccountDeactivated
	// AccountModel: it lacks the model of this turn, and is well otherwise.
	AccountModel
	// AccountUnreachable: what leads to this account alone is broken.
	AccountUnreachable
	// AccountSuspect is a weak sign: several in a short time make the account less
	// preferred, one alone changes nothing. If nothing at all came back while the circuit of
	// the route was not closed, it says nothing about the account.
	AccountSuspect
)

var accountNames = [...]string{"none", "good", "cool_down", "quota", "refresh", "deactivated", "model", "unreachable", "suspect"}

func (a Account) String() string { return accountNames[a] }

// Retry is what may be done with a turn.
type Retry uint8

// Retries. What may run on another account may run on the same one again; the row
// says what is more likely to help.
const (
	RetryNever Retry = iota
	// RetryOther: once on another account.
	RetryOther
	// RetrySame: once on the same account, on a new connection.
	RetrySame
	// RetryRedial: nothing was sent; connect again, by whatever way.
	RetryRedial
)

var retryNames = [...]string{"never", "other_account", "same_account", "redial"}

func (r Retry) String() string { return retryNames[r] }

// What clients get. 401 is for the client's own key alone, so that what an account
// is refused never passes through with its status.
var (
	upstreams   = Client{} // the upstream's own words
	unreachable = Client{http.StatusServiceUnavailable, failure.UpstreamConnect, ""}
	rejected    = Client{http.StatusServiceUnavailable, failure.UpstreamAuth, ""}
	tooLarge    = Client{http.StatusBadRequest, failure.PayloadTooLarge, ""}
	anchorGone  = Client{http.StatusBadRequest, failure.PreviousResponseNotFound, ""}
	rateLimited = Client{http.StatusTooManyRequests, failure.RateLimitExceeded, ""}
	usedUp      = Client{http.StatusTooManyRequests, failure.UsageLimitReached, ""}
	busy        = Client{http.StatusServiceUnavailable, failure.UpstreamUnavailable, ""}
	broken      = Client{http.StatusBadGateway, failure.UpstreamError, ""}
	incomplete  = Client{http.StatusBadGateway, failure.StreamIncomplete, ""}
	garbled     = Client{http.StatusBadGateway, failure.UpstreamProtocol, ""}
	silent      = Client{http.StatusGatewayTimeout, failure.EventlessTimeout, ""}
	fellSilent  = Client{http.StatusGatewayTimeout, failure.StreamIdleTimeout, ""}
	refusedHere = Client{http.StatusServiceUnavailable, "", ""} // whoever refused has said why
	drained     = Client{http.StatusServiceUnavailable, failure.Draining, ""}
	oursToBlame = Client{http.StatusInternalServerError, failure.InternalError, ""}
	nobodyThere = Client{statusClosed, "", ""}
	withoutRoom = Client{http.StatusServiceUnavailable, "", retried}
)

// statusClosed is how logs call a request that its client left.
const statusClosed = 499

// retried is a code that every known client retries.
const retried = "server_error"

// Effect is the row of the kind.
func (k Kind) Effect() Effect {
	if k >= kinds {
		k = Internal
	}
	return table[k]
}

// table is the whole of it. Columns: blame, closed route, probe, account, retry,
// unknown, what the client gets.
var table = [kinds]Effect{
	NotSent:    {BlameNobody, RouteNeutral, ProbeNeutral, AccountNone, RetryRedial, false, unreachable},
	OK:         {BlameNobody, RouteSuccess, ProbeSuccess, AccountGood, RetryNever, false, upstreams},
	Incomplete: {BlameNobody, RouteSuccess, ProbeSuccess, AccountGood, RetryNever, false, upstreams},

	// The upstream is alive, and neither route nor account is at fault.
	CallerError:       {BlameClient, RouteNeutral, ProbeSuccess, AccountNone, RetryNever, false, upstreams},
	PolicyRefusal:     {BlameClient, RouteNeutral, ProbeSuccess, AccountNone, RetryNever, false, upstreams},
	TooLarge:          {BlameClient, RouteNeutral, ProbeSuccess, AccountNone, RetryNever, false, tooLarge},
	AnchorDenied:      {BlameNobody, RouteNeutral, ProbeSuccess, AccountNone, RetrySame, false, anchorGone},
	MissingToolOutput: {BlameClient, RouteNeutral, ProbeSuccess, AccountNone, RetryNever, false, upstreams},
	SealedForeign:     {BlameClient, RouteNeutral, ProbeSuccess, AccountNone, RetryNever, false, upstreams},
	ConnectionLimit:   {BlameNobody, RouteNeutral, ProbeSuccess, AccountNone, RetrySame, false, upstreams},
	NoWebSocket:       {BlameNobody, RouteNeutral, ProbeNeutral, AccountNone, RetryRedial, false, upstreams},

	// The account's.
	AuthRejected:       {BlameAccount, RouteNeutral, ProbeNeutral, AccountRefresh, RetryOther, false, rejected},
	Entitlement:        {BlameAccount, RouteNeutral, ProbeNeutral, AccountRefresh, RetryOther, false, rejected},
	Forbidden:          {BlameAccount, RouteNeutral, ProbeNeutral, AccountSuspect, RetryOther, false, upstreams},
	Deactivated:        {BlameAccount, RouteNeutral, ProbeNeutral, AccountDeactivated, RetryOther, false, rejected},
	RateLimited:        {BlameAccount, RouteIfMany, ProbeNeutral, AccountCoolDown, RetryOther, false, rateLimited},
	QuotaExhausted:     {BlameAccount, RouteIfMany, ProbeNeutral, AccountQuota, RetryOther, false, usedUp},
	ModelNotForAccount: {BlameAccount, RouteNeutral, ProbeNeutral, AccountModel, RetryOther, false, upstreams},
	// One model without room says nothing about the route of the others.
	ModelAtCapacity: {BlameModel, RouteNeutral, ProbeNeutral, AccountNone, RetryOther, false, withoutRoom},

	// The route's and the upstream's: capacity is never an account's fault.
	EdgeLimited:    {BlameRoute, RouteCounted, ProbeFailure, AccountNone, RetryOther, false, busy},
	EdgeBlocked:    {BlameRoute, RouteNeutral, ProbeNeutral, AccountNone, RetryNever, false, broken},
	Unavailable:    {BlameRoute, RouteCounted, ProbeFailure, AccountNone, RetryNever, false, busy},
	Overloaded:     {BlameUpstream, RouteCounted, ProbeFailure, AccountNone, RetryOther, false, withoutRoom},
	ServerError:    {BlameUpstream, RouteCounted, ProbeFailure, AccountNone, RetryNever, true, broken},
	ResponseFailed: {BlameUpstream, RouteCounted, ProbeFailure, AccountNone, RetryNever, false, upstreams},
	UpgradeFailed:  {BlameUpstream, RouteCounted, ProbeFailure, AccountNone, RetryRedial, false, unreachable},
	DNSFailed:      {BlameNetwork, RouteCounted, ProbeFailure, AccountNone, RetryRedial, false, unreachable},
	ConnectFailed:  {BlameNetwork, RouteCounted, ProbeFailure, AccountNone, RetryRedial, false, unreachable},
	TLSFailed:      {BlameNetwork, RouteCounted, ProbeFailure, AccountNone, RetryRedial, false, unreachable},
	ProxyFailed:    {BlameNetwork, RouteCounted, ProbeFailure, AccountUnreachable, RetryRedial, false, unreachable},

	// After the dispatch, and without an answer: nobody knows whether it ran.
	WriteCut:          {BlameNetwork, RouteCounted, ProbeFailure, AccountNone, RetryNever, true, incomplete},
	CutEventless:      {BlameUpstream, RouteCounted, ProbeFailure, AccountSuspect, RetryNever, true, incomplete},
	CleanClose:        {BlameUpstream, RouteCounted, ProbeFailure, AccountNone, RetryNever, true, incomplete},
	Truncated:         {BlameUpstream, RouteCounted, ProbeFailure, AccountSuspect, RetryNever, true, incomplete},
	LivenessLost:      {BlameNetwork, RouteCounted, ProbeFailure, AccountNone, RetryNever, true, incomplete},
	HeaderTimeout:     {BlameUpstream, RouteCounted, ProbeFailure, AccountSuspect, RetryNever, true, silent},
	FirstEventTimeout: {BlameUpstream, RouteCounted, ProbeFailure, AccountSuspect, RetryNever, true, silent},
	IdleTimeout:       {BlameUpstream, RouteCounted, ProbeFailure, AccountSuspect, RetryNever, true, fellSilent},
	Garbage:           {BlameUpstream, RouteCounted, ProbeFailure, AccountNone, RetryNever, true, garbled},

	// Ended on this side: nothing is learned about the other.
	CallerDeadline: {BlameClient, RouteNeutral, ProbeNeutral, AccountNone, RetryNever, true, fellSilent},
	BudgetSpent:    {BlameNobody, RouteNeutral, ProbeNeutral, AccountNone, RetryNever, true, fellSilent},
	CallerGone:     {BlameClient, RouteNeutral, ProbeNeutral, AccountNone, RetryNever, false, nobodyThere},
	Shed:           {BlameProxy, RouteNeutral, ProbeNeutral, AccountNone, RetryNever, false, refusedHere},
	Drained:        {BlameProxy, RouteNeutral, ProbeNeutral, AccountNone, RetryNever, true, drained},
	Internal:       {BlameProxy, RouteNeutral, ProbeNeutral, AccountNone, RetryNever, true, oursToBlame},
}
