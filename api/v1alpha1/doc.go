// Package v1alpha1 holds the custom resources of Causeway: AccountPool,
// CircuitPolicy, BridgePolicy and the internal BridgeReplica.
//
// Rules that hold for every type of the package:
//
//   - Integers carry their unit in the name. Optional integers are pointers,
//     because "unset" and 0 differ. Optional strings are not: every string has
//     at least one character, so that "" is unset.
//   - There are no defaults in the schema. Package effective holds them, so that
//     a default never shows up as a difference to the user's manifest.
//   - Every string, list and map is bounded. A rule that needs more than one
//     written field is CEL next to the type; a rule that needs a default is
//     judged by package effective, and so is every other rule once more, for
//     proxies that read manifests from a folder.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=causeway.dev
package v1alpha1
