package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BridgePolicy declares a fleet of proxies that spends one AccountPool under one
// CircuitPolicy.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=bridgepolicies,shortName=bp,categories=causeway
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be at most 40 of a-z, 0-9 and '-', start with a letter, not end with '-'"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Slot",type=string,JSONPath=`.status.activeSlot`
// +kubebuilder:printcolumn:name="Replicas",type=string,JSONPath=`.status.replicaSummary`
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.sessions.active`
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.accountPoolRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Circuits",type=integer,JSONPath=`.status.circuits.open`,priority=1
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.rollout.step`,priority=1
// +kubebuilder:printcolumn:name="Epoch",type=integer,JSONPath=`.status.activation.epoch`,priority=1
// +kubebuilder:printcolumn:name="Candidate",type=string,JSONPath=`.status.rollout.candidateRevision`,priority=1
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.status.slots[?(@.role=="Active")].image`,priority=1
type BridgePolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user wants.
	// +required
	Spec BridgePolicySpec `json:"spec"`

	// status is what the operator found.
	// +optional
	Status BridgePolicyStatus `json:"status,omitempty"`
}

// BridgePolicyList is a list of BridgePolicies.
//
// +kubebuilder:object:root=true
type BridgePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BridgePolicy `json:"items"`
}

// BridgePolicySpec is what the user wants of a bridge.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",message="replicas and autoscaling exclude each other: remove one of them"
type BridgePolicySpec struct {
	// accountPoolRef is the AccountPool to spend.
	// +required
	AccountPoolRef LocalObjectReference `json:"accountPoolRef"`

	// circuitPolicyRef is the CircuitPolicy to follow. Unset means the built-in
	// profile.
	// +optional
	CircuitPolicyRef *LocalObjectReference `json:"circuitPolicyRef,omitempty"`

	// management Paused stops all writes to child objects; status is still
	// computed. Unset means Active.
	// +optional
	Management Management `json:"management,omitempty"`

	// image of the proxy. Unset means the one the operator was released with.
	// +optional
	Image *Image `json:"image,omitempty"`

	// replicas of the active slot. Unset means 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// autoscaling lets the operator choose the number of replicas. Unset means off.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`

	// resources of the proxy container. Unset means the operator's own choice.
	// +optional
	Resources *Resources `json:"resources,omitempty"`

	// pod shapes the proxy pods.
	// +optional
	Pod *Pod `json:"pod,omitempty"`

	// service shapes the Service that clients use.
	// +optional
	Service *Service `json:"service,omitempty"`

	// store is where session records live. Unset means in the memory of the proxies.
	// +optional
	Store *Store `json:"store,omitempty"`

	// clients says who may use the bridge.
	// +required
	Clients Clients `json:"clients"`

	// rollout says how a new version takes over.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// activation tunes the lease by which one slot has authority.
	// +optional
	Activation *Activation `json:"activation,omitempty"`

	// drain bounds the end of a proxy.
	// +optional
	Drain *Drain `json:"drain,omitempty"`

	// reporting says how proxies report.
	// +optional
	Reporting *Reporting `json:"reporting,omitempty"`
}

// Management says whether the operator may change child objects.
// +kubebuilder:validation:Enum=Active;Paused
// +kubebuilder:validation:MaxLength=6
type Management string

// Values of Management.
const (
	ManagementActive Management = "Active"
	ManagementPaused Management = "Paused"
)

