// Package store keeps what must survive a proxy: the records of session keys
// with their owners, the aliases that lead to them, and the records and
// transcripts of turns that cannot simply be run again.
//
// It stores values and judges ownership; what a record means is none of its
// business. Every write carries the proof of who may write: the owner's epoch of
// the key and the fence of the writer's slot.
package store

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Key names a session: text without spaces or braces, at most 96 bytes, nothing
// that a client sent.
type Key string

// short is how a key is shown: as much of its digest as logs show.
func (k Key) short() string {
	const digits = 12
	kind, digest, found := strings.Cut(string(k), ":")
	if !found {
		kind, digest = "", kind
	}
	digest = digest[:min(len(digest), digits)]
	if !found {
		return digest
	}
	return kind + ":" + digest
}

// Holder is the process that owns a key.
type Holder struct {
	// Pod is the stable name of the replica, Process one incarnation of it: a
	// new process of the same pod proves that the old one is gone.
	Pod, Process string
	// Address is the peer port of the pod, host:port; empty = not reachable.
	Address string
}

// Same says whether both are one process.
func (h Holder) Same(o Holder) bool { return h.Pod == o.Pod && h.Process == o.Process }

// Held is the proof that a holder owns a key. All writes carry it.
type Held struct {
	Key    Key
	Holder Holder
	// Epoch is the owner's epoch; it rises with every claim of the key, and is
	// never used again, even if the store forgets the key in between.
	Epoch int64
	// Fence is the activation epoch of the holder's slot. A write with a lower
	// fence than the key has seen is refused, a higher one is remembered. 0 =
	// there is no activation; it is the lowest fence and no exception, so that a
	// bridge whose activation is taken away does not get the keys that have seen it
	// before their entries have expired: when the last life of a value, or the last
	// lease and 10 minutes, are over.
	Fence int64
}

// Entry is what the store knows of a key.
type Entry struct {
	// Holder is the owner while Lease is above zero. When the lease is over or the
	// key was released it is zero: nobody owns the key.
	Holder Holder
	Epoch  int64
	Fence  int64
	// Lease is what remains of the owner's lease by the store's own clock.
	Lease time.Duration
	// Draining says that the owner finishes what it has and takes nothing new. A
	// live lease is never taken over, draining or not.
	Draining bool
	// Version of Value, as the owner counts it, from 1; 0 = there is no value.
	Version int64
	// Value must not be changed by who gets it.
	Value []byte
}

// Claimed is the outcome of a successful claim.
type Claimed struct {
	Held
	// Entry as it was before the claim.
	Before Entry
	// Turns are the turn records of the key that have not expired, the one begun
	// last first, at most MaxTurns.
	Turns []Turn
}

// TurnState is how far a turn is known to have come.
type TurnState string

// States of a turn. The last four are final. Within an attempt a turn moves
// forward only: submitted, unknown, acknowledged, a final state.
const (
	// TurnSubmitted: it may be running at the upstream.
	TurnSubmitted TurnState = "submitted"
	// TurnAcknowledged: the upstream worked on it, its end is not known.
	TurnAcknowledged TurnState = "acknowledged"
	// TurnUnknown: it was sent and nothing was heard of it.
	TurnUnknown TurnState = "unknown"

	TurnCompleted  TurnState = "completed"
	TurnIncomplete TurnState = "incomplete"
	TurnFailed     TurnState = "failed"
	TurnAbandoned  TurnState = "abandoned"
)

// Final says whether the state never changes again.
func (s TurnState) Final() bool {
	return s == TurnCompleted || s == TurnIncomplete || s == TurnFailed || s == TurnAbandoned
}

// Turn is the record of one logical turn, found again by its fingerprint when
// the client sends the same request once more.
type Turn struct {
	// Fingerprint identifies the request within its key: hex digits.
	Fingerprint string `json:"fp"`
	// ID is the request id of the turn that was dispatched last.
	ID    string    `json:"id"`
	State TurnState `json:"state"`
	// Attempt counts dispatches under this fingerprint, from 1. A write of an
	// older attempt is refused.
	Attempt    int    `json:"attempt"`
	ResponseID string `json:"response,omitempty"`
	// Body digests the request of a turn whose fingerprint is a key that its client
	// chose; empty else.
	Body string `json:"body,omitempty"`
	// Complete says that the transcript holds every event to the end.
	Complete bool `json:"complete,omitempty"`
	// Delivered says that the client got the end.
	Delivered bool `json:"delivered,omitempty"`
	// Age is how long ago the attempt was begun, by the store's clock. Set by
	// Claim; ignored by writes.
	Age time.Duration `json:"-"`
}

// stage orders the states of one attempt. A write that comes late, because its
// first try was still on its way, never takes a record back.
func (s TurnState) stage() int {
	switch s {
	case TurnUnknown:
		return 1
	case TurnAcknowledged:
		return 2
	case TurnCompleted, TurnIncomplete, TurnFailed, TurnAbandoned:
		return 3
	default:
		return 0
	}
}

