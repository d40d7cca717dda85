// Package version holds the version every binary of Causeway reports.
package version

// Version is set by the linker:
//
//	-ldflags "-X github.com/causeway-dev/causeway/api/version.Version=v0.1.0"
//
// A binary built without it says "dev".
var Version = "dev"
