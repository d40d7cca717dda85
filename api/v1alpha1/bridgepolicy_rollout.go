package v1alpha1

import (
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Rollout says how a new version takes over.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'BlueGreen' || !has(self.blueGreen)",message="blueGreen belongs to type BlueGreen: remove it or change the type"
// +kubebuilder:validation:XValidation:rule="self.type == 'RollingUpdate' || !has(self.rollingUpdate)",message="rollingUpdate belongs to type RollingUpdate: remove it or change the type"
type Rollout struct {
	// type of the rollout.
	// +required
	Type RolloutType `json:"type"`

	// blueGreen belongs to type BlueGreen; without it its defaults hold.
	// +optional
	BlueGreen *BlueGreen `json:"blueGreen,omitempty"`

	// rollingUpdate belongs to type RollingUpdate; without it its defaults hold.
	// +optional
	RollingUpdate *RollingUpdate `json:"rollingUpdate,omitempty"`
}

// RolloutType is the way a new version takes over.
// +kubebuilder:validation:Enum=BlueGreen;RollingUpdate
// +kubebuilder:validation:MaxLength=13
type RolloutType string

// Values of RolloutType.
const (
	RolloutBlueGreen     RolloutType = "BlueGreen"
	RolloutRollingUpdate RolloutType = "RollingUpdate"
)

// BlueGreen tunes the hand-over between two slots.
type BlueGreen struct {
	// promotion Manual waits for the annotation causeway.dev/promote. Unset means
	// Automatic.
	// +optional
	Promotion Promotion `json:"promotion,omitempty"`

	// readySeconds that a candidate must be ready before it takes over. Unset means 15.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	ReadySeconds *int32 `json:"readySeconds,omitempty"`

	// overlapSeconds in which both slots receive traffic. Unset means 15.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	OverlapSeconds *int32 `json:"overlapSeconds,omitempty"`

	// retainSeconds that the old slot is kept for a roll-back. Unset means 900.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=604800
	RetainSeconds *int32 `json:"retainSeconds,omitempty"`

	// progressDeadlineSeconds for each step before the drain. Unset means 600.
	// +optional
	// +kubebuilder:validation:Minimum=30
	// +kubebuilder:validation:Maximum=86400
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// drainDeadlineSeconds that the old slot may take to finish. Unset means 21600.
	// +optional
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=604800
	DrainDeadlineSeconds *int32 `json:"drainDeadlineSeconds,omitempty"`
}

// Promotion says who promotes a candidate.
// +kubebuilder:validation:Enum=Automatic;Manual
// +kubebuilder:validation:MaxLength=9
type Promotion string

// Values of Promotion.
const (
	PromotionAutomatic Promotion = "Automatic"
	PromotionManual    Promotion = "Manual"
)

// RollingUpdate tunes the update of one slot in place.
type RollingUpdate struct {
	// maxSurge is how many pods may exist above replicas: a number or a percentage.
	// Unset means 25%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",message="maxSurge must be a number from 0 to 1000 or a percentage from 0% to 100%"
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many pods may be missing: a number or a percentage.
	// Unset means 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",message="maxUnavailable must be a number from 0 to 1000 or a percentage from 0% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// Activation tunes the lease by which one slot has authority.
//
// +kubebuilder:validation:XValidation:rule="!has(self.renewDeadlineSeconds) || !has(self.leaseDurationSeconds) || self.renewDeadlineSeconds * 3 <= self.leaseDurationSeconds * 2",message="renewDeadlineSeconds must be at most 2/3 of leaseDurationSeconds: lower it or raise leaseDurationSeconds"
// +kubebuilder:validation:XValidation:rule="!has(self.retryPeriodSeconds) || !has(self.renewDeadlineSeconds) || self.retryPeriodSeconds * 3 <= self.renewDeadlineSeconds",message="retryPeriodSeconds must be at most 1/3 of renewDeadlineSeconds: lower it or raise renewDeadlineSeconds"
type Activation struct {
	// holdSeconds that a new turn waits for a hand-over. Unset means 30.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	HoldSeconds *int32 `json:"holdSeconds,omitempty"`

	// leaseDurationSeconds after which an unrenewed lease is free. Unset means 30.
	// +optional
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=600
	LeaseDurationSeconds *int32 `json:"leaseDurationSeconds,omitempty"`

	// renewDeadlineSeconds after which a holder that cannot renew gives up. Unset
	// means 20.
	// +optional
	// +kubebuilder:validation:Minimum=3
	// +kubebuilder:validation:Maximum=400
	RenewDeadlineSeconds *int32 `json:"renewDeadlineSeconds,omitempty"`

	// retryPeriodSeconds between two tries to renew or acquire. Unset means 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=120
	RetryPeriodSeconds *int32 `json:"retryPeriodSeconds,omitempty"`

	// forceAfterSeconds that an unresponsive slot may hold up a hand-over before it is
	// scaled to 0. Unset means 120.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	ForceAfterSeconds *int32 `json:"forceAfterSeconds,omitempty"`
}

// Drain bounds the end of a proxy.
type Drain struct {
	// softSeconds that live turns go on before sessions are asked to move. Unset means
	// 600.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SoftSeconds *int32 `json:"softSeconds,omitempty"`

	// podGraceSeconds is the pod's termination grace period. Unset means 900.
	// +optional
	// +kubebuilder:validation:Minimum=40
	// +kubebuilder:validation:Maximum=86400
	PodGraceSeconds *int32 `json:"podGraceSeconds,omitempty"`

	// preStopSeconds that a deleted pod still takes new turns. Unset means 15.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	PreStopSeconds *int32 `json:"preStopSeconds,omitempty"`

	// endpointLagSeconds until all clients know that a pod is gone. Unset means 15.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=600
	EndpointLagSeconds *int32 `json:"endpointLagSeconds,omitempty"`
}
