package credential

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// ExitPatience is how long the end of the process waits for tokens that were
// obtained and are not stored yet.
const ExitPatience = 30 * time.Second

// exitInterval lies between two tries to store a token while the process ends.
const exitInterval = 250 * time.Millisecond

// Keeper holds the tokens that an issuer gave and the API server has not taken
// yet. They exist nowhere else, so the process must not end before Wait returns.
// It is safe for concurrent use.
type Keeper struct {
	mu      sync.Mutex // guards what follows
	flights int        // exchanges under way
	pending map[Key]store
}

// store writes one grant; nil once nothing is left to do.
type store func(ctx context.Context) error

// NewKeeper returns an empty Keeper.
func NewKeeper() *Keeper { return &Keeper{pending: map[Key]store{}} }

// begin counts an exchange until the returned function is called.
func (k *Keeper) begin() (end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flights++
	return sync.OnceFunc(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.flights--
	})
}

// hold keeps a grant until settle has stored it.
func (k *Keeper) hold(key Key, s store) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending[key] = s
}

func (k *Keeper) get(key Key) store {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pending[key]
}

// settle stores the grant of an account, if one is held.
func (k *Keeper) settle(ctx context.Context, key Key) error {
	s := k.get(key)
	if s == nil {
		return nil
	}
	if err := s(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pending, key)
	return nil
}

// left lists the accounts with a grant, and counts exchanges under way.
func (k *Keeper) left() (keys []Key, flights int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.pending {
		keys = append(keys, key)
	}
	return keys, k.flights
}

// Wait stores what is held and waits for exchanges under way, until there is
// nothing left or ctx ends. It is called when the controllers are asked to stop;
// ctx is usually bounded by ExitPatience.
func (k *Keeper) Wait(ctx context.Context) error {
	for {
		keys, flights := k.left()
		if len(keys) == 0 && flights == 0 {
			return nil
		}
		for _, key := range keys {
			if err := k.settle(ctx, key); err != nil {
				log.FromContext(ctx).Error(err, "Cannot store a token before the end",
					"AccountPool", klog.KRef(key.Namespace, key.Name), "account", key.Account)
			}
		}
		timer := time.NewTimer(exitInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("ending with %d tokens not stored and %d exchanges under way: their accounts may need a new login",
				len(keys), flights)
		}
	}
}
