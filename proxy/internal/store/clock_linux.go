package store

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot is CLOCK_BOOTTIME: it never goes back and runs while the machine is
// suspended, unlike Go's monotonic clock.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Duration(1<<63 - 1) // no clock, no lease
	}
	return time.Duration(t.Nano())
}
