// Package policy holds the admission policies of config/policy to their rules, against
// a real API server and with real tokens of pods.
package policy
