//go:build !linux

package store

import "time"

var started = time.Now()

// sinceBoot is the monotonic clock of a machine to develop on.
func sinceBoot() time.Duration { return time.Since(started) }
