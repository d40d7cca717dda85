package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds.
const GroupName = "causeway.dev"

// Kinds of this package.
const (
	KindAccountPool   = "AccountPool"
	KindCircuitPolicy = "CircuitPolicy"
	KindBridgePolicy  = "BridgePolicy"
	KindBridgeReplica = "BridgeReplica"
)

var (
	// GroupVersion is the group and version of the types of this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

	// SchemeGroupVersion is GroupVersion under the name that generated code uses.
	SchemeGroupVersion = GroupVersion

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers the types of this package with a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&AccountPool{}, &AccountPoolList{},
		&CircuitPolicy{}, &CircuitPolicyList{},
		&BridgePolicy{}, &BridgePolicyList{},
		&BridgeReplica{}, &BridgeReplicaList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Resource qualifies a resource name with the group of this package.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}
