// Package fleet runs replicas of the proxy for tests, each a process of its own
// that can be killed or stopped, with a real Redis between them.
package fleet
