// Package integration tests the operator against a real API server. There is no
// kubelet, no controller of Deployments and no garbage collector behind it: the
// tests play their parts.
package integration
