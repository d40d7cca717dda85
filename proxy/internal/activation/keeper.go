package activation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/causeway-dev/causeway/api/bundle"
)

// Leases is the Lease of one bridge. Only its keeper uses it, one call at a time.
type Leases interface {
	// Read asks the API server itself. ErrNoLease: there is none.
	Read(ctx context.Context) (Sight, error)
	// Write stores s if the Lease still has the version of s, and returns it as it
	// is then. ErrNoLease, or ErrConflict if it has changed since.
	Write(ctx context.Context, s Sight) (Sight, error)
	// Watch tells seen of every change until ctx ends, from one goroutine. It may
	// miss some.
	Watch(ctx context.Context, seen func(Sight))
}

// Errors of Leases.
var (
	ErrNoLease  = errors.New("there is no activation Lease")
	ErrConflict = errors.New("the activation Lease has changed meanwhile")
)

// Options of a Keeper. All are required.
type Options struct {
	Leases Leases
	// Me is this process as a holder.
	Me bundle.Holder
	// Terms are the numbers at this moment; false = no slots take turns, and every
	// proxy has authority.
	Terms func() (Terms, bool)
	// Eligible says that this process serves and is not about to end.
	Eligible func() bool
	// Now is a clock that runs while the machine is suspended (CLOCK_BOOTTIME): Go's
	// stands still then. Wall is for people.
	Now  func() time.Duration
	Wall func() time.Time
	Log  *slog.Logger
}

const (
	// callTime bounds one call to the API server.
	callTime = 4 * time.Second
	// pulse is how often the keeper shows that the process runs.
	pulse = time.Second
	// doubtPause lies between two looks that somebody asks for: many may, at once.
	doubtPause = 200 * time.Millisecond
)

// Keeper knows what the Lease says and renews it if this pod is captain. It is safe
// for concurrent use; Verdict costs a clock reading.
type Keeper struct {
	o Options

	view    atomic.Pointer[Knowledge]
	alive   atomic.Int64 // when Run was last seen to run, of Options.Now
	highest atomic.Int64
	doubted atomic.Bool
	nudge   chan struct{}

	mu      sync.Mutex // guards changed
	changed chan struct{}

	// Owned by Run.
	known         Knowledge
	looked, asked time.Duration
	renewed, read time.Duration
	missing       time.Duration // since when there is no Lease; 0 = there is one, or it is not known
	failing       bool          // reads do
	failed        time.Duration // since when
	refused       bool          // writes are, and it was told
	told          Verdict
	spoke         bool
}

// NewKeeper makes a Keeper that knows nothing; it starts nothing.
func NewKeeper(o Options) *Keeper {
	k := &Keeper{o: o, nudge: make(chan struct{}, 1), changed: make(chan struct{})}
	k.view.Store(&Knowledge{})
	k.alive.Store(int64(o.Now()))
	return k
}

// Verdict is what may be done with a new turn at this moment.
func (k *Keeper) Verdict() Verdict {
	terms, on := k.o.Terms()
	if !on {
		return Verdict{Mode: Serve}
	}
	// In this order: the keeper shows that it knows of a pause before it shows that it
	// lives again.
	paused := k.o.Now()-time.Duration(k.alive.Load()) > terms.Renew
	known := *k.view.Load()
	known.Highest = k.highest.Load()
	known.Stale = known.Stale || paused
	return Judge(k.o.Me.Slot, known)
}

// Epoch goes with every claim.
func (k *Keeper) Epoch() int64 {
	if _, on := k.o.Terms(); !on || !k.view.Load().Seen {
		return k.highest.Load() // what the store has shown; less, and it would refuse everything
	}
	return k.view.Load().Epoch
}

// Changed is closed when Verdict may give another answer. Ask for it before
// Verdict.
func (k *Keeper) Changed() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}

// Heard takes in an epoch that the store or a peer has shown: authority ends at
// once if it is higher than our own.
func (k *Keeper) Heard(epoch int64) {
	if k.raise(epoch) {
		k.Doubt()
	}
}

// raise notes an epoch; true = it is higher than any before.
func (k *Keeper) raise(epoch int64) bool {
	for {
		known := k.highest.Load()
		if epoch <= known {
			return false
		}
		if k.highest.CompareAndSwap(known, epoch) {
			return true
		}
	}
}

// Doubt makes the keeper look at the Lease: somebody acts as if it said something
// else.
func (k *Keeper) Doubt() {
	k.doubted.Store(true)
	k.Wake()
}

// Wake makes the keeper look whether it is still eligible.
func (k *Keeper) Wake() {
	select {
	case k.nudge <- struct{}{}:
	default:
	}
}

