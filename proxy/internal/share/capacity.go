package share

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// Permits shares out numbers; store.Permits is one.
type Permits interface {
	LeasePermits(ctx context.Context, me store.Holder, asks []store.Ask, life time.Duration) []store.Grant
}

// noLease is the number of permits of an account without a lease: the registry
// allows itself what a replica may use that hears of no other.
const noLease = -1

// Accounts are those of this replica; account.Registry is one.
type Accounts interface {
	// Loads lists the accounts whose limits are shared.
	Loads() []account.Load
	// SetPermits says how many turns may run on an account, below 0 = as without a
	// lease, and returns how many run. More may run on until they end, but no new
	// one begins.
	SetPermits(name string, count int) (inflight int)
}

// CapacityOptions are the settings of a Capacity.
type CapacityOptions struct {
	Permits  Permits
	Accounts Accounts
	// Me is this process.
	Me    store.Holder
	Clock clock.Clock
	// Instant is a clock that never goes back and runs while the machine is
	// suspended.
	Instant func() time.Duration
	Log     *slog.Logger
	// Failed is told of each ask that failed; nil = nobody.
	Failed func()
}

// Capacity keeps the limits of accounts over all replicas: it leases permits for
// what runs and waits here, gives back what is not used, and renews. It does so
// beside the turns: what they need of it, the registry has.
//
// While the store is away a replica keeps what it has until its lease is over.
// From then on it has what it would have without a lease (its share), so that the
// limit can be exceeded by the shares of those replicas that the store has not
// heard of, and by turns that outlive the lease of a replica that is cut off.
type Capacity struct {
	options CapacityOptions
	wake    chan struct{}
	// What follows belongs to Once and Run.
	demands map[string]*demand
	away    bool // leases have ended for want of answers
}

// NewCapacity makes a Capacity; Run works.
func NewCapacity(o CapacityOptions) *Capacity {
	if o.Failed == nil {
		o.Failed = func() {}
	}
	return &Capacity{options: o, wake: make(chan struct{}, 1), demands: map[string]*demand{}}
}

// Wake says that a turn waits for a permit, or that the accounts have changed. It
// does not block.
func (c *Capacity) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// breath is the least time between two asks, however many turns begin to wait.
const breath = 20 * time.Millisecond

// Run leases until ctx ends, and gives everything back then: stop it when no turn
// runs any more. That takes up to a second.
func (c *Capacity) Run(ctx context.Context) {
	for ctx.Err() == nil {
		c.Once(ctx)
		c.pause(ctx, breath, nil)
		c.pause(ctx, Every-breath, c.wake)
	}
	c.giveBack(context.WithoutCancel(ctx))
}

func (c *Capacity) pause(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := c.options.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	case <-wake:
	}
}

// Once asks for all accounts; not concurrently with itself or with Run. A proxy
// calls it before it serves, so that the first turns find permits.
func (c *Capacity) Once(ctx context.Context) {
	// The second time is for what was taken from this replica: it uses less by now,
	// and says so.
	for range 2 {
		if !c.ask(ctx) {
			return
		}
	}
}

// ask says whether it should be done again at once.
func (c *Capacity) ask(ctx context.Context) (again bool) {
	now := c.options.Instant()
	var asks []store.Ask
	gone := make(map[string]bool, len(c.demands))
	for name := range c.demands {
		gone[name] = true
	}
	for _, l := range c.options.Accounts.Loads() {
		d := c.demands[l.Name]
		if d == nil {
			d = &demand{}
			c.demands[l.Name] = d
		}
		delete(gone, l.Name)
		asks = append(asks, d.ask(l, now))
	}
	for name := range gone {
		asks = append(asks, store.Ask{Name: name})
	}
	if len(asks) == 0 {
		return false
	}
	grants := c.lease(ctx, asks)
	var failed error
	for i, g := range grants {
		name := asks[i].Name
		switch {
		case gone[name]:
			delete(c.demands, name) // its lease ends by itself, if need be
		case g.Err != nil:
			failed = g.Err
		default:
			limit, taken := c.demands[name].granted(asks[i], g, now)
			c.options.Accounts.SetPermits(name, limit)
			again = again || taken
		}
	}
	if failed != nil && ctx.Err() != nil {
		return false // the process stops
	}
	c.judge(failed)
	return again && failed == nil
}

func (c *Capacity) lease(ctx context.Context, asks []store.Ask) []store.Grant {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.options.Permits.LeasePermits(ctx, c.options.Me, asks, leaseLife)
}

// judge ends leases that were not renewed in time. err is why.
func (c *Capacity) judge(err error) {
	if err == nil {
		if c.away {
			c.options.Log.Info("Permits of accounts are leased again")
		}
		c.away = false
		return
	}
	c.options.Failed()
	now, ended := c.options.Instant(), false
	for name, d := range c.demands {
		if d.lost(now) {
			c.options.Accounts.SetPermits(name, noLease)
			ended = true
		}
	}
	if ended && !c.away {
		c.away = true
		c.options.Log.Warn("Permits of accounts are not leased; this replica uses its share of each limit", "error", err)
	}
}

func (c *Capacity) giveBack(ctx context.Context) {
	asks := make([]store.Ask, 0, len(c.demands))
	for name := range c.demands {
		asks = append(asks, store.Ask{Name: name})
	}
	if len(asks) > 0 {
		c.lease(ctx, asks)
	}
}
