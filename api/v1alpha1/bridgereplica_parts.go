package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReplicaAccount is how one proxy sees an account.
type ReplicaAccount struct {
	// name of the account.
	// +required
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`

	// inflight turns.
	// +required
	// +kubebuilder:validation:Minimum=0
	Inflight int32 `json:"inflight"`

	// state of the account.
	// +required
	State AccountCondition `json:"state"`

	// reason explains the state in one CamelCase word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// credentialGeneration names the credential that the state is about, as the
	// operator numbered it. Unset means that it has no number.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CredentialGeneration int64 `json:"credentialGeneration,omitempty"`

	// since is when the proxy learned what the state is based on. Unset means that
	// it has always been so for this proxy.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`

	// until is when the state ends by itself. Unset means not by itself.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`

	// nextProbe is when a turn is let through to see whether the state has ended
	// before until. Unset means that none is.
	// +optional
	NextProbe *metav1.Time `json:"nextProbe,omitempty"`

	// usage is how much of its quota windows the account has used, as far as the
	// provider told. A window that is not listed is not known.
	// +optional
	// +listType=map
	// +listMapKey=window
	// +kubebuilder:validation:MaxItems=4
	Usage []UsageWindow `json:"usage,omitempty"`
}

// CircuitState is a circuit that is not closed.
type CircuitState struct {
	// scope of the circuit.
	// +required
	Scope CircuitScope `json:"scope"`

	// key identifies it: 12 hex digits of a digest.
	// +required
	// +kubebuilder:validation:MaxLength=12
	Key string `json:"key"`

	// name of a route: host, API family and transport. Unset for a session.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name,omitempty"`

	// state of the circuit.
	// +required
	State CircuitPosition `json:"state"`

	// reason is the kind of the newest failure, one CamelCase word such as
	// StreamIncomplete, IdleTimeout or CleanClose.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`

	// until is when the state ends at the latest, rounded up to 10 seconds. Unset
	// means with the next turn.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// CircuitScope is what a circuit protects.
// +kubebuilder:validation:Enum=Session;Route;Provider;Account
// +kubebuilder:validation:MaxLength=8
type CircuitScope string

// Values of CircuitScope.
const (
	CircuitScopeSession  CircuitScope = "Session"
	CircuitScopeRoute    CircuitScope = "Route"
	CircuitScopeProvider CircuitScope = "Provider"
	CircuitScopeAccount  CircuitScope = "Account"
)

// CircuitPosition is the state of a circuit that is not closed.
// +kubebuilder:validation:Enum=Open;HalfOpen
// +kubebuilder:validation:MaxLength=8
type CircuitPosition string

// Values of CircuitPosition.
const (
	CircuitOpen     CircuitPosition = "Open"
	CircuitHalfOpen CircuitPosition = "HalfOpen"
)

// RouteStatus is the breaker of one upstream route.
type RouteStatus struct {
	// key of the route: host, API family and transport.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Key string `json:"key"`

	// state of the breaker.
	// +required
	State RoutePosition `json:"state"`

	// openUntil is when the next probe is let through, rounded up to 10 seconds.
	// Unset means that turns are let through.
	// +optional
	OpenUntil *metav1.Time `json:"openUntil,omitempty"`

	// openings in a row; it begins anew once the breaker has closed for good.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Openings int32 `json:"openings,omitempty"`

	// reason is why the breaker is open or tries again, one CamelCase word:
	// ConsecutiveFailures, FailureShare, ProbeFailed, ProbeWithoutVerdict, Restored
	// from before a restart, or Forced by annotation.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
}

// RoutePosition is the state of the breaker of a route.
// +kubebuilder:validation:Enum=Closed;Open;HalfOpen
// +kubebuilder:validation:MaxLength=8
type RoutePosition string

// Values of RoutePosition.
const (
	RouteClosed   RoutePosition = "Closed"
	RouteOpen     RoutePosition = "Open"
	RouteHalfOpen RoutePosition = "HalfOpen"
)

// ReplicaQuarantine counts quarantined sessions.
type ReplicaQuarantine struct {
	// count of all.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// recent ones, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Recent []QuarantineEntry `json:"recent,omitempty"`
}

// QuarantineEntry is one quarantined session.
type QuarantineEntry struct {
	// key identifies the session: 12 hex digits of a digest.
	// +required
	// +kubebuilder:validation:MaxLength=12
	Key string `json:"key"`

	// reason in one CamelCase word: AnchorDenied, Wedged, Eventless, CircuitOpened
	// or FailedAgain.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`

	// until is when an untouched record is forgotten, rounded up to 10 minutes. A
	// response that completes on the session ends it earlier.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// LaneStatus says how full a lane is.
type LaneStatus struct {
	// lane is the kind of traffic.
	// +required
	Lane Lane `json:"lane"`

	// inflight turns.
	// +required
	// +kubebuilder:validation:Minimum=0
	Inflight int32 `json:"inflight"`

	// queued turns.
	// +required
	// +kubebuilder:validation:Minimum=0
	Queued int32 `json:"queued"`

	// mode says whether the lane is bounded.
	// +optional
	Mode BulkheadMode `json:"mode,omitempty"`

	// limit of turns at once. Unset with mode Unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Limit *int32 `json:"limit,omitempty"`
}
