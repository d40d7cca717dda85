package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CircuitPolicy says when to try again, when to stop trying, and how long to wait.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=circuitpolicies,shortName=cp,categories=causeway
// +kubebuilder:printcolumn:name="Retry-Base",type=integer,JSONPath=`.status.effective.retryBaseBackoffSeconds`
// +kubebuilder:printcolumn:name="Breaker-Open",type=integer,JSONPath=`.status.effective.breakerOpenSeconds`
// +kubebuilder:printcolumn:name="Policies",type=integer,JSONPath=`.status.boundPolicies.count`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CircuitPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user wants. Every part may be left out.
	// +optional
	Spec CircuitPolicySpec `json:"spec,omitempty"`

	// status is what the operator found.
	// +optional
	Status CircuitPolicyStatus `json:"status,omitempty"`
}

// CircuitPolicyList is a list of CircuitPolicies.
//
// +kubebuilder:object:root=true
type CircuitPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CircuitPolicy `json:"items"`
}

// CircuitPolicySpec is what the user wants of retries, circuits and deadlines.
type CircuitPolicySpec struct {
	// retryCircuit is the circuit of one session key and the attempts of one turn.
	// +optional
	RetryCircuit *RetryCircuit `json:"retryCircuit,omitempty"`

	// breaker is the circuit of a route to the provider.
	// +optional
	Breaker *Breaker `json:"breaker,omitempty"`

	// quarantine takes anchors of sessions out of use that give no events.
	// +optional
	Quarantine *Quarantine `json:"quarantine,omitempty"`

	// ejection takes failing accounts out of rotation.
	// +optional
	Ejection *Ejection `json:"ejection,omitempty"`

	// bulkheads bound lanes, keyed by lane. A lane that is not listed is bounded as
	// well, by turns at once and turns that wait: HTTP and WebSocket 200 and 400,
	// Compact 32 and 64, Media 8 and 16, Background 16 and 32. Turns wait for at most
	// 30 seconds, and for less than deadlines.requestSeconds.
	// +optional
	// +listType=map
	// +listMapKey=lane
	// +kubebuilder:validation:MaxItems=8
	Bulkheads []Bulkhead `json:"bulkheads,omitempty"`

	// deadlines bound the phases of a turn.
	// +optional
	Deadlines *Deadlines `json:"deadlines,omitempty"`
}

// RetryCircuit is the circuit of one session key and the attempts of one turn.
//
// +kubebuilder:validation:XValidation:rule="!has(self.baseBackoffSeconds) || !has(self.maxBackoffSeconds) || self.baseBackoffSeconds <= self.maxBackoffSeconds",message="baseBackoffSeconds must be at most maxBackoffSeconds: lower it or raise maxBackoffSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.cleanCloseMaxBackoffSeconds) || !has(self.maxBackoffSeconds) || self.cleanCloseMaxBackoffSeconds <= self.maxBackoffSeconds",message="cleanCloseMaxBackoffSeconds must be at most maxBackoffSeconds: lower it or raise maxBackoffSeconds"
type RetryCircuit struct {
	// maxAttempts of one turn, the first one included. What an account refuses for a
	// reason of its own, such as its limit, does not count, nor what did not leave.
	// Unset means 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	MaxAttempts *int32 `json:"maxAttempts,omitempty"`

	// budgetPercent of the turns of the last minute that may be retried; ten may be
	// anyway, unless it is 0. Unset means 20.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	BudgetPercent *int32 `json:"budgetPercent,omitempty"`

	// failureThreshold is how many failures in a row open the circuit. Unset means 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	FailureThreshold *int32 `json:"failureThreshold,omitempty"`

	// baseBackoffSeconds is how long the circuit stays open the first time. Unset
	// means 60.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	BaseBackoffSeconds *int32 `json:"baseBackoffSeconds,omitempty"`

	// maxBackoffSeconds is the longest time it stays open. Unset means 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxBackoffSeconds *int32 `json:"maxBackoffSeconds,omitempty"`

	// cleanCloseMaxBackoffSeconds is the longest time after failures that were clean
	// closes of the upstream. Unset means 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	CleanCloseMaxBackoffSeconds *int32 `json:"cleanCloseMaxBackoffSeconds,omitempty"`

	// halfOpenLeaseSeconds is how long a probe is waited for whose proxy is gone; a
	// proxy that lives renews it as long as the turn does. Unset means 60.
	// +optional
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=3600
	HalfOpenLeaseSeconds *int32 `json:"halfOpenLeaseSeconds,omitempty"`

	// stateTTLSeconds is how long an untouched circuit is remembered. Unset means
	// 3600.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	StateTTLSeconds *int32 `json:"stateTTLSeconds,omitempty"`

	// retryOn are the failures that allow another attempt: while no byte of the turn
	// has left, where the upstream says that it has not run it, or where a second run
	// does no harm. Unset means all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	RetryOn []RetryReason `json:"retryOn,omitempty"`
}

// RetryReason is a failure after which a turn may be tried again.
// +kubebuilder:validation:Enum=ConnectFailure;Status429;Status503;StreamIncomplete;IdleTimeout
// +kubebuilder:validation:MaxLength=16
type RetryReason string

