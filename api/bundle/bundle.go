// Package bundle is the contract between the operator and its proxies: plain
// types, their validation and their hash. It imports nothing of the project,
// so that both sides, and versions of both sides, can share it.
//
// The operator writes a Bundle to a ConfigMap and a Credentials document to a
// Secret; a proxy reads both as files of one folder. Every number is already
// effective: defaults are applied before a bundle is made, never after.
package bundle

import (
	"strings"
	"time"
)

// ContractVersion is the version of the types of this package. A proxy refuses
// a bundle of another version and keeps serving the one it has.
const ContractVersion = 1

// File names, and keys of the ConfigMap and the Secret that carry them.
const (
	FileName            = "bundle.json"
	CredentialsFileName = "credentials.json"
)

// MaxBytes bounds an encoded Bundle. A ConfigMap holds 1 MiB; half of it leaves
// room for managed fields.
const MaxBytes = 512 << 10

// Bundle is all that a proxy is told, but for secrets.
type Bundle struct {
	ContractVersion int `json:"contractVersion"`
	// Generation is metadata.generation of the BridgePolicy it was made from.
	Generation int64 `json:"generation"`
	// Hash identifies the content (see Seal); proxies acknowledge it.
	Hash string `json:"hash"`

	Namespace string `json:"namespace"`
	Name      string `json:"name"`

	Pool      Pool      `json:"pool"`
	Circuit   Circuit   `json:"circuit"`
	Clients   Clients   `json:"clients"`
	Store     Store     `json:"store"`
	Drain     Drain     `json:"drain"`
	Reporting Reporting `json:"reporting"`

	// Activation is set if two slots take turns; nil = every proxy has authority.
	Activation *Activation `json:"activation,omitempty"`

	// ResetCircuits closes every retry circuit and every breaker of a route that
	// was opened under another value, or none. Empty = nothing is asked for.
	// Pool.ResetCooldowns is the same for cool-downs.
	ResetCircuits string `json:"resetCircuits,omitempty"`
	// ForceCircuits holds the breakers of routes open or closed for a while.
	ForceCircuits []ForcedCircuit `json:"forceCircuits,omitempty"`
}

// ForcedCircuit is one breaker that a person wants open or closed.
type ForcedCircuit struct {
	// Route is HOST, for all routes of that host, or HOST/FAMILY/TRANSPORT.
	Route string `json:"route"`
	// State is CircuitOpen or CircuitClosed.
	State string `json:"state"`
	// Until is when the breaker decides by itself again.
	Until time.Time `json:"until"`
}

// States of a ForcedCircuit.
const (
	CircuitOpen   = "Open"
	CircuitClosed = "Closed"
)

// Provider types; see AccountPool.spec.provider.type.
const (
	ProviderOpenAIPlatform = "OpenAIPlatform"
	ProviderChatGPT        = "ChatGPT"
	ProviderGeneric        = "Generic"
)

// Strategies of account selection; see AccountPool.spec.strategy.type.
const (
	StrategyCapacityWeighted = "CapacityWeighted"
	StrategyRoundRobin       = "RoundRobin"
	StrategyLeastLoaded      = "LeastLoaded"
	StrategyFillFirst        = "FillFirst"
	StrategySequentialDrain  = "SequentialDrain"
	StrategyResetDrain       = "ResetDrain"
	StrategySingleAccount    = "SingleAccount"
)

// States that a user gives an account.
const (
	AccountEnabled  = "Enabled"
	AccountDisabled = "Disabled"
	AccountDraining = "Draining"
)

// Kinds of account credentials.
const (
	KindAPIKey = "APIKey"
	KindOAuth  = "OAuth"
)

// Modes of client authentication.
const (
	ClientsRequired = "Required"
	ClientsOpen     = "Open"
)

// Pool is one AccountPool, resolved.
type Pool struct {
	Name     string   `json:"name"`
	Provider Provider `json:"provider"`
	// Accounts are in the order of the manifest.
	Accounts      []Account `json:"accounts"`
	Strategy      string    `json:"strategy"`
	SingleAccount string    `json:"singleAccount,omitempty"`
	CapacityScope string    `json:"capacityScope"`
	Quotas        []Quota   `json:"quotas,omitempty"`
	// ResetCooldowns ends every cool-down that began under another value, or none:
	// TOKEN for all accounts, ACCOUNT=TOKEN for one (see CooldownReset). Empty =
	// nothing is asked for.
	ResetCooldowns string `json:"resetCooldowns,omitempty"`
}

