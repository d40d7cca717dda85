package v1alpha1

// LocalObjectReference names an object of the same namespace.
type LocalObjectReference struct {
	// name of the object, in the same namespace.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be an object name: lower-case letters, digits, '-' and '.', at most 253"
	Name string `json:"name"`
}

// SecretKeyReference names one key of a Secret of the same namespace.
type SecretKeyReference struct {
	// name of the Secret, in the same namespace.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="name must be an object name: lower-case letters, digits, '-' and '.', at most 253"
	Name string `json:"name"`

	// key within the Secret.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="key must be a Secret key: letters, digits, '-', '_' and '.'"
	Key string `json:"key"`
}

// BoundPolicies lists the BridgePolicies that refer to an object.
type BoundPolicies struct {
	// count of all BridgePolicies that refer to this object.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`

	// names of the first of them, sorted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`

	// omitted is how many did not fit into names.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Omitted int32 `json:"omitted,omitempty"`
}

// Switch turns a feature on or off.
// +kubebuilder:validation:Enum=Enabled;Disabled
// +kubebuilder:validation:MaxLength=8
type Switch string

// Values of Switch.
const (
	SwitchEnabled  Switch = "Enabled"
	SwitchDisabled Switch = "Disabled"
)

// SlotName is the colour of a slot.
// +kubebuilder:validation:Enum=blue;green
// +kubebuilder:validation:MaxLength=5
type SlotName string

// The two slots of a bridge.
const (
	SlotBlue  SlotName = "blue"
	SlotGreen SlotName = "green"
)

// Caps of lists in status. A writer cuts to the cap and says how much it left
// out, because one entry too many makes the API server refuse the whole write.
const (
	MaxBoundPolicyNames = 16
	MaxConditions       = 16
	MaxStatusAccounts   = 64
	MaxStatusCircuits   = 32
	MaxTopCircuits      = 5
	MaxPromotions       = 5
	MaxRecentQuarantine = 5
	MaxStatusLanes      = 8
	MaxStatusRoutes     = 8
	MaxUsageWindows     = 4
	MaxHistory          = 5
)

// Caps of texts in status, in bytes.
const (
	MaxAccountMessage = 256
	MaxUnusable       = 160
	MaxRouteKey       = 128
	MaxUsageWindow    = 16
	// MaxUsageMinutes is a year.
	MaxUsageMinutes = 527040
)
