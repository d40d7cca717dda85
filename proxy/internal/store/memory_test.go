package store

import (
	"testing"
	"time"
)

// fakeClock is a clock that a test moves.
type fakeClock struct{ now time.Time }

func (c *fakeClock) read() time.Time         { return c.now }
func (c *fakeClock) advance(d time.Duration) { c.now = c.now.Add(d) }

func newClock() *fakeClock { return &fakeClock{now: time.Unix(1_800_000_000, 0)} }

func TestMemory(t *testing.T) {
	testContract(t, func(*testing.T) (Store, func(time.Duration)) {
		clock := newClock()
		return NewMemory(clock.read), clock.advance
	})
}
