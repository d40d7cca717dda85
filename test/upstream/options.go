package upstream

import (
	"log/slog"
	"time"
)

// Mode says whose rules for anchors, events and quotas apply.
type Mode string

const (
	// ModeByPath is the zero value: /v1 follows the platform's rules,
	// /backend-api those of the ChatGPT backend.
	ModeByPath Mode = ""
	// ModePlatform keeps an anchor in the memory of one socket, or in the
	// account's storage if its response was stored.
	ModePlatform Mode = "platform"
	// ModeChatGPT keeps an anchor on its account and meets a foreign one with
	// silence.
	ModeChatGPT Mode = "chatgpt"
)

// Limits of the real service, from its WebSocket guide.
const (
	defaultMaxAge     = 60 * time.Minute
	maxLanes          = 32
	maxInFlightSocket = 16
	maxLaneName       = 256
)

// defaultHistory is the number of responses remembered for anchors: enough for
// a thousand sessions of a load test, small enough for a laptop.
const defaultHistory = 16384

// maxBody bounds one request body or frame, in bytes.
const maxBody = 256 << 20

// Options configure a Server. The zero value is useful: any bearer token is
// its own account.
type Options struct {
	Mode Mode
	// Accounts maps bearer tokens to account names. Empty, and without
	// accounts in the script, every token is accepted.
	Accounts map[string]string
	Script   Script
	// KeepBodies keeps the decoded body of every dispatch in the ledger.
	KeepBodies bool
	// History bounds the number of responses remembered; 0 means 16384.
	History int
	// IDPrefix begins every response id; empty means one made at random, so
	// that ids of two servers never meet.
	IDPrefix string
	// Log receives one line per connection and dispatch; nil discards.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.History <= 0 {
		o.History = defaultHistory
	}
	if o.IDPrefix == "" {
		o.IDPrefix = "resp_" + randomHex(4) + "_"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
