// Package packaging installs, upgrades and removes Causeway as its users do, with Helm
// and with kustomize, on a real API server with the controllers that delete namespaces
// and what belongs to them.
package packaging
