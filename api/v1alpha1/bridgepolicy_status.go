package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BridgePolicyStatus is what the operator found about a bridge. What on-call asks
// first comes first.
type BridgePolicyStatus struct {
	// activeSlot is the slot that has authority.
	// +optional
	ActiveSlot SlotName `json:"activeSlot,omitempty"`

	// slots are the two fleets, keyed by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2
	Slots []SlotStatus `json:"slots,omitempty"`

	// activation is the state of the activation lease.
	// +optional
	Activation *ActivationStatus `json:"activation,omitempty"`

	// circuits sums up the circuits that are not closed.
	// +optional
	Circuits *CircuitSummary `json:"circuits,omitempty"`

	// conditions; see the API reference for the list.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the generation that the status was made from.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// effectiveHash identifies the spec with defaults applied.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	EffectiveHash string `json:"effectiveHash,omitempty"`

	// configHash identifies the configuration that proxies shall serve.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ConfigHash string `json:"configHash,omitempty"`

	// rollout is how far a new version has come. It is a report, never read back.
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// sessions counts the sessions of all proxies.
	// +optional
	Sessions *SessionTotals `json:"sessions,omitempty"`

	// replicaSummary is ready/wanted of the active slot, as in "3/3".
	// +optional
	// +kubebuilder:validation:MaxLength=16
	ReplicaSummary string `json:"replicaSummary,omitempty"`

	// reports counts the reports of the proxies.
	// +optional
	Reports *ReportTotals `json:"reports,omitempty"`

	// replicas of the active slot; the scale subresource reads it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`

	// selector of the active slot's pods; the scale subresource reads it.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Selector string `json:"selector,omitempty"`

	// history lists the last promotions, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	History []Promoted `json:"history,omitempty"`
}

// SlotStatus is the state of one slot.
type SlotStatus struct {
	// name of the slot.
	// +required
	Name SlotName `json:"name"`

	// revision of its Deployment.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision,omitempty"`

	// image of its proxies.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// replicas wanted.
	// +required
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// ready replicas.
	// +required
	// +kubebuilder:validation:Minimum=0
	Ready int32 `json:"ready"`

	// role of the slot.
	// +required
	Role SlotRole `json:"role"`

	// configHash is the configuration that all its ready proxies serve. Unset means
	// that they do not agree yet.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ConfigHash string `json:"configHash,omitempty"`

	// sessions of its proxies.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sessions int32 `json:"sessions,omitempty"`
}

// SlotRole is what a slot is for at the moment.
// +kubebuilder:validation:Enum=Active;Candidate;Draining;Retained;Idle
// +kubebuilder:validation:MaxLength=9
type SlotRole string

// Values of SlotRole.
const (
	SlotRoleActive    SlotRole = "Active"
	SlotRoleCandidate SlotRole = "Candidate"
	SlotRoleDraining  SlotRole = "Draining"
	SlotRoleRetained  SlotRole = "Retained"
	SlotRoleIdle      SlotRole = "Idle"
)

// ActivationStatus is the state of the activation lease.
type ActivationStatus struct {
	// slot that holds the lease. Unset means none.
	// +optional
	Slot SlotName `json:"slot,omitempty"`

	// epoch of the lease.
	// +required
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch"`

	// holder is the pod that renews the lease.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Holder string `json:"holder,omitempty"`

	// since is when the slot got the lease.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// RolloutStatus is how far a new version has come.
type RolloutStatus struct {
	// step of the rollout.
	// +required
	Step RolloutStep `json:"step"`

	// candidateRevision is the revision that shall take over.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	CandidateRevision string `json:"candidateRevision,omitempty"`

	// startedAt is when the step began.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`

	// deadlineAt is when the step is given up.
	// +optional
	DeadlineAt *metav1.Time `json:"deadlineAt,omitempty"`

	// lastFailedRevision is not tried again until the spec changes.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	LastFailedRevision string `json:"lastFailedRevision,omitempty"`
}

// RolloutStep is a step of a rollout.
// +kubebuilder:validation:Enum=Idle;Preparing;Ready;Gate;Handover;Switching;Draining;Retained
// +kubebuilder:validation:MaxLength=9
type RolloutStep string

// Values of RolloutStep.
const (
	StepIdle      RolloutStep = "Idle"
	StepPreparing RolloutStep = "Preparing"
	StepReady     RolloutStep = "Ready"
	StepGate      RolloutStep = "Gate"
	StepHandover  RolloutStep = "Handover"
	StepSwitching RolloutStep = "Switching"
	StepDraining  RolloutStep = "Draining"
	StepRetained  RolloutStep = "Retained"
)

// SessionTotals counts the sessions of all proxies.
type SessionTotals struct {
	// active sessions.
	// +required
	// +kubebuilder:validation:Minimum=0
	Active int32 `json:"active"`

	// draining sessions finish their turn and end.
	// +required
	// +kubebuilder:validation:Minimum=0
	Draining int32 `json:"draining"`

	// quarantined sessions do not use their anchor.
	// +required
	// +kubebuilder:validation:Minimum=0
	Quarantined int32 `json:"quarantined"`
}

// CircuitSummary sums up circuits that are not closed.
type CircuitSummary struct {
	// open circuits.
	// +required
	// +kubebuilder:validation:Minimum=0
	Open int32 `json:"open"`

	// halfOpen circuits let probes through.
	// +required
	// +kubebuilder:validation:Minimum=0
	HalfOpen int32 `json:"halfOpen"`

	// top are the most telling ones: those that stop most traffic first, then
	// those that stay longest.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Top []CircuitState `json:"top,omitempty"`
}

// ReportTotals counts the reports of the proxies.
type ReportTotals struct {
	// fresh reports are part of the sums.
	// +required
	// +kubebuilder:validation:Minimum=0
	Fresh int32 `json:"fresh"`

	// stale reports are not.
	// +required
	// +kubebuilder:validation:Minimum=0
	Stale int32 `json:"stale"`

	// omitted proxies do not report as objects.
	// +required
	// +kubebuilder:validation:Minimum=0
	Omitted int32 `json:"omitted"`
}

// Promoted is one promotion.
type Promoted struct {
	// revision that took over.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision"`

	// image of its proxies.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// promotedAt is when it took over.
	// +required
	PromotedAt metav1.Time `json:"promotedAt"`
}