// Values of RetryReason.
const (
	RetryConnectFailure   RetryReason = "ConnectFailure"
	RetryStatus429        RetryReason = "Status429"
	RetryStatus503        RetryReason = "Status503"
	RetryStreamIncomplete RetryReason = "StreamIncomplete"
	RetryIdleTimeout      RetryReason = "IdleTimeout"
)

// Breaker is the circuit of a route to the provider.
//
// +kubebuilder:validation:XValidation:rule="!has(self.openSeconds) || !has(self.maxOpenSeconds) || self.openSeconds <= self.maxOpenSeconds",message="openSeconds must be at most maxOpenSeconds: lower it or raise maxOpenSeconds"
type Breaker struct {
	// scope is what shares one breaker: each route, or the whole provider. Unset
	// means Route.
	// +optional
	Scope BreakerScope `json:"scope,omitempty"`

	// consecutiveFailures open the breaker. Unset means 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ConsecutiveFailures *int32 `json:"consecutiveFailures,omitempty"`

	// windowSeconds is the period over which failurePercent is taken. Unset means 60.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=600
	WindowSeconds *int32 `json:"windowSeconds,omitempty"`

	// minSamples within the window before failurePercent counts. Unset means 20.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MinSamples *int32 `json:"minSamples,omitempty"`

	// failurePercent of the samples opens the breaker. Unset means 50.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	FailurePercent *int32 `json:"failurePercent,omitempty"`

	// minDistinctAccounts must have failed, so that one bad account does not open
	// it. Unset means 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MinDistinctAccounts *int32 `json:"minDistinctAccounts,omitempty"`

	// minDistinctCallers must have failed, so that one bad caller does not open it.
	// Unset means 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MinDistinctCallers *int32 `json:"minDistinctCallers,omitempty"`

	// openSeconds is how long it stays open the first time. Unset means 15.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	OpenSeconds *int32 `json:"openSeconds,omitempty"`

	// maxOpenSeconds is the longest time it stays open. Unset means 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	MaxOpenSeconds *int32 `json:"maxOpenSeconds,omitempty"`

	// halfOpenMaxCalls are let through at once while half-open. Unset means 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	HalfOpenMaxCalls *int32 `json:"halfOpenMaxCalls,omitempty"`

	// successThreshold successes close it. Unset means 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	SuccessThreshold *int32 `json:"successThreshold,omitempty"`

	// probeVerdictSeconds is how long a probe may take until it counts as failed.
	// Unset means 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	ProbeVerdictSeconds *int32 `json:"probeVerdictSeconds,omitempty"`

	// countedFailures are the failures that count. Unset means all of them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	CountedFailures []CountedFailure `json:"countedFailures,omitempty"`
}

// BreakerScope is what shares one breaker.
// +kubebuilder:validation:Enum=Route;Provider
// +kubebuilder:validation:MaxLength=8
type BreakerScope string

// Values of BreakerScope.
const (
	BreakerRoute    BreakerScope = "Route"
	BreakerProvider BreakerScope = "Provider"
)

// CountedFailure is a failure that a breaker counts.
// +kubebuilder:validation:Enum=ConnectFailure;TLSFailure;Status5xx;FirstEventTimeout;ProtocolError
// +kubebuilder:validation:MaxLength=17
type CountedFailure string

// Values of CountedFailure.
const (
	CountConnectFailure    CountedFailure = "ConnectFailure"
	CountTLSFailure        CountedFailure = "TLSFailure"
	CountStatus5xx         CountedFailure = "Status5xx"
	CountFirstEventTimeout CountedFailure = "FirstEventTimeout"
	CountProtocolError     CountedFailure = "ProtocolError"
)

// Quarantine takes anchors of sessions out of use. It ends when a new response
// completes on the session key, not by time.
type Quarantine struct {
	// eventlessThreshold is how many timeouts without any event quarantine an
	// anchor. Unset means 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	EventlessThreshold *int32 `json:"eventlessThreshold,omitempty"`

	// retainSeconds is how long an untouched record is kept. Unset means 3600.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=86400
	RetainSeconds *int32 `json:"retainSeconds,omitempty"`
}

// Ejection takes failing accounts out of rotation.
//
// +kubebuilder:validation:XValidation:rule="!has(self.baseSeconds) || !has(self.maxSeconds) || self.baseSeconds <= self.maxSeconds",message="baseSeconds must be at most maxSeconds: lower it or raise maxSeconds"
type Ejection struct {
	// consecutiveFailures eject an account. Unset means 3.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	ConsecutiveFailures *int32 `json:"consecutiveFailures,omitempty"`

	// baseSeconds is how long the first ejection lasts. Unset means 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	BaseSeconds *int32 `json:"baseSeconds,omitempty"`

	// maxSeconds is the longest ejection. Unset means 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxSeconds *int32 `json:"maxSeconds,omitempty"`

	// maxEjectPercent of the accounts may be ejected at once. Unset means 50.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxEjectPercent *int32 `json:"maxEjectPercent,omitempty"`
}
