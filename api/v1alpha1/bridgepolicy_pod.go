package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// Resources of the proxy container: cpu, memory and ephemeral-storage.
type Resources struct {
	// requests are what the scheduler reserves.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="requests may hold cpu, memory and ephemeral-storage: remove the others"
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// limits are what the container may use at most.
	// +optional
	// +kubebuilder:validation:MaxProperties=3
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",message="limits may hold cpu, memory and ephemeral-storage: remove the others"
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// Pod shapes the proxy pods. It is not a pod template: what it lacks is ours.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.serviceAccountName) && has(self.serviceAccountAnnotations))",message="serviceAccountAnnotations go onto our ServiceAccount: remove them or serviceAccountName"
type Pod struct {
	// labels of the pods, besides ours.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('causeway.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels must not use the prefixes causeway.dev/ and app.kubernetes.io/: rename the key"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="labels must have keys of at most 317 and values of at most 63 characters: shorten them"
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the pods, besides ours.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('causeway.dev/') && !k.startsWith('app.kubernetes.io/'))",message="annotations must not use the prefixes causeway.dev/ and app.kubernetes.io/: rename the key"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 4096)",message="annotations must have keys of at most 317 and values of at most 4096 characters: shorten them"
	Annotations map[string]string `json:"annotations,omitempty"`

	// nodeSelector are labels that a node must have.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="nodeSelector must have keys of at most 317 and values of at most 63 characters: shorten them"
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// tolerations of the pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// affinity of the pods. Unset means spread over nodes, preferred.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// topologySpreadConstraints of the pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// priorityClassName of the pods. Unset means the cluster's default.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="priorityClassName must be an object name: lower-case letters, digits, '-' and '.', at most 253"
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// serviceAccountAnnotations of the ServiceAccount that the operator makes.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('causeway.dev/'))",message="serviceAccountAnnotations must not use the prefix causeway.dev/: rename the key"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 4096)",message="serviceAccountAnnotations: keys must have at most 317, values at most 4096 characters: shorten them"
	ServiceAccountAnnotations map[string]string `json:"serviceAccountAnnotations,omitempty"`

	// serviceAccountName of an existing ServiceAccount to use. Unset means that the
	// operator makes one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="serviceAccountName must be an object name: lower-case letters, digits, '-' and '.', at most 253"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// securityProfile of the pods. Unset means Restricted.
	// +optional
	SecurityProfile *SecurityProfile `json:"securityProfile,omitempty"`
}

// SecurityProfile is the security context of the pods.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Custom' ? has(self.custom) : !has(self.custom)",message="custom must be set with type Custom and with no other: add or remove it"
type SecurityProfile struct {
	// type Restricted is the Pod Security Standard of that name with our user;
	// Custom changes the user and the group.
	// +required
	Type SecurityProfileType `json:"type"`

	// custom belongs to type Custom.
	// +optional
	Custom *CustomSecurity `json:"custom,omitempty"`
}

// SecurityProfileType is the kind of security context.
// +kubebuilder:validation:Enum=Restricted;Custom
// +kubebuilder:validation:MaxLength=10
type SecurityProfileType string

// Values of SecurityProfileType.
const (
	SecurityRestricted SecurityProfileType = "Restricted"
	SecurityCustom     SecurityProfileType = "Custom"
)

// CustomSecurity changes user and group of the pods.
type CustomSecurity struct {
	// runAsUser is the user of the container; never root. Unset means 65532.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	RunAsUser *int64 `json:"runAsUser,omitempty"`

	// fsGroup owns mounted files. Unset means 65532.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	FSGroup *int64 `json:"fsGroup,omitempty"`
}

// Service shapes the Service that clients use.
//
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerClass) || (has(self.type) && self.type == 'LoadBalancer')",message="loadBalancerClass needs type LoadBalancer: remove it or set the type"
type Service struct {
	// type of the Service. Unset means ClusterIP.
	// +optional
	Type ServiceType `json:"type,omitempty"`

	// port of the Service. Unset means 8080.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// annotations of the Service, besides ours.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('causeway.dev/'))",message="annotations must not use the prefix causeway.dev/: rename the key"
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 4096)",message="annotations must have keys of at most 317 and values of at most 4096 characters: shorten them"
	Annotations map[string]string `json:"annotations,omitempty"`

	// loadBalancerClass belongs to type LoadBalancer. Unset means the cluster's
	// default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`

	// exposePreview makes a Service for the candidate slot. Unset means Disabled.
	// +optional
	ExposePreview Switch `json:"exposePreview,omitempty"`
}

// ServiceType is the type of a Service.
// +kubebuilder:validation:Enum=ClusterIP;LoadBalancer
// +kubebuilder:validation:MaxLength=12
type ServiceType string

// Values of ServiceType.
const (
	ServiceClusterIP    ServiceType = "ClusterIP"
	ServiceLoadBalancer ServiceType = "LoadBalancer"
)
