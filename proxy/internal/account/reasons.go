package account

// Reasons explain the state of an account in one word. Reasons() is the closed
// set. Each cool-down has one, and one reason may end without touching others.
const (
	// ReasonRateLimited: the upstream said 429 for a moment (requests or tokens
	// in a short time). State CoolingDown. Ends by itself; nothing to do, unless
	// it comes often: lower limits.requestsPerMinute or add accounts.
	ReasonRateLimited = "RateLimited"
	// ReasonQuotaExhausted: the quota window, the budget or the plan is used up.
	// State QuotaExhausted. Ends at the reset of the window, or earlier if a
	// probe succeeds. To do if it cannot wait: buy quota, add accounts, and clear
	// with the annotation causeway.dev/reset-cooldowns.
	ReasonQuotaExhausted = "QuotaExhausted"
	// ReasonAuthRejected: the upstream rejects the credential. State
	// ReauthRequired. Ends with a new credential: log in again, or put a valid key
	// into the Secret. It is tried again after Until all the same, because an
	// upstream may reject by mistake.
	ReasonAuthRejected = "AuthRejected"
	// ReasonDeactivated: the upstream says that the account is suspended, deleted
	// or not entitled. State ReauthRequired. To do: clear it up with the provider,
	// or remove the account from the pool.
	ReasonDeactivated = "Deactivated"
	// ReasonConnectFailed: the way to the upstream failed for this account alone.
	// State CoolingDown, for seconds. To do if it stays: look at the network and
	// the endpoint.
	ReasonConnectFailed = "ConnectFailed"
	// ReasonEjected: several turns in a row broke on this account. State
	// CoolingDown, by CircuitPolicy.ejection. Ends by itself; to do if it comes
	// back: compare with other accounts, look into the log for what broke.
	ReasonEjected = "Ejected"
	// ReasonLocalLimit: limits.requestsPerMinute or tokensPerMinute of the account
	// holds turns back. State Usable: turns wait. To do if it stays: raise the
	// limit or add accounts.
	ReasonLocalLimit = "LocalLimit"
	// ReasonNoCredential is why an account is Unknown; it is no cool-down. To do:
	// see condition SecretsResolved, or log in.
	ReasonNoCredential = "NoCredential"
)

// Reasons lists the closed set, for metrics and for tests of those who explain
// them.
func Reasons() []string {
	return []string{
		ReasonRateLimited, ReasonQuotaExhausted, ReasonAuthRejected, ReasonDeactivated,
		ReasonConnectFailed, ReasonEjected, ReasonLocalLimit, ReasonNoCredential,
	}
}

// stateOf is the state that a cool-down of a reason shows as.
func stateOf(reason string) string {
	switch reason {
	case ReasonQuotaExhausted:
		return QuotaExhausted
	case ReasonAuthRejected, ReasonDeactivated:
		return ReauthRequired
	default:
		return CoolingDown
	}
}

// byHuman says that a cool-down ends by what a human does, not by a good turn.
func byHuman(reason string) bool { return stateOf(reason) == ReauthRequired }

// byLimit says that a cool-down is about a limit of the upstream, which a good
// turn disproves.
func byLimit(reason string) bool {
	return reason == ReasonRateLimited || reason == ReasonQuotaExhausted
}
