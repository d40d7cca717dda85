package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AccountPool is a set of upstream credentials that are spent together.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ap,categories=causeway
// +kubebuilder:printcolumn:name="Accounts",type=integer,JSONPath=`.status.totals.accounts`
// +kubebuilder:printcolumn:name="Usable",type=integer,JSONPath=`.status.totals.usable`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy.type`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reauth",type=integer,JSONPath=`.status.totals.reauthRequired`,priority=1
// +kubebuilder:printcolumn:name="Policies",type=integer,JSONPath=`.status.boundPolicies.count`,priority=1
// +kubebuilder:printcolumn:name="Unusable",type=string,JSONPath=`.status.unusable`
type AccountPool struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user wants.
	// +required
	Spec AccountPoolSpec `json:"spec"`

	// status is what the operator found.
	// +optional
	Status AccountPoolStatus `json:"status,omitempty"`
}

// AccountPoolList is a list of AccountPools.
//
// +kubebuilder:object:root=true
type AccountPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AccountPool `json:"items"`
}

// AccountPoolSpec is what the user wants of a pool.
//
// +kubebuilder:validation:XValidation:rule="!has(self.strategy) || !has(self.strategy.singleAccount) || self.accounts.exists(a, a.name == self.strategy.singleAccount.accountName)",message="strategy.singleAccount.accountName must be the name of an account of this pool"
type AccountPoolSpec struct {
	// provider is the upstream on which the accounts are spent.
	// +required
	Provider Provider `json:"provider"`

	// accounts are the upstream credentials, 1 to 64, keyed by name.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Accounts []Account `json:"accounts"`

	// strategy chooses the account of a new session. Unset means LeastLoaded.
	// +optional
	Strategy *Strategy `json:"strategy,omitempty"`

	// capacityScope says how account limits hold across proxies: Partitioned splits
	// them over the replicas (at least 1 each), PerReplica grants them to each,
	// Shared counts in the store. Unset means PerReplica.
	// +optional
	CapacityScope CapacityScope `json:"capacityScope,omitempty"`

	// quotas are budgets of the whole pool, keyed by name. Unset means none.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Quotas []Quota `json:"quotas,omitempty"`
}

// Provider is the upstream of a pool.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'Generic' || has(self.endpoint)",message="endpoint is required with type Generic: set it to the base URL that has /responses below it"
type Provider struct {
	// type is the kind of upstream; it decides paths, headers and where an anchor
	// may be used. It cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="type cannot be changed: create a new AccountPool and point the BridgePolicy to it"
	Type ProviderType `json:"type"`

	// endpoint is the https base URL below which /responses lies, version path
	// included. Unset means the provider's public one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') && isURL(self) && url(self).getHostname() != ''",message="endpoint must be an https URL: write https://HOST/PATH"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="endpoint must not contain credentials: put them into a Secret and refer to it in accounts"
	// +kubebuilder:validation:XValidation:rule="!self.contains('?') && !self.contains('#')",message="endpoint must not have a query or fragment: end it with the path"
	Endpoint string `json:"endpoint,omitempty"`

	// caBundle is PEM text with certificate authorities to trust besides the
	// system's, for endpoints with a private one. Unset means none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32768
	// +kubebuilder:validation:XValidation:rule="self.contains('-----BEGIN CERTIFICATE-----') && self.contains('-----END CERTIFICATE-----')",message="caBundle must be PEM: paste the text from BEGIN CERTIFICATE to END CERTIFICATE"
	// +kubebuilder:validation:XValidation:rule="!self.contains('PRIVATE KEY')",message="caBundle must not contain a private key: keep only the CERTIFICATE blocks"
	CABundle string `json:"caBundle,omitempty"`
}

// ProviderType is the kind of upstream.
// +kubebuilder:validation:Enum=OpenAIPlatform;ChatGPT;Generic
// +kubebuilder:validation:MaxLength=16
type ProviderType string

// Values of ProviderType.
const (
	ProviderOpenAIPlatform ProviderType = "OpenAIPlatform"
	ProviderChatGPT        ProviderType = "ChatGPT"
	ProviderGeneric        ProviderType = "Generic"
)

// Account is one upstream credential.
//
// +kubebuilder:validation:XValidation:rule="has(self.apiKey) != has(self.oauth)",message="exactly one of apiKey and oauth must be set: remove one or add the missing one"
type Account struct {
	// name identifies the account in status, metrics and logs.
	// +required
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be a DNS label: lower-case letters, digits and '-', at most 40"
	Name string `json:"name"`

	// state is what the user wants of the account: Draining finishes what it has
	// and takes nothing new. Unset means Enabled.
	// +optional
	State AccountState `json:"state,omitempty"`

	// weight is the share of the account with strategy CapacityWeighted; 0 means
	// only if nothing else is usable. Unset means 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Weight *int32 `json:"weight,omitempty"`

	// priority is the tier of the account, lower ones first. Unset means 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Priority *int32 `json:"priority,omitempty"`

	// apiKey is an API key.
	// +optional
	APIKey *APIKey `json:"apiKey,omitempty"`

	// oauth is a login that is refreshed.
	// +optional
	OAuth *OAuth `json:"oauth,omitempty"`

	// limits bound the use of the account. Unset means no limit.
	// +optional
	Limits *AccountLimits `json:"limits,omitempty"`

	// models are the names the account may be used for. Unset means all.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=80
	Models []string `json:"models,omitempty"`
}

