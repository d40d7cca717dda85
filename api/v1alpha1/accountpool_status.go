package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AccountPoolStatus is what the operator found about a pool.
type AccountPoolStatus struct {
	// observedGeneration is the generation that the status was made from.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// unusable names accounts that shall take turns and cannot, why and until when,
	// as far as one line holds them. Unset means none.
	// +optional
	// +kubebuilder:validation:MaxLength=160
	Unusable string `json:"unusable,omitempty"`

	// conditions are Ready, Accepted, SecretsResolved, Usable, RefreshHealthy and
	// FullyEffective, and Warning if there is something to warn of.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// totals count the accounts by state.
	// +optional
	Totals *AccountTotals `json:"totals,omitempty"`

	// accounts says how each account is.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Accounts []AccountStatus `json:"accounts,omitempty"`

	// boundPolicies are the BridgePolicies that use the pool.
	// +optional
	BoundPolicies *BoundPolicies `json:"boundPolicies,omitempty"`

	// effectiveHash identifies the pool with defaults applied.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	EffectiveHash string `json:"effectiveHash,omitempty"`
}

// AccountTotals count accounts by state.
type AccountTotals struct {
	// accounts of the pool.
	// +required
	// +kubebuilder:validation:Minimum=0
	Accounts int32 `json:"accounts"`

	// usable accounts can take a turn.
	// +required
	// +kubebuilder:validation:Minimum=0
	Usable int32 `json:"usable"`

	// coolingDown accounts wait for a rate limit, a quota or a failure to pass.
	// +required
	// +kubebuilder:validation:Minimum=0
	CoolingDown int32 `json:"coolingDown"`

	// reauthRequired accounts need a new login by a human.
	// +required
	// +kubebuilder:validation:Minimum=0
	ReauthRequired int32 `json:"reauthRequired"`
}

// AccountStatus says how an account is.
type AccountStatus struct {
	// name of the account.
	// +required
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`

	// kind of its credential.
	// +optional
	Kind AccountKind `json:"kind,omitempty"`

	// state is what proxies can do with it.
	// +required
	State AccountCondition `json:"state"`

	// reason explains the state in one CamelCase word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// message says in one sentence why, until when and what to do. Unset means that
	// there is nothing to say.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`

	// until is when the state ends by itself. Unset means not by itself.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`

	// nextProbe is when a turn is let through to see whether the state has ended
	// before until. Unset means that none is.
	// +optional
	NextProbe *metav1.Time `json:"nextProbe,omitempty"`

	// usage is how much of its quota windows the account has used, as far as the
	// provider told, to within 5 percent. A window that is not listed is not known.
	// +optional
	// +listType=map
	// +listMapKey=window
	// +kubebuilder:validation:MaxItems=4
	Usage []UsageWindow `json:"usage,omitempty"`

	// lastTransitionTime is when the state last changed.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// UsageWindow is how much of one quota window is used.
type UsageWindow struct {
	// window is the provider's name of it, one CamelCase word.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	Window string `json:"window"`

	// minutes the window lasts. Unset means not known.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=527040
	Minutes *int32 `json:"minutes,omitempty"`

	// usedPercent of the window.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	UsedPercent int32 `json:"usedPercent"`

	// resetsAt is when the window begins anew. Unset means not known.
	// +optional
	ResetsAt *metav1.Time `json:"resetsAt,omitempty"`
}

// AccountKind is the kind of an account's credential.
// +kubebuilder:validation:Enum=APIKey;OAuth
// +kubebuilder:validation:MaxLength=6
type AccountKind string

// Values of AccountKind.
const (
	AccountKindAPIKey AccountKind = "APIKey"
	AccountKindOAuth  AccountKind = "OAuth"
)

// AccountCondition is what can be done with an account.
// +kubebuilder:validation:Enum=Usable;CoolingDown;QuotaExhausted;ReauthRequired;Disabled;Draining;Unknown
// +kubebuilder:validation:MaxLength=16
type AccountCondition string

// Values of AccountCondition.
const (
	AccountConditionUsable         AccountCondition = "Usable"
	AccountConditionCoolingDown    AccountCondition = "CoolingDown"
	AccountConditionQuotaExhausted AccountCondition = "QuotaExhausted"
	AccountConditionReauthRequired AccountCondition = "ReauthRequired"
	AccountConditionDisabled       AccountCondition = "Disabled"
	AccountConditionDraining       AccountCondition = "Draining"
	AccountConditionUnknown        AccountCondition = "Unknown"
)