// CooldownReset is ResetCooldowns taken apart: the account whose cool-downs end,
// empty = of all; and the token of the wish, empty = there is none.
func (p Pool) CooldownReset() (account, token string) {
	if account, token, one := strings.Cut(p.ResetCooldowns, "="); one {
		return account, token
	}
	return "", p.ResetCooldowns
}

// Provider is where the accounts of a pool are spent.
type Provider struct {
	Type string `json:"type"`
	// Endpoint is an https base URL without a final slash; responses are at
	// Endpoint + "/responses".
	Endpoint string `json:"endpoint"`
	// CABundle holds PEM certificates to trust besides the system's; empty = none.
	CABundle string `json:"caBundle,omitempty"`
}

// Account is one upstream credential without its secret.
type Account struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	State    string `json:"state"`
	Weight   int    `json:"weight"`
	Priority int    `json:"priority"`
	// MaxConcurrent bounds live turns on the account; 0 = unlimited.
	MaxConcurrent     int `json:"maxConcurrent,omitempty"`
	RequestsPerMinute int `json:"requestsPerMinute,omitempty"`
	TokensPerMinute   int `json:"tokensPerMinute,omitempty"`
	// Models is the allow-list; empty = all.
	Models []string `json:"models,omitempty"`
}

// Quota is a budget of the whole pool.
type Quota struct {
	Name             string `json:"name"`
	Unit             string `json:"unit"`
	Window           string `json:"window"`
	Limit            int64  `json:"limit"`
	SoftLimitPercent int    `json:"softLimitPercent,omitempty"`
}

// Circuit is one CircuitPolicy (or the built-in profile) with every number set.
type Circuit struct {
	// Name is the CircuitPolicy; empty = built-in profile.
	Name         string       `json:"name,omitempty"`
	RetryCircuit RetryCircuit `json:"retryCircuit"`
	Breaker      Breaker      `json:"breaker"`
	Quarantine   Quarantine   `json:"quarantine"`
	Ejection     Ejection     `json:"ejection"`
	Bulkheads    []Bulkhead   `json:"bulkheads"`
	Deadlines    Deadlines    `json:"deadlines"`
}

// RetryCircuit is the circuit of one session key.
type RetryCircuit struct {
	MaxAttempts                 int      `json:"maxAttempts"`
	BudgetPercent               int      `json:"budgetPercent"`
	FailureThreshold            int      `json:"failureThreshold"`
	BaseBackoffSeconds          int      `json:"baseBackoffSeconds"`
	MaxBackoffSeconds           int      `json:"maxBackoffSeconds"`
	CleanCloseMaxBackoffSeconds int      `json:"cleanCloseMaxBackoffSeconds"`
	HalfOpenLeaseSeconds        int      `json:"halfOpenLeaseSeconds"`
	StateTTLSeconds             int      `json:"stateTTLSeconds"`
	RetryOn                     []string `json:"retryOn"`
}

// Breaker is the circuit of an upstream route.
type Breaker struct {
	Scope               string   `json:"scope"`
	ConsecutiveFailures int      `json:"consecutiveFailures"`
	WindowSeconds       int      `json:"windowSeconds"`
	MinSamples          int      `json:"minSamples"`
	FailurePercent      int      `json:"failurePercent"`
	MinDistinctAccounts int      `json:"minDistinctAccounts"`
	MinDistinctCallers  int      `json:"minDistinctCallers"`
	OpenSeconds         int      `json:"openSeconds"`
	MaxOpenSeconds      int      `json:"maxOpenSeconds"`
	HalfOpenMaxCalls    int      `json:"halfOpenMaxCalls"`
	SuccessThreshold    int      `json:"successThreshold"`
	ProbeVerdictSeconds int      `json:"probeVerdictSeconds"`
	CountedFailures     []string `json:"countedFailures"`
}

