package session

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// faulty is a store that can be cut off.
type faulty struct {
	store.Store
	mu  sync.Mutex
	cut bool
}

func (f *faulty) setCut(cut bool) {
	f.mu.Lock()
	f.cut = cut
	f.mu.Unlock()
}

// wait is how a store that is cut off behaves: it does not answer.
func (f *faulty) wait(ctx context.Context) error {
	f.mu.Lock()
	cut := f.cut
	f.mu.Unlock()
	if !cut {
		return nil
	}
	<-ctx.Done()
	return errors.Join(store.ErrUnavailable, ctx.Err())
}

func (f *faulty) Claim(ctx context.Context, key store.Key, me store.Holder, fence int64, lease time.Duration) (store.Claimed, error) {
	if err := f.wait(ctx); err != nil {
		return store.Claimed{}, err
	}
	return f.Store.Claim(ctx, key, me, fence, lease)
}

func (f *faulty) Alias(ctx context.Context, name string) ([]byte, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	return f.Store.Alias(ctx, name)
}

func (f *faulty) Renew(ctx context.Context, keys []store.Held, lease time.Duration) []error {
	if err := f.wait(ctx); err != nil {
		all := make([]error, len(keys))
		for i := range all {
			all[i] = err
		}
		return all
	}
	return f.Store.Renew(ctx, keys, lease)
}

func (f *faulty) Save(ctx context.Context, h store.Held, version int64, value []byte, life time.Duration) error {
	if err := f.wait(ctx); err != nil {
		return err
	}
	return f.Store.Save(ctx, h, version, value, life)
}

func (f *faulty) PutTurn(ctx context.Context, h store.Held, t store.Turn, life time.Duration) error {
	if err := f.wait(ctx); err != nil {
		return err
	}
	return f.Store.PutTurn(ctx, h, t, life)
}

func (f *faulty) Release(ctx context.Context, h store.Held) error {
	if err := f.wait(ctx); err != nil {
		return err
	}
	return f.Store.Release(ctx, h)
}

// replica is a bench with a shared store.
type replica struct {
	*bench
	store  *faulty
	outbox *store.Outbox
	stop   context.CancelFunc
}

// newReplica starts a process of a pod on the store.
func newReplica(t *testing.T, shared store.Store, pod, process string, o setUp) *replica {
	t.Helper()
	r := &replica{store: &faulty{Store: shared}}
	var registry *Registry
	began := time.Now()
	keeper := store.NewKeeper(r.store, store.KeeperOptions{
		Now: func() time.Duration { return time.Since(began) },
		Lost: func(h store.Held, cause error) {
			var f *store.Fenced
			if errors.As(cause, &f) {
				registry.Fenced(h, f.Current)
			}
		},
	})
	r.outbox = store.NewOutbox(r.store, store.OutboxOptions{Log: slog.New(slog.DiscardHandler),
		Fenced: func(h store.Held, f *store.Fenced) { registry.Fenced(h, f.Current) }})
	more := o.services
	o.services = func(s *Services) {
		if more != nil {
			more(s)
		}
		s.Store, s.Writer, s.Instant = r.store, r.outbox, keeper.Now
		s.Holder = store.Holder{Pod: pod, Process: process, Address: pod + ":8081"}
		s.Keep = func(c store.Claimed, started time.Duration) Lease { return keeper.Hold(c, started) }
	}
	r.bench = newBenchOf(t, o)
	registry = r.registry
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { keeper.Run(ctx); close(ended) }()
	r.stop = func() { cancel(); <-ended }
	synctest.Wait()
	return r
}

// kill ends the process as kill -9 does, as far as a goroutine can: the store
// hears nothing any more.
func (r *replica) kill() {
	r.store.setCut(true)
	r.stop()
	r.end()
	r.outbox.Close()
}

// quit ends the process in good order.
func (r *replica) quit() {
	r.end()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = r.outbox.Flush(ctx)
	r.stop()
	r.outbox.Close()
}

var chatGPT = setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a"}, firstEvent: 120}

func inReplicas(t *testing.T, f func(t *testing.T, shared store.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, store.NewMemory(time.Now)) })
}

// elsewhere takes the end of a turn and returns where it was sent.
func (a *asked) elsewhere() string {
	b := a.Out.Take(nil)
	return b.Elsewhere
}
