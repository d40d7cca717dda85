package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Settings of a Keeper.
const (
	// keeperLease is how long a key stays with an owner that is not heard of.
	keeperLease = 30 * time.Second
	// keeperBatch bounds the keys of one renewal, and keeperTimeout its time.
	keeperBatch   = 500
	keeperTimeout = time.Second
	// keeperRetry is the pause after a renewal that got no answer.
	keeperRetry = time.Second
)

// ErrLapsed is the cause of a lease that could not be renewed in time: the key
// may belong to another by now.
var ErrLapsed = errors.New("the lease is over")

// KeeperOptions are the settings of a Keeper.
type KeeperOptions struct {
	// Lease is how long a claim or a renewal lasts; 0 = 30 s.
	Lease time.Duration
	// Every is the pause between renewals; 0 = a third of Lease.
	Every time.Duration
	// Now is a clock that never goes back and runs while the machine is
	// suspended; nil = CLOCK_BOOTTIME.
	Now func() time.Duration
	// Lost is told of a key that is not ours (any more), once for each lease: cause
	// is *Fenced, or wraps ErrLapsed. It is called by Run, must not block, and may
	// be nil.
	Lost func(h Held, cause error)
}

// Keeper renews the leases of all keys that a process owns.
type Keeper struct {
	store Store
	opts  KeeperOptions

	mu     sync.Mutex // guards leases
	leases map[*Lease]struct{}
}

// Lease is the right to act as the owner of a key, for some time. All methods are
// safe for concurrent use and take no lock that is held for long.
type Lease struct {
	held   Held
	keeper *Keeper
	// until is when the right ends, on the keeper's clock; math.MinInt64 = for good.
	until atomic.Int64
}

// NewKeeper makes a keeper; Run renews.
func NewKeeper(s Store, opts KeeperOptions) *Keeper {
	if opts.Lease == 0 {
		opts.Lease = keeperLease
	}
	if opts.Every == 0 {
		opts.Every = opts.Lease / 3
	}
	if opts.Now == nil {
		opts.Now = Instant
	}
	return &Keeper{store: s, opts: opts, leases: map[*Lease]struct{}{}}
}

// Lease is how long claims have to ask for.
func (k *Keeper) Lease() time.Duration { return k.opts.Lease }

// Now is the keeper's clock. Who claims a key reads it before the claim.
func (k *Keeper) Now() time.Duration { return k.opts.Now() }

// Len is how many keys are held.
func (k *Keeper) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.leases)
}

// Hold renews the lease of a claim from now on. claimStarted is Now before the
// claim was sent: the store began to count later, so that by our clock the lease
// is over before another can get it.
func (k *Keeper) Hold(c Claimed, claimStarted time.Duration) *Lease {
	l := &Lease{held: c.Held, keeper: k}
	l.until.Store(int64(claimStarted + k.opts.Lease))
	k.mu.Lock()
	k.leases[l] = struct{}{}
	k.mu.Unlock()
	return l
}

// Held is the proof that writes carry.
func (l *Lease) Held() Held { return l.held }

// Valid says whether the key is certainly still ours. Who is about to send
// something for the key asks in that very moment.
func (l *Lease) Valid() bool { return int64(l.keeper.opts.Now()) < l.until.Load() }

// Let ends the lease on our side: it is not valid any more and not renewed. The
// store is not told; that is what Release is for. Lost is not called.
func (l *Lease) Let() { l.keeper.end(l) }

// end says whether the lease was still held.
func (k *Keeper) end(l *Lease) bool {
	l.until.Store(math.MinInt64)
	k.mu.Lock()
	defer k.mu.Unlock()
	_, held := k.leases[l]
	delete(k.leases, l)
	return held
}

// Run renews until ctx is over; then leases end by themselves. It is called once.
func (k *Keeper) Run(ctx context.Context) {
	tick := time.NewTicker(k.opts.Every)
	defer tick.Stop()
	retry := time.NewTimer(keeperRetry)
	defer retry.Stop()
	retry.Stop()
	var failed []*Lease
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// Those that failed go last, so that the others do not wait for them.
			failed = k.renew(ctx, append(k.others(failed), failed...))
		case <-retry.C:
			failed = k.renew(ctx, failed)
		}
		retry.Stop()
		if len(failed) > 0 {
			retry.Reset(keeperRetry)
		}
	}
}

// others are all leases but these.
func (k *Keeper) others(these []*Lease) []*Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	known := make(map[*Lease]struct{}, len(these))
	for _, l := range these {
		known[l] = struct{}{}
	}
	list := make([]*Lease, 0, len(k.leases))
	for l := range k.leases {
		if _, ok := known[l]; !ok {
			list = append(list, l)
		}
	}
	return list
}

// renew renews leases, batch by batch, and returns those without an answer. A
// batch that gets none at all ends the round: the store is not there.
func (k *Keeper) renew(ctx context.Context, leases []*Lease) []*Lease {
	var failed []*Lease
	for len(leases) > 0 && ctx.Err() == nil {
		batch := k.current(leases[:min(len(leases), keeperBatch)])
		leases = leases[min(len(leases), keeperBatch):]
		unanswered := k.renewBatch(ctx, batch)
		failed = append(failed, unanswered...)
		if len(batch) > 0 && len(unanswered) == len(batch) {
			return append(k.current(leases), failed...)
		}
	}
	return failed
}

// current leaves out leases that were let go, and ends those that are over. One
// that is over is not renewed, even if the store would: its owner was told, or
// has seen, that the key is lost.
func (k *Keeper) current(leases []*Lease) []*Lease {
	return slices.DeleteFunc(slices.Clone(leases), func(l *Lease) bool {
		until := l.until.Load()
		if until == math.MinInt64 {
			return true
		}
		if over := int64(k.opts.Now()) >= until; over {
			k.lost(l, fmt.Errorf("%w: it could not be renewed", ErrLapsed))
			return true
		}
		return false
	})
}

func (k *Keeper) renewBatch(ctx context.Context, batch []*Lease) (unanswered []*Lease) {
	if len(batch) == 0 {
		return nil
	}
	keys := make([]Held, len(batch))
	for i, l := range batch {
		keys[i] = l.held
	}
	begun := k.opts.Now()
	ctx, cancel := context.WithTimeout(ctx, keeperTimeout)
	defer cancel()
	for i, err := range k.store.Renew(ctx, keys, k.opts.Lease) {
		var fenced *Fenced
		switch {
		case err == nil:
			batch[i].extend(int64(begun + k.opts.Lease))
		case errors.As(err, &fenced):
			k.lost(batch[i], err)
		default:
			unanswered = append(unanswered, batch[i])
		}
	}
	return unanswered
}

// extend moves the end of a lease, unless it was let go meanwhile.
func (l *Lease) extend(until int64) {
	for {
		now := l.until.Load()
		if now == math.MinInt64 || l.until.CompareAndSwap(now, until) {
			return
		}
	}
}

func (k *Keeper) lost(l *Lease, cause error) {
	if k.end(l) && k.opts.Lost != nil {
		k.opts.Lost(l.held, cause)
	}
}

// Instant is the clock of leases: it never goes back, and runs while the machine is
// suspended.
func Instant() time.Duration { return sinceBoot() }