// Quarantine is about anchors of sessions.
type Quarantine struct {
	EventlessThreshold int `json:"eventlessThreshold"`
	RetainSeconds      int `json:"retainSeconds"`
}

// Ejection takes failing accounts out of rotation.
type Ejection struct {
	ConsecutiveFailures int `json:"consecutiveFailures"`
	BaseSeconds         int `json:"baseSeconds"`
	MaxSeconds          int `json:"maxSeconds"`
	MaxEjectPercent     int `json:"maxEjectPercent"`
}

// Bulkhead bounds one lane.
type Bulkhead struct {
	Lane string `json:"lane"`
	// MaxConcurrent 0 = unlimited.
	MaxConcurrent       int `json:"maxConcurrent"`
	MaxQueued           int `json:"maxQueued"`
	QueueTimeoutSeconds int `json:"queueTimeoutSeconds"`
}

// Deadlines bound the phases of a turn, in seconds.
type Deadlines struct {
	ConnectSeconds        int `json:"connectSeconds"`
	TLSSeconds            int `json:"tlsSeconds"`
	ResponseHeaderSeconds int `json:"responseHeaderSeconds"`
	FirstEventSeconds     int `json:"firstEventSeconds"`
	IdleSeconds           int `json:"idleSeconds"`
	KeepaliveSeconds      int `json:"keepaliveSeconds"`
	// RequestSeconds 0 = none, for streams.
	RequestSeconds     int `json:"requestSeconds"`
	CallerMaxSeconds   int `json:"callerMaxSeconds"`
	CancelGraceSeconds int `json:"cancelGraceSeconds"`
}

// Clients says who may call.
type Clients struct {
	Mode string `json:"mode"`
}

// Types of a store, and its TLS.
const (
	StoreMemory = "Memory"
	StoreRedis  = "Redis"

	TLSEnabled = "Enabled"
)

// Store says where session records live.
type Store struct {
	Type string `json:"type"`
	// Addresses of the Redis servers, host:port.
	Addresses []string `json:"addresses,omitempty"`
	// TLS is Enabled or Disabled; empty = Disabled.
	TLS string `json:"tls,omitempty"`
}

// Drain bounds the end of a proxy, in seconds.
type Drain struct {
	SoftSeconds        int `json:"softSeconds"`
	PodGraceSeconds    int `json:"podGraceSeconds"`
	PreStopSeconds     int `json:"preStopSeconds"`
	EndpointLagSeconds int `json:"endpointLagSeconds"`
}

// Reporting says how a proxy reports.
type Reporting struct {
	Mode               string `json:"mode"`
	MinIntervalSeconds int    `json:"minIntervalSeconds"`
}

// Credentials is the secret half: what a proxy may spend and whom it may serve.
// It never holds a refresh token.
type Credentials struct {
	ContractVersion int `json:"contractVersion"`
	// Hash identifies the content (see Seal).
	Hash string `json:"hash"`
	// Accounts by account name; an account without an entry is not usable.
	Accounts map[string]Credential `json:"accounts"`
	// Clients maps a client's name to the lower-case hex SHA-256 of its key.
	Clients map[string]string `json:"clients,omitempty"`
	// StorePassword is that of the Redis servers; empty = none.
	StorePassword string `json:"storePassword,omitempty"`
	// PeerKeys are what replicas of one bridge sign with when they hand turns to
	// each other: PeerKeyBytes random bytes each, base64. The first signs, all are
	// believed, so that a key can be replaced; empty = turns stay where they come.
	PeerKeys []string `json:"peerKeys,omitempty"`
}

// Credential is what one account sends upstream. Exactly one of APIKey and
// AccessToken is set.
type Credential struct {
	APIKey      string `json:"apiKey,omitempty"`
	AccessToken string `json:"accessToken,omitempty"`
	// ChatGPTAccountID goes into the header chatgpt-account-id; empty = none.
	ChatGPTAccountID string `json:"chatgptAccountID,omitempty"`
	// Generation rises with each change of the secret.
	Generation int64 `json:"generation,omitempty"`
}

// Bearer is the value after "Bearer " in an Authorization header.
func (c Credential) Bearer() string {
	if c.APIKey != "" {
		return c.APIKey
	}
	return c.AccessToken
}