// AccountState is what the user wants of an account.
// +kubebuilder:validation:Enum=Enabled;Disabled;Draining
// +kubebuilder:validation:MaxLength=8
type AccountState string

// Values of AccountState.
const (
	AccountEnabled  AccountState = "Enabled"
	AccountDisabled AccountState = "Disabled"
	AccountDraining AccountState = "Draining"
)

// APIKey says where an API key is.
type APIKey struct {
	// secretRef is the Secret key that holds the API key.
	// +required
	SecretRef SecretKeyReference `json:"secretRef"`
}

// OAuth says where a login is and who refreshes it.
type OAuth struct {
	// seedSecretRef is the Secret key that holds the login: the auth.json of the
	// Codex CLI, or a refresh token. Only the operator reads it.
	// +required
	SeedSecretRef SecretKeyReference `json:"seedSecretRef"`

	// clientID is the OAuth client of the login. Unset means the provider's own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	ClientID string `json:"clientID,omitempty"`

	// tokenURL is the https URL that refreshes the login. Unset means the
	// provider's own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') && isURL(self) && url(self).getHostname() != ''",message="tokenURL must be an https URL: write https://HOST/PATH"
	// +kubebuilder:validation:XValidation:rule="!self.contains('@')",message="tokenURL must not contain credentials: the client is named by clientID"
	TokenURL string `json:"tokenURL,omitempty"`
}

// AccountLimits bound the use of one account.
type AccountLimits struct {
	// maxConcurrent bounds live turns; idle connections do not count. Unset means
	// no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// requestsPerMinute bounds turns per minute. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	RequestsPerMinute *int32 `json:"requestsPerMinute,omitempty"`

	// tokensPerMinute bounds tokens per minute. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2000000000
	TokensPerMinute *int32 `json:"tokensPerMinute,omitempty"`
}

// Strategy chooses accounts.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'SingleAccount' ? has(self.singleAccount) : !has(self.singleAccount)",message="singleAccount must be set with type SingleAccount and with no other: add or remove it"
type Strategy struct {
	// type is the strategy.
	// +required
	Type StrategyType `json:"type"`

	// singleAccount belongs to type SingleAccount.
	// +optional
	SingleAccount *SingleAccount `json:"singleAccount,omitempty"`
}

// StrategyType is the way to choose an account.
// +kubebuilder:validation:Enum=CapacityWeighted;RoundRobin;LeastLoaded;FillFirst;SequentialDrain;ResetDrain;SingleAccount
// +kubebuilder:validation:MaxLength=16
type StrategyType string

// Values of StrategyType.
const (
	StrategyCapacityWeighted StrategyType = "CapacityWeighted"
	StrategyRoundRobin       StrategyType = "RoundRobin"
	StrategyLeastLoaded      StrategyType = "LeastLoaded"
	StrategyFillFirst        StrategyType = "FillFirst"
	StrategySequentialDrain  StrategyType = "SequentialDrain"
	StrategyResetDrain       StrategyType = "ResetDrain"
	StrategySingleAccount    StrategyType = "SingleAccount"
)

// SingleAccount is the member of strategy SingleAccount.
type SingleAccount struct {
	// accountName is the only account to use.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	AccountName string `json:"accountName"`
}

// CapacityScope says how account limits hold across proxies.
// +kubebuilder:validation:Enum=Partitioned;PerReplica;Shared
// +kubebuilder:validation:MaxLength=11
type CapacityScope string

// Values of CapacityScope.
const (
	CapacityPartitioned CapacityScope = "Partitioned"
	CapacityPerReplica  CapacityScope = "PerReplica"
	CapacityShared      CapacityScope = "Shared"
)

// Quota is a budget of the whole pool.
type Quota struct {
	// name identifies the quota.
	// +required
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be a DNS label: lower-case letters, digits and '-', at most 40"
	Name string `json:"name"`

	// unit is what is counted.
	// +required
	Unit QuotaUnit `json:"unit"`

	// window is the time after which the count starts anew.
	// +required
	Window QuotaWindow `json:"window"`

	// limit is how many units one window has.
	// +required
	// +kubebuilder:validation:Minimum=1
	Limit int64 `json:"limit"`

	// softLimitPercent of limit is where new sessions stop. Unset means 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	SoftLimitPercent *int32 `json:"softLimitPercent,omitempty"`
}

// QuotaUnit is what a quota counts.
// +kubebuilder:validation:Enum=Requests;Tokens
// +kubebuilder:validation:MaxLength=8
type QuotaUnit string

// Values of QuotaUnit.
const (
	QuotaRequests QuotaUnit = "Requests"
	QuotaTokens   QuotaUnit = "Tokens"
)

// QuotaWindow is the period of a quota.
// +kubebuilder:validation:Enum=Minute;Hour;Day;Week;Month
// +kubebuilder:validation:MaxLength=6
type QuotaWindow string

// Values of QuotaWindow.
const (
	QuotaMinute QuotaWindow = "Minute"
	QuotaHour   QuotaWindow = "Hour"
	QuotaDay    QuotaWindow = "Day"
	QuotaWeek   QuotaWindow = "Week"
	QuotaMonth  QuotaWindow = "Month"
)
