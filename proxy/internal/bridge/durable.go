package bridge

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// durable is a store that replicas share, with what writes to it and what renews
// this replica's leases.
type durable struct {
	store  store.Store
	outbox *store.Outbox
	keeper *store.Keeper
	stop   context.CancelFunc
	ended  chan struct{}
}

// newDurable starts writing and renewing; fenced is told of keys that are lost.
func newDurable(s store.Store, log *slog.Logger, m *telemetry.Metrics, fenced func(store.Held, store.Entry)) *durable {
	d := &durable{store: s, ended: make(chan struct{})}
	d.outbox = store.NewOutbox(s, store.OutboxOptions{
		Log:    log,
		Fenced: func(h store.Held, f *store.Fenced) { fenced(h, f.Current) },
		Failed: func() { m.StoreFailed(telemetry.StoreSave) },
	})
	d.keeper = store.NewKeeper(s, store.KeeperOptions{Lost: func(h store.Held, cause error) {
		var f *store.Fenced
		if errors.As(cause, &f) {
			fenced(h, f.Current)
			return
		}
		log.Warn("A lease could not be renewed in time; its session builds on nothing it knows until the store answers", "error", cause)
	}})
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	go func() {
		defer close(d.ended)
		d.keeper.Run(ctx)
	}()
	return d
}

// services adds the store to what sessions use.
func (d *durable) services(s *session.Services, holder store.Holder) {
	s.Store, s.Writer, s.Holder, s.Instant = d.store, d.outbox, holder, d.keeper.Now
	s.Keep = func(c store.Claimed, started time.Duration) session.Lease { return d.keeper.Hold(c, started) }
}

// close writes what still waits, as long as ctx allows.
func (d *durable) close(ctx context.Context, log *slog.Logger) {
	if err := d.outbox.Flush(ctx); err != nil {
		log.Warn("The store did not take everything before the end", "items", d.outbox.Len(), "error", err)
	}
	d.stop()
	<-d.ended
	d.outbox.Close()
}

func (d *durable) state() telemetry.StoreState {
	return telemetry.StoreState{OutboxItems: d.outbox.Len(), OutboxAge: d.outbox.Age(), Leases: d.keeper.Len(), RenewLate: d.keeper.Late()}
}
