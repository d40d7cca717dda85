package store

import (
	"testing"
	"time"
)

func TestRedis(t *testing.T) {
	s := startServer(t)
	testContract(t, func(t *testing.T) (Store, func(time.Duration)) {
		r := s.store(t)
		return r, func(d time.Duration) { r.advance(t, d) }
	})
}
