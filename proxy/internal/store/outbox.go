package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Bounds of an Outbox.
const (
	// outboxItems and outboxBytes are what may wait while the store is away: the
	// newest records of some 10,000 sessions and what they said meanwhile.
	outboxItems = 16_384
	outboxBytes = 64 << 20
	// outboxWorkers is how many writes are on their way at once.
	outboxWorkers = 4
	// outboxTimeout bounds one try.
	outboxTimeout = time.Second
	// outboxPause grows from the first to the second between tries that fail.
	outboxPause    = 100 * time.Millisecond
	outboxPauseMax = 5 * time.Second
	// An append is merged into the one before it up to these.
	mergedEvents = 128
	mergedBytes  = 256 << 10
)

// OutboxOptions are the settings of an Outbox. Its functions are called by
// workers, without a lock held, and must not block; each may be nil.
type OutboxOptions struct {
	Log *slog.Logger
	// Fenced is told that a write was refused because h is not the owner (any
	// more). What else waited for h was thrown away; it is told once of it. h may
	// be an earlier ownership of a key that this process has claimed again since.
	Fenced func(h Held, f *Fenced)
	// Failed is told of each try that got no answer.
	Failed func()
	// Now is the clock of Age; nil = time.Now.
	Now func() time.Time
	// MaxItems and MaxBytes bound what waits; 0 = 16,384 and 64 MiB.
	MaxItems, MaxBytes int
}

// Outbox writes behind: its methods take a write, return at once and never fail.
// Writes of one key reach the store in order; a newer one replaces those that it
// makes needless. A write that gets no answer is tried again until it does, which
// the contract of Store makes safe. If more waits than may, transcripts go first
// (a turn whose transcript has a hole is never marked complete), then aliases, and
// records last.
//
// Values and events that are handed over must not be changed afterwards. All
// methods are safe for concurrent use.
type Outbox struct {
	store  Store
	opts   OutboxOptions
	ctx    context.Context //nolint:containedctx // ends tries that are on their way when the outbox is closed
	cancel context.CancelFunc
	wake   chan struct{}
	gone   sync.WaitGroup

	mu    sync.Mutex // guards all below
	lanes map[string]*lane
	ready []*lane // lanes with something to do, in the order of their turn
	queue queue
	// broken are turns whose transcript has a hole, by attempt.
	broken   *shelf[turnName, int]
	counts   OutboxCounts
	waiters  []waiter
	failures int // in a row; above zero = not healthy
	since    time.Time
	pause    time.Time // no try before
	probing  bool
	flushing int
	full     bool // said so already
	closed   bool
}

// OutboxCounts are totals since the start.
type OutboxCounts struct {
	// Written were answered with success, Refused with ErrConflict or *Fenced.
	Written, Refused int64
	// Dropped for lack of room, or because the store cannot read what it holds.
	DroppedTranscripts, DroppedAliases, DroppedTurns, DroppedRecords int64
}

// NewOutbox starts the workers of an outbox in front of s; Close ends them.
func NewOutbox(s Store, opts OutboxOptions) *Outbox {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.MaxItems == 0 {
		opts.MaxItems = outboxItems
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = outboxBytes
	}
	const mostBroken = 4096
	o := &Outbox{
		store: s, opts: opts, wake: make(chan struct{}, outboxWorkers), lanes: map[string]*lane{}, queue: newQueue(),
		broken: newShelf[turnName, int](mostBroken, nil),
	}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	for range outboxWorkers {
		o.gone.Go(o.work)
	}
	return o
}

// Save is Store.Save, later.
func (o *Outbox) Save(h Held, version int64, value []byte, life time.Duration) {
	o.add(&item{kind: kindSave, held: h, version: version, value: value, life: life})
}

// PutTurn is Store.PutTurn, later. t must say what is known when it is called: the
// outbox takes back Complete if events of the turn were lost on their way.
func (o *Outbox) PutTurn(h Held, t Turn, life time.Duration) {
	o.add(&item{kind: kindTurn, held: h, fingerprint: t.Fingerprint, attempt: t.Attempt, turn: t, life: life})
}

