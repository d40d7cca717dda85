package session

import (
	"context"
	"log/slog"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Accounts lends accounts to turns.
type Accounts interface {
	Acquire(ctx context.Context, w account.Want) (*account.Lease, error)
	// Eventless says that a turn broke without an event, or in the midst of them.
	Eventless(name string)
	// Failed says that the upstream refused a turn for what the account may do.
	Failed(name string)
	// Lacks says that the account does not have a model.
	Lacks(name, model string)
	// Observe takes in what the upstream tells of the account's windows.
	Observe(name string, u account.Usage)
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
	// Struck is called for a strike against a session key.
	Struck(class StrikeClass)
	// Suppressed is called for a turn that was refused before it was sent, by its
	// circuit or for what it builds on.
	Suppressed(reason string)
	// Probed is called when a probe is taken ("taken") and when it ends: "closed",
	// "reopened" or "returned".
	Probed(outcome string)
	// AnchorRetired is called when an anchor stops being good.
	AnchorRetired(cause AnchorCause)
	// Replayed is called for a turn that was sent or answered again, with the proof
	// that made it legal: the recovery, or "transcript".
	Replayed(proof string)
	// Fenced is called when a key turns out to belong to another replica.
	Fenced()
	// StoreFailed is called for a request that the store did not answer.
	StoreFailed(request string)
}

// Writer hands writes to the store. It never waits and never fails: what cannot
// be written now is written later, in order for each key.
type Writer interface {
	Save(h store.Held, version int64, value []byte, life time.Duration)
	PutTurn(h store.Held, t store.Turn, life time.Duration)
	DropTurn(h store.Held, fingerprint string, attempt int)
	AppendEvents(h store.Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration)
	PutAlias(name string, value []byte, life time.Duration)
	Drain(h store.Held)
	Release(h store.Held)
	// Healthy says whether the store answered last.
	Healthy() bool
	// Await returns when nothing waits for key, or with ctx.
	Await(ctx context.Context, key store.Key) error
}

// Lease is a claim that is being renewed. Valid may be called by any goroutine;
// it judges by the local clock.
type Lease interface {
	Valid() bool
	// Let ends the renewal.
	Let()
}

// Authority is the right of this replica's slot to claim what the store keeps.
type Authority interface {
	// Epoch goes with every claim.
	Epoch() int64
	// Heard takes in an epoch that the store has shown.
	Heard(epoch int64)
}

// Services are what sessions use. All are safe for concurrent use.
type Services struct {
	Accounts Accounts
	// Routes are the circuits of the ways upstream; nil = all are open to traffic.
	Routes *circuit.Routes
	// Hold is how long the client is kept from seeing that a response was created: an
	// upstream that has too much to do says so right after, within the same answer,
	// and until the client has seen a byte another account can take the turn. It is
	// as long as the HTTP status waits for the first event. 0 = DefaultHold.
	Hold time.Duration
	// Dialer returns the dialer that fits a configuration.
	Dialer   func(*config.Runtime) Dialer
	Observer Observer
	Log      *slog.Logger
	// Holder is this process in the store.
	Holder store.Holder
	// Store holds the records; nil = one of this process' own.
	Store store.Store
	// Writer writes to Store. Keep renews a claim that was begun at an instant of
	// Instant, a clock that runs during suspend. Required with Store.
	Writer  Writer
	Keep    func(c store.Claimed, started time.Duration) Lease
	Instant func() time.Duration
	// Authority is that of this replica's slot; nil = there is one slot, which always
	// has it.
	Authority Authority
	// Local says that the store is this process' own memory and answers at once;
	// set where Store is nil.
	Local bool
	// MaxSessions bounds the sessions in memory; the one that is idle longest
	// makes room. 0 = DefaultMaxSessions.
	MaxSessions int
}

// DefaultMaxSessions fits in about 400 MiB and in the descriptors of a usual pod.
const DefaultMaxSessions = 10_000

// DefaultHold is the longest that clients wait for a head without harm.
const DefaultHold = 2 * time.Second

// direct is the Writer of a store that answers at once.
type direct struct{ store store.Store }

func (d direct) Save(h store.Held, version int64, value []byte, life time.Duration) {
	_ = d.store.Save(context.Background(), h, version, value, life)
}

func (d direct) PutTurn(h store.Held, t store.Turn, life time.Duration) {
	_ = d.store.PutTurn(context.Background(), h, t, life)
}

func (d direct) DropTurn(h store.Held, fingerprint string, attempt int) {
	_ = d.store.DropTurn(context.Background(), h, fingerprint, attempt)
}

func (d direct) AppendEvents(h store.Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration) {
	_ = d.store.AppendEvents(context.Background(), h, fingerprint, attempt, from, events, life)
}

func (d direct) PutAlias(string, []byte, time.Duration) {} // the registry remembers them itself
func (d direct) Drain(h store.Held)                     { _ = d.store.Drain(context.Background(), h) }
func (d direct) Release(h store.Held)                   { _ = d.store.Release(context.Background(), h) }
func (d direct) Healthy() bool                          { return true }

func (d direct) Await(context.Context, store.Key) error { return nil }

// forever is the lease of a store that nobody else can claim from.
type forever struct{}

func (forever) Valid() bool { return true }
func (forever) Let()        {}

// alone completes the services of a process without a shared store.
func (s *Services) alone() {
	if s.Store != nil {
		return
	}
	s.Local, s.Store = true, store.NewMemory(time.Now)
	s.Writer, s.Keep = direct{s.Store}, func(store.Claimed, time.Duration) Lease { return forever{} }
	s.Instant = func() time.Duration { return 0 }
	if s.Holder.Process == "" {
		s.Holder = store.Holder{Pod: "local", Process: "local"}
	}
}
