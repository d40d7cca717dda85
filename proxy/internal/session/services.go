package session

import (
	"context"
	"log/slog"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Accounts lends accounts to turns.
type Accounts interface {
	Acquire(ctx context.Context, w account.Want) (*account.Lease, error)
	Succeeded(name string)
}

// Dialer connects to an account's upstream.
type Dialer interface {
	WebSocket(ctx context.Context, t upstream.Target) (upstream.Conn, error)
	HTTP(t upstream.Target) upstream.Conn
}

// Observer is told what happens, for metrics. Its methods must not block.
type Observer interface {
	// AttemptDone is called once an attempt.
	AttemptDone(transport Transport, row string)
	// RequestSent is called with the bytes handed to an upstream.
	RequestSent(transport Transport, bytes int64)
	// Unmatched is called for an event that belongs to no turn.
	Unmatched()
}

// Services are what sessions use. All are safe for concurrent use.
type Services struct {
	Accounts Accounts
	// Dialer returns the dialer that fits a configuration.
	Dialer   func(*config.Runtime) Dialer
	Observer Observer
	Log      *slog.Logger
	// MaxSessions bounds the sessions in memory; the one that is idle longest
	// makes room. 0 = DefaultMaxSessions.
	MaxSessions int
}

// DefaultMaxSessions fits in about 400 MiB and in the descriptors of a usual pod.
const DefaultMaxSessions = 10_000
