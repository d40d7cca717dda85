// Package cel holds the generated CRDs to their rules against a real API server.
// The rules are in package cases; package effective is held to the same table.
package cel