// Image is the image of the proxy.
//
// +kubebuilder:validation:XValidation:rule="!has(self.upgradePolicy) || self.upgradePolicy != 'Pinned' || has(self.reference)",message="reference must be set with upgradePolicy Pinned: add it or use FollowOperator"
type Image struct {
	// reference of the image, with tag or digest; required with upgradePolicy
	// Pinned. Unset means the one the operator was released with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="!self.contains(' ')",message="reference must not contain spaces: write REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST"
	Reference string `json:"reference,omitempty"`

	// pullPolicy of the image. Unset means what Kubernetes chooses by the tag.
	// +optional
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`

	// pullSecrets are Secrets with registry credentials, keyed by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	PullSecrets []LocalObjectReference `json:"pullSecrets,omitempty"`

	// upgradePolicy FollowOperator changes the image with the operator's version,
	// Pinned keeps reference. Unset means Pinned with reference, else FollowOperator.
	// +optional
	UpgradePolicy UpgradePolicy `json:"upgradePolicy,omitempty"`
}

// UpgradePolicy says whether the image follows the operator.
// +kubebuilder:validation:Enum=Pinned;FollowOperator
// +kubebuilder:validation:MaxLength=14
type UpgradePolicy string

// Values of UpgradePolicy.
const (
	UpgradePinned         UpgradePolicy = "Pinned"
	UpgradeFollowOperator UpgradePolicy = "FollowOperator"
)

// Autoscaling lets the operator choose the number of replicas.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must be at most maxReplicas: lower it or raise maxReplicas"
type Autoscaling struct {
	// minReplicas of the active slot. Unset means 2, or maxReplicas if that is less.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// maxReplicas of the active slot.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas int32 `json:"maxReplicas"`

	// targetCPUPercent of the requested CPU. Unset means 70, unless another target is set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	TargetCPUPercent *int32 `json:"targetCPUPercent,omitempty"`

	// targetSessionsPerReplica. Unset means that sessions do not scale.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	TargetSessionsPerReplica *int32 `json:"targetSessionsPerReplica,omitempty"`
}

// Store is where session records live.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Redis' ? has(self.redis) : !has(self.redis)",message="redis must be set with type Redis and with no other: add or remove it"
type Store struct {
	// type of the store.
	// +required
	Type StoreType `json:"type"`

	// redis belongs to type Redis.
	// +optional
	Redis *Redis `json:"redis,omitempty"`
}

// StoreType is the kind of store.
// +kubebuilder:validation:Enum=Memory;Redis
// +kubebuilder:validation:MaxLength=6
type StoreType string

// Values of StoreType.
const (
	StoreMemory StoreType = "Memory"
	StoreRedis  StoreType = "Redis"
)

// Redis is a server that speaks the Redis protocol.
type Redis struct {
	// addresses of the servers, host:port.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=259
	// +kubebuilder:validation:XValidation:rule="self.all(a, a.matches('^[^ /@]+:[0-9]{1,5}$'))",message="addresses must be HOST:PORT: remove scheme, path and credentials"
	Addresses []string `json:"addresses"`

	// authSecretRef is the Secret key with the password. Unset means none.
	// +optional
	AuthSecretRef *SecretKeyReference `json:"authSecretRef,omitempty"`

	// tls of the connection. Unset means Disabled.
	// +optional
	TLS Switch `json:"tls,omitempty"`
}

// Clients says who may use a bridge.
//
// +kubebuilder:validation:XValidation:rule="has(self.keysSecretRef) || (has(self.mode) && self.mode == 'Open')",message="keysSecretRef must be set unless mode is Open: name a Secret with one key per client"
type Clients struct {
	// keysSecretRef is the Secret with one key per client: the name of the client
	// and its key (cwk-...), or the SHA-256 of that key in hex. Required unless mode
	// is Open.
	// +optional
	KeysSecretRef *LocalObjectReference `json:"keysSecretRef,omitempty"`

	// mode Open lets everybody in who can reach the Service. Unset means Required.
	// +optional
	Mode ClientsMode `json:"mode,omitempty"`
}

// ClientsMode says whether clients need a key.
// +kubebuilder:validation:Enum=Required;Open
// +kubebuilder:validation:MaxLength=8
type ClientsMode string

// Values of ClientsMode.
const (
	ClientsRequired ClientsMode = "Required"
	ClientsOpen     ClientsMode = "Open"
)

// Reporting says how proxies report.
type Reporting struct {
	// mode Metrics reports configuration and role only and leaves numbers to
	// metrics; use it above 500 replicas. Unset means Objects.
	// +optional
	Mode ReportingMode `json:"mode,omitempty"`

	// minIntervalSeconds between two reports of one proxy. Unset means 15.
	// +optional
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=600
	MinIntervalSeconds *int32 `json:"minIntervalSeconds,omitempty"`
}

// ReportingMode says what proxies report.
// +kubebuilder:validation:Enum=Objects;Metrics
// +kubebuilder:validation:MaxLength=7
type ReportingMode string

// Values of ReportingMode.
const (
	ReportingObjects ReportingMode = "Objects"
	ReportingMetrics ReportingMode = "Metrics"
)
