package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CircuitPolicyStatus is what the operator found about a circuit policy.
type CircuitPolicyStatus struct {
	// observedGeneration is the generation that the status was made from.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Ready, Accepted and FullyEffective.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// boundPolicies are the BridgePolicies that use this policy.
	// +optional
	BoundPolicies *BoundPolicies `json:"boundPolicies,omitempty"`

	// effective are the numbers in force, with defaults applied.
	// +optional
	Effective *EffectiveCircuit `json:"effective,omitempty"`

	// effectiveHash identifies the policy with defaults applied.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	EffectiveHash string `json:"effectiveHash,omitempty"`
}

// EffectiveCircuit is a circuit policy with defaults applied, flat. Each number
// means what the field of the spec means whose name it ends with.
type EffectiveCircuit struct {
	// retryMaxAttempts in force.
	// +required
	RetryMaxAttempts int32 `json:"retryMaxAttempts"`
	// retryBudgetPercent in force.
	// +required
	RetryBudgetPercent int32 `json:"retryBudgetPercent"`
	// retryFailureThreshold in force.
	// +required
	RetryFailureThreshold int32 `json:"retryFailureThreshold"`
	// retryBaseBackoffSeconds in force.
	// +required
	RetryBaseBackoffSeconds int32 `json:"retryBaseBackoffSeconds"`
	// retryMaxBackoffSeconds in force.
	// +required
	RetryMaxBackoffSeconds int32 `json:"retryMaxBackoffSeconds"`
	// retryCleanCloseMaxBackoffSeconds in force.
	// +required
	RetryCleanCloseMaxBackoffSeconds int32 `json:"retryCleanCloseMaxBackoffSeconds"`
	// retryHalfOpenLeaseSeconds in force.
	// +required
	RetryHalfOpenLeaseSeconds int32 `json:"retryHalfOpenLeaseSeconds"`
	// retryStateTTLSeconds in force.
	// +required
	RetryStateTTLSeconds int32 `json:"retryStateTTLSeconds"`
	// breakerConsecutiveFailures in force.
	// +required
	BreakerConsecutiveFailures int32 `json:"breakerConsecutiveFailures"`
	// breakerWindowSeconds in force.
	// +required
	BreakerWindowSeconds int32 `json:"breakerWindowSeconds"`
	// breakerMinSamples in force.
	// +required
	BreakerMinSamples int32 `json:"breakerMinSamples"`
	// breakerFailurePercent in force.
	// +required
	BreakerFailurePercent int32 `json:"breakerFailurePercent"`
	// breakerMinDistinctAccounts in force.
	// +required
	BreakerMinDistinctAccounts int32 `json:"breakerMinDistinctAccounts"`
	// breakerMinDistinctCallers in force.
	// +required
	BreakerMinDistinctCallers int32 `json:"breakerMinDistinctCallers"`
	// breakerOpenSeconds in force.
	// +required
	BreakerOpenSeconds int32 `json:"breakerOpenSeconds"`
	// breakerMaxOpenSeconds in force.
	// +required
	BreakerMaxOpenSeconds int32 `json:"breakerMaxOpenSeconds"`
	// breakerHalfOpenMaxCalls in force.
	// +required
	BreakerHalfOpenMaxCalls int32 `json:"breakerHalfOpenMaxCalls"`
	// breakerSuccessThreshold in force.
	// +required
	BreakerSuccessThreshold int32 `json:"breakerSuccessThreshold"`
	// breakerProbeVerdictSeconds in force.
	// +required
	BreakerProbeVerdictSeconds int32 `json:"breakerProbeVerdictSeconds"`
	// quarantineEventlessThreshold in force.
	// +required
	QuarantineEventlessThreshold int32 `json:"quarantineEventlessThreshold"`
	// quarantineRetainSeconds in force.
	// +required
	QuarantineRetainSeconds int32 `json:"quarantineRetainSeconds"`
	// ejectionConsecutiveFailures in force.
	// +required
	EjectionConsecutiveFailures int32 `json:"ejectionConsecutiveFailures"`
	// ejectionBaseSeconds in force.
	// +required
	EjectionBaseSeconds int32 `json:"ejectionBaseSeconds"`
	// ejectionMaxSeconds in force.
	// +required
	EjectionMaxSeconds int32 `json:"ejectionMaxSeconds"`
	// ejectionMaxEjectPercent in force.
	// +required
	EjectionMaxEjectPercent int32 `json:"ejectionMaxEjectPercent"`
	// lanes are the limits of all lanes in force, listed in the spec or not.
	// +optional
	// +listType=map
	// +listMapKey=lane
	// +kubebuilder:validation:MaxItems=8
	Lanes []EffectiveLane `json:"lanes,omitempty"`
	// httpMaxConcurrent in force (0 = unlimited).
	// +required
	HTTPMaxConcurrent int32 `json:"httpMaxConcurrent"`
	// httpMaxQueued in force.
	// +required
	HTTPMaxQueued int32 `json:"httpMaxQueued"`
	// httpQueueTimeoutSeconds in force.
	// +required
	HTTPQueueTimeoutSeconds int32 `json:"httpQueueTimeoutSeconds"`
	// connectSeconds in force.
	// +required
	ConnectSeconds int32 `json:"connectSeconds"`
	// tlsSeconds in force.
	// +required
	TLSSeconds int32 `json:"tlsSeconds"`
	// responseHeaderSeconds in force.
	// +required
	ResponseHeaderSeconds int32 `json:"responseHeaderSeconds"`
	// firstEventSeconds in force.
	// +required
	FirstEventSeconds int32 `json:"firstEventSeconds"`
	// idleSeconds in force.
	// +required
	IdleSeconds int32 `json:"idleSeconds"`
	// keepaliveSeconds in force.
	// +required
	KeepaliveSeconds int32 `json:"keepaliveSeconds"`
	// requestSeconds in force (0 = none).
	// +required
	RequestSeconds int32 `json:"requestSeconds"`
	// callerMaxSeconds in force.
	// +required
	CallerMaxSeconds int32 `json:"callerMaxSeconds"`
	// cancelGraceSeconds in force.
	// +required
	CancelGraceSeconds int32 `json:"cancelGraceSeconds"`
}

// EffectiveLane is one lane with defaults applied.
type EffectiveLane struct {
	// lane is the kind of traffic.
	// +required
	Lane Lane `json:"lane"`

	// mode says whether it is bounded.
	// +required
	Mode BulkheadMode `json:"mode"`

	// maxConcurrent turns at once. Unset with mode Unlimited.
	// +optional
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`

	// maxQueued turns may wait. Unset with mode Unlimited.
	// +optional
	MaxQueued *int32 `json:"maxQueued,omitempty"`

	// queueTimeoutSeconds is how long a turn may wait.
	// +required
	QueueTimeoutSeconds int32 `json:"queueTimeoutSeconds"`
}
