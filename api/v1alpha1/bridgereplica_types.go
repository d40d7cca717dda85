package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BridgeReplica is what one proxy pod reports. The operator creates it under the
// name of the pod and the pod writes its status; users only read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=brep,categories=causeway
// +kubebuilder:printcolumn:name="Slot",type=string,JSONPath=`.spec.slot`
// +kubebuilder:printcolumn:name="Sessions",type=integer,JSONPath=`.status.sessions.active`
// +kubebuilder:printcolumn:name="Draining",type=integer,JSONPath=`.status.sessions.draining`
// +kubebuilder:printcolumn:name="Open",type=integer,JSONPath=`.status.openCircuits`
// +kubebuilder:printcolumn:name="Config",type=string,JSONPath=`.status.observedConfig.hash`
// +kubebuilder:printcolumn:name="Reported",type=date,JSONPath=`.status.reportedAt`
type BridgeReplica struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which pod this is. The operator writes it once.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec cannot be changed: the operator writes it once for each pod"
	Spec BridgeReplicaSpec `json:"spec"`

	// status is the report of the pod.
	// +optional
	Status BridgeReplicaStatus `json:"status,omitempty"`
}

// BridgeReplicaList is a list of BridgeReplicas.
//
// +kubebuilder:object:root=true
type BridgeReplicaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BridgeReplica `json:"items"`
}

// BridgeReplicaSpec says which pod a report is of.
type BridgeReplicaSpec struct {
	// policy is the BridgePolicy of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Policy string `json:"policy"`

	// slot of the pod.
	// +required
	Slot SlotName `json:"slot"`

	// podUID is metadata.uid of the pod.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	PodUID string `json:"podUID"`
}

// BridgeReplicaStatus is the report of one proxy.
type BridgeReplicaStatus struct {
	// observedConfig is the configuration the proxy saw last.
	// +optional
	ObservedConfig *ObservedConfig `json:"observedConfig,omitempty"`

	// build of the proxy.
	// +optional
	Build *Build `json:"build,omitempty"`

	// role of the proxy.
	// +optional
	Role ReplicaRole `json:"role,omitempty"`

	// epoch is the newest activation epoch the proxy knows.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch,omitempty"`

	// sessions counts the sessions of the proxy.
	// +optional
	Sessions *ReplicaSessions `json:"sessions,omitempty"`

	// turns says how turns of clients fared of late.
	// +optional
	Turns *ReplicaTurns `json:"turns,omitempty"`

	// accounts says how the proxy sees each account.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Accounts []ReplicaAccount `json:"accounts,omitempty"`

	// openCircuits counts the circuits that are not closed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OpenCircuits *int32 `json:"openCircuits,omitempty"`

	// circuits lists circuits that are not closed, those that stay longest first
	// and those that wait for a turn last.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Circuits []CircuitState `json:"circuits,omitempty"`

	// circuitsOmitted is how many did not fit into circuits.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CircuitsOmitted int32 `json:"circuitsOmitted,omitempty"`

	// routes says how the breaker of each upstream route is, those that are not
	// closed first.
	// +optional
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=8
	Routes []RouteStatus `json:"routes,omitempty"`

	// routesOmitted is how many did not fit into routes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RoutesOmitted int32 `json:"routesOmitted,omitempty"`

	// quarantine counts sessions whose anchor is not used.
	// +optional
	Quarantine *ReplicaQuarantine `json:"quarantine,omitempty"`

	// lanes says how full each lane is.
	// +optional
	// +listType=map
	// +listMapKey=lane
	// +kubebuilder:validation:MaxItems=8
	Lanes []LaneStatus `json:"lanes,omitempty"`

	// reportSequence rises with each report of one process.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReportSequence int64 `json:"reportSequence,omitempty"`

	// reportedAt is when the report was written.
	// +optional
	ReportedAt *metav1.Time `json:"reportedAt,omitempty"`
}

// ObservedConfig is a proxy's answer to a configuration.
type ObservedConfig struct {
	// generation of the BridgePolicy that the configuration was made from.
	// +required
	// +kubebuilder:validation:Minimum=0
	Generation int64 `json:"generation"`

	// hash of the configuration.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Hash string `json:"hash"`

	// credentialsHash of the credentials in use.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	CredentialsHash string `json:"credentialsHash,omitempty"`

	// state says whether the proxy serves it.
	// +required
	State ConfigState `json:"state"`

	// reason of a rejection, one CamelCase word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
}

// ConfigState says what a proxy did with a configuration.
// +kubebuilder:validation:Enum=Applied;Rejected
// +kubebuilder:validation:MaxLength=8
type ConfigState string

// Values of ConfigState.
const (
	ConfigApplied  ConfigState = "Applied"
	ConfigRejected ConfigState = "Rejected"
)

// Build identifies a binary.
type Build struct {
	// version of the proxy.
	// +required
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version"`

	// revision of the source.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Revision string `json:"revision,omitempty"`
}

// ReplicaRole is what a proxy does.
// +kubebuilder:validation:Enum=Serving;Standby;Draining
// +kubebuilder:validation:MaxLength=8
type ReplicaRole string

// Values of ReplicaRole.
const (
	RoleServing  ReplicaRole = "Serving"
	RoleStandby  ReplicaRole = "Standby"
	RoleDraining ReplicaRole = "Draining"
)

// ReplicaSessions counts the sessions of a proxy.
type ReplicaSessions struct {
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

	// oldestActiveSeconds is the age of the oldest live turn, rounded up to 60,
	// 600, 3600, 21600 or 86400. Unset means none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OldestActiveSeconds *int32 `json:"oldestActiveSeconds,omitempty"`
}