// Run keeps the Lease until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	seen := make(chan Sight)
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		k.o.Leases.Watch(watching, func(s Sight) {
			select {
			case seen <- s:
			case <-watching.Done():
			}
		})
	})
	defer watch.Wait()
	defer stop()
	for {
		timer := time.NewTimer(min(k.step(ctx), pulse))
		select {
		case s := <-seen:
			k.overhear(s)
		case <-k.nudge:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// step looks, moves and tells; it returns when to do so again.
func (k *Keeper) step(ctx context.Context) time.Duration {
	terms, on := k.o.Terms()
	if !on {
		k.alive.Store(int64(k.o.Now()))
		k.show(Verdict{Mode: Serve})
		return pulse
	}
	now := k.beat(terms)
	k.publish()
	doubt := k.doubted.Load() && now-k.read >= doubtPause
	if doubt || k.known.Stale || !k.known.Seen || now-k.read >= max(terms.Lease/3, time.Second) {
		k.doubted.Store(false)
		k.look(ctx, terms)
	}
	defer k.publish()
	move, wait := k.next(terms)
	if move == Acquire {
		if !k.look(ctx, terms) { // what a watch or a cache said is not enough
			return pulse / 2
		}
		move, wait = k.next(terms)
	}
	if k.doubted.Load() {
		wait = min(wait, doubtPause)
	}
	switch {
	case k.known.Stale || !k.known.Seen:
		return pulse // there is nothing to go by
	case move == Stay:
		return wait
	}
	return k.move(ctx, move, terms)
}

// beat shows that the process runs, and notes if it stood still for too long.
func (k *Keeper) beat(t Terms) time.Duration {
	now := k.o.Now()
	if now-time.Duration(k.alive.Load()) > t.Renew {
		k.known.Stale = true
		k.publish()
	}
	k.alive.Store(int64(now))
	return now
}

func (k *Keeper) next(t Terms) (Move, time.Duration) {
	return Next(Position{Me: k.o.Me, Sight: k.known.Sight, Eligible: k.o.Eligible(),
		Highest: k.highest.Load(), Looked: k.looked, Asked: k.asked, Renewed: k.renewed}, t, k.o.Now())
}

// look reads the Lease; false = it is not known what it says now.
func (k *Keeper) look(ctx context.Context, t Terms) bool {
	k.read = k.beat(t)
	bounded, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	s, err := k.o.Leases.Read(bounded)
	if k.beat(t)-k.read > t.Renew {
		return false // of a time before the process stood still
	}
	switch {
	case err == nil:
		k.readable()
		k.missing, k.known.Stale = 0, false
		k.learn(s)
		return true
	case errors.Is(err, ErrNoLease):
		k.readable()
		k.known.Stale = false
		if k.missing == 0 {
			k.missing = k.read
			k.o.Log.Warn("There is no activation Lease; authority stays as it is")
		}
		k.known.Blind = k.o.Now()-k.missing >= t.Lease
	default:
		k.known.Blind = true
		if !k.failing && ctx.Err() == nil {
			// Nobody else can be given authority meanwhile, so that nothing changes.
			k.failing, k.failed = true, k.read
			k.o.Log.Warn("The activation Lease cannot be read; authority stays as it is", "error", err)
		}
	}
	return false
}

// readable notes that the API server answers. Time in which it did not, or in which
// this process stood still, is not held against a holder that was not seen to renew.
func (k *Keeper) readable() {
	now := k.o.Now()
	switch {
	case k.known.Stale:
		k.looked = now
	case k.failing:
		k.looked = min(now, k.looked+now-k.failed)
		k.o.Log.Info("The activation Lease can be read again")
	}
	k.failing = false
}

// overhear takes over what a watch says, unless more is known.
func (k *Keeper) overhear(s Sight) {
	if k.known.Seen {
		if order, err := resourceversion.CompareResourceVersion(s.Version, k.known.Version); err != nil || order <= 0 {
			return
		}
	}
	k.learn(s)
}

// learn takes over what the Lease says.
func (k *Keeper) learn(s Sight) {
	now := k.o.Now()
	if !k.known.Seen || s.Holder != k.known.Holder || s.Renewed != k.known.Renewed || s.Foreign != k.known.Foreign {
		k.looked = now
	}
	if !k.known.Seen || s.Next != k.known.Next {
		k.asked = now
	}
	k.known.Sight, k.known.Seen, k.known.Blind = s, true, false
	k.raise(s.Epoch)
	k.publish()
}

// move changes the Lease.
func (k *Keeper) move(ctx context.Context, m Move, t Terms) time.Duration {
	k.known.Highest = k.highest.Load()
	began := k.beat(t)
	bounded, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	s, err := k.o.Leases.Write(bounded, After(m, k.o.Me, k.known, k.o.Wall()))
	if k.beat(t)-began > t.Renew {
		return 0
	}
	switch {
	case err == nil:
		k.refused = false
		k.renewed = began
		k.learn(s)
		if m != Renew {
			k.o.Log.Info("Changed the activation Lease", "move", m.String(), "epoch", s.Epoch, "holder", s.Holder.String())
		}
		return 0
	case errors.Is(err, ErrConflict):
		k.doubted.Store(true) // somebody was quicker
	case errors.Is(err, ErrNoLease):
		return t.Retry // until the operator has made it anew
	case !k.refused && ctx.Err() == nil:
		k.refused = true
		k.o.Log.Warn("The activation Lease cannot be changed", "move", m.String(), "error", err)
	}
	return pulse / 2
}

// publish shows what is known, and wakes who waits for it.
func (k *Keeper) publish() {
	k.known.Highest = k.highest.Load()
	if *k.view.Load() == k.known {
		return
	}
	view := k.known
	k.view.Store(&view)
	k.show(Judge(k.o.Me.Slot, view))
}

// show tells of a verdict that differs from the one before.
func (k *Keeper) show(v Verdict) {
	if v == k.told && k.spoke {
		return
	}
	k.told, k.spoke = v, true
	k.o.Log.Info("Authority", "mode", v.Mode.String(), "epoch", v.Epoch, "holder", k.known.Holder.String(), "next", k.known.Next)
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.changed)
	k.changed = make(chan struct{})
}