// Bounds that every implementation keeps.
const (
	// MaxTurns bounds the turn records of one key. The one begun first goes, a
	// final one before one that may still be running.
	MaxTurns = 256
	// MaxTranscript bounds the events of one turn in bytes; what an agent's turn
	// rarely exceeds, and what one read can return.
	MaxTranscript = 2 << 20
	// fenceMemory is how long an entry outlives lease and value, so that an owner
	// that was cut off for a while finds its key, and a slot that is over its fence.
	fenceMemory = 10 * time.Minute
)

// Errors. Every method returns nil or an error that is one of these, or wraps one,
// or a *Fenced.
var (
	// ErrUnavailable: the store did not answer in time or at all. What was asked
	// may have happened.
	ErrUnavailable = errors.New("the store is not available")
	// ErrConflict: the write lost against a newer one, or would take back a final
	// state; nothing was changed.
	ErrConflict = errors.New("the store holds something newer")
	// ErrNotFound: there is nothing under that name.
	ErrNotFound = errors.New("not in the store")
	// ErrCorrupt: what is there cannot be read. It is always ErrUnavailable too,
	// since nothing is known; but trying again is of no use.
	ErrCorrupt = errors.New("what the store holds cannot be read")
	// ErrTooLarge: a name or a value exceeds its bounds; nothing was changed, and
	// trying again is of no use.
	ErrTooLarge = errors.New("more than the store takes")
)

// Fenced says that the writer does not own the key, or that its slot's epoch is
// over; nothing was changed.
type Fenced struct {
	Key Key
	// Current is who owns it now, without its value.
	Current Entry
}

func (f *Fenced) Error() string { return "the key " + f.Key.short() + " belongs to another proxy" }

// Store is a versioned map with owners. All methods are safe for concurrent use,
// honour ctx, and compare times by the store's own clock only. Every method may
// be repeated after ErrUnavailable: a repeated write that had succeeded succeeds
// again, and one that arrives after later writes changes nothing.
//
// Who owns a key is decided by holder and epoch. An owner whose lease is over and
// that nobody replaced is still the owner: its writes count, and Renew makes the
// lease good again. Lives and leases are rounded to milliseconds; both are above
// zero.
type Store interface {
	// Claim makes me the owner of key for lease. It succeeds if the key has no
	// owner, if the owner's lease is over, if the owner is an earlier process of
	// the same pod, or if the owner is me; each claim raises the epoch. Otherwise
	// it returns *Fenced with the owner, also if fence is lower than the key's. A
	// claim ends a drain.
	Claim(ctx context.Context, key Key, me Holder, fence int64, lease time.Duration) (Claimed, error)
	// Renew extends the leases of keys. The result has one error for each of
	// them: nil, *Fenced (also if the entry is gone) or ErrUnavailable.
	Renew(ctx context.Context, keys []Held, lease time.Duration) []error
	// Drain marks the key until the next claim: its owner takes nothing new. The
	// lease stays.
	Drain(ctx context.Context, h Held) error
	// Release gives the key up; the value stays until it expires. A key that is
	// not (or no longer) held is not an error.
	Release(ctx context.Context, h Held) error
	// Save writes the value under a version and keeps it for life from now. An
	// equal or newer version that is there already makes it a success without a
	// change (a repeated write), so versions of one owner must rise.
	Save(ctx context.Context, h Held, version int64, value []byte, life time.Duration) error
	// Look reads an entry without touching it; ErrNotFound = it has neither owner
	// nor value.
	Look(ctx context.Context, key Key) (Entry, error)

	// PutAlias makes name lead to value for life; the last write wins.
	PutAlias(ctx context.Context, name string, value []byte, life time.Duration) error
	// Alias returns what a name leads to, or ErrNotFound.
	Alias(ctx context.Context, name string) ([]byte, error)

	// PutTurn writes a turn record and keeps it for life. It is refused with
	// ErrConflict if the record has a higher attempt, or the same attempt and a
	// final state (unless t is equal to it, or only Delivered is new). A state that
	// comes before that of the record, within one attempt, succeeds without a
	// change. A new attempt removes the transcript of an older one.
	PutTurn(ctx context.Context, h Held, t Turn, life time.Duration) error
	// DropTurn removes a turn record of this attempt or an older one, and its
	// transcript: it was never dispatched, or will never be asked for. ErrConflict
	// if the record has a higher attempt.
	DropTurn(ctx context.Context, h Held, fingerprint string, attempt int) error
	// AppendEvents adds events to the transcript of an attempt. from is the number
	// of events before them: a repeated append is recognised by it, a gap is
	// ErrConflict, and so is an attempt older than that of the record or of the
	// transcript. from 0 starts the transcript anew, unless it holds these very
	// events. A transcript that would exceed MaxTranscript is removed, with
	// ErrConflict.
	AppendEvents(ctx context.Context, h Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration) error
	// Transcript returns the events of a turn in order, or ErrNotFound. Whether
	// they are all is said by the record (Turn.Complete).
	Transcript(ctx context.Context, key Key, fingerprint string) ([][]byte, error)

	// Close frees connections.
	Close() error
}
