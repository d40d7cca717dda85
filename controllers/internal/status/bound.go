package status

import (
	"slices"

	v1alpha1 "github.com/causeway-dev/causeway/api/v1alpha1"
)

// Bound lists the policies that refer to an object, within the caps of a status.
func Bound(names []string) *v1alpha1.BoundPolicies {
	names = slices.Sorted(slices.Values(names))
	b := &v1alpha1.BoundPolicies{Count: int32(len(names))} //nolint:gosec // a count of objects
	if len(names) > v1alpha1.MaxBoundPolicyNames {
		b.Omitted = int32(len(names) - v1alpha1.MaxBoundPolicyNames) //nolint:gosec // a count of objects
		names = names[:v1alpha1.MaxBoundPolicyNames]
	}
	b.Names = names
	return b
}