// DropTurn is Store.DropTurn, later.
func (o *Outbox) DropTurn(h Held, fingerprint string, attempt int) {
	o.add(&item{kind: kindDrop, held: h, fingerprint: fingerprint, attempt: attempt})
}

// AppendEvents is Store.AppendEvents, later.
func (o *Outbox) AppendEvents(h Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration) {
	o.add(&item{kind: kindEvents, held: h, fingerprint: fingerprint, attempt: attempt, from: from, events: events, life: life})
}

// PutAlias is Store.PutAlias, later. Aliases are ordered by name, not by key.
func (o *Outbox) PutAlias(name string, value []byte, life time.Duration) {
	o.add(&item{kind: kindAlias, name: name, value: value, life: life})
}

// Drain is Store.Drain, later.
func (o *Outbox) Drain(h Held) { o.add(&item{kind: kindDrain, held: h}) }

// Release is Store.Release, later: after all that was handed over before it.
func (o *Outbox) Release(h Held) { o.add(&item{kind: kindRelease, held: h}) }

// Len is how many writes wait or are on their way.
func (o *Outbox) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queue.items
}

// Age is how long the oldest write has waited; 0 = none waits.
func (o *Outbox) Age() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var oldest time.Time
	for _, l := range o.lanes {
		for _, it := range l.items {
			if oldest.IsZero() || it.since.Before(oldest) {
				oldest = it.since
			}
		}
	}
	if oldest.IsZero() {
		return 0
	}
	return o.opts.Now().Sub(oldest)
}

// Healthy is false from the first try without an answer until the next answer.
func (o *Outbox) Healthy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failures == 0
}

// Counts returns totals since the start.
func (o *Outbox) Counts() OutboxCounts {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts
}

// Await waits until nothing of the key waits. Who claims a key that this process
// released a moment ago asks for that first: what the store has not been told
// yet would be refused afterwards. The error is that of ctx.
func (o *Outbox) Await(ctx context.Context, key Key) error {
	return o.await(ctx, laneOfKey(key))
}

// Flush waits until nothing waits at all; at shutdown, before Close. The error is
// that of ctx, and says how much is lost.
func (o *Outbox) Flush(ctx context.Context) error {
	o.mu.Lock()
	o.flushing++
	o.mu.Unlock()
	err := o.await(ctx, "")
	o.mu.Lock()
	o.flushing--
	left := o.queue.items
	o.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%d writes are left in the outbox: %w", left, err)
	}
	return nil
}

// Close ends the workers and throws away what waits. Writes that are handed over
// later go nowhere.
func (o *Outbox) Close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.cancel()
	o.gone.Wait()
}

// waiter waits for a lane, or for all of them, to be empty.
type waiter struct {
	lane string // empty = all
	done chan struct{}
}

func (o *Outbox) await(ctx context.Context, name string) error {
	o.mu.Lock()
	w := waiter{lane: name, done: make(chan struct{})}
	if o.settled(name) {
		o.mu.Unlock()
		return nil
	}
	o.waiters = append(o.waiters, w)
	o.pause = time.Time{} // somebody waits: whether the store is back is worth a try now
	o.signal()
	o.mu.Unlock()
	select {
	case <-w.done:
		return nil
	case <-o.ctx.Done():
		return context.Canceled
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *Outbox) settled(name string) bool {
	return name == "" && len(o.lanes) == 0 || name != "" && o.lanes[name] == nil
}

// tellWaiters wakes those whose wait is over, and forgets waiters of a closed
// outbox.
func (o *Outbox) tellWaiters() {
	kept := o.waiters[:0]
	for _, w := range o.waiters {
		if o.settled(w.lane) {
			close(w.done)
		} else {
			kept = append(kept, w)
		}
	}
	clear(o.waiters[len(kept):])
	o.waiters = kept
}
