// Package faults tests whole replicas, each a process of its own, with a real
// Redis between them: what happens when one is killed or stopped, and when the
// store goes away. It holds tests only.
package faults
