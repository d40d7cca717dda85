package circuit

import (
	"hash/fnv"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// Metrics count what happens to circuits; telemetry.Metrics does.
type Metrics interface {
	RouteChanged(key, to string)
	RouteRefused(key string)
	RouteInconclusive(key string)
}

// Options of Routes.
type Options struct {
	// Clock tells the time, with a monotonic part.
	Clock interface{ Now() time.Time }
	// Salt tells replicas apart.
	Salt    uint64
	Log     *slog.Logger
	Metrics Metrics
}

// maxRoutes bounds the circuits that are kept. A pool has a handful of routes;
// what comes beyond shares one.
const maxRoutes = 64

// overflow is the circuit of what has none of its own.
var overflow = Key{Host: "other"}

// Routes are the circuits of all upstream routes of a proxy. It is safe for
// concurrent use and starts no goroutine. Until Update was called it lets
// everything through.
type Routes struct {
	options Options
	seed    maphash.Seed

	mu       sync.Mutex // guards all below; never held over IO, logs or metrics
	policy   Policy
	ready    bool
	perHost  bool
	breakers map[Key]*Breaker
	forces   []Force // those asked for, their ends on our clock
}

// New returns Routes without circuits.
func New(o Options) *Routes {
	return &Routes{options: o, seed: maphash.MakeSeed(), breakers: map[Key]*Breaker{}}
}

// scopeProvider is bundle.Breaker.Scope for one circuit per host.
const scopeProvider = "Provider"

// Update takes over a policy; accounts is the number of accounts of the pool.
// Circuits keep their state. An open time that is longer than the new longest is
// cut.
func (r *Routes) Update(b bundle.Breaker, accounts int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policy, r.ready, r.perHost = PolicyOf(b, accounts), true, b.Scope == scopeProvider
	now := r.options.Clock.Now()
	for _, breaker := range r.breakers {
		breaker.clamp(r.policy, now)
	}
}

// Permit asks to dial or to send on a route for a caller, which is the key of a
// client or whatever tells clients apart. Ask last, when nothing else has to be
// waited for. A permit that is given ends with Done or Neutral. A refusal is a 503
// whose hint is true.
func (r *Routes) Permit(key Key, caller string) (*Permit, *failure.Failure) {
	permit, refusal, key, changes := r.permit(key, caller)
	r.tell(key, changes)
	if refusal != nil {
		r.options.Metrics.RouteRefused(key.String())
	}
	return permit, refusal
}

func (r *Routes) permit(key Key, caller string) (*Permit, *failure.Failure, Key, []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ready {
		return &Permit{routes: r, breaker: &Breaker{}}, nil, key, nil
	}
	key, b := r.breaker(key)
	ticket, wait, running, ok := b.Admit(r.policy, r.id(caller), r.options.Clock.Now())
	changes := b.Changes()
	if !ok {
		return nil, refusal(wait, running), key, changes
	}
	return &Permit{routes: r, key: key, breaker: b, ticket: ticket}, nil, key, changes
}

// Reasons of refusals.
const (
	reasonOpen    = "route_open"
	reasonRunning = "probe_running"
)

// runningMax bounds the hint while probes run: the next of them decides. Package
// failure spreads hints, so that clients do not come back in one moment.
const runningMax = 25 * time.Second

func refusal(wait time.Duration, running bool) *failure.Failure {
	wait = max(wait, time.Millisecond)
	if running {
		return failure.New(failure.RouteOpen, "The upstream has failed, and another request is trying whether it works again.",
			failure.Reason(reasonRunning), failure.After(min(wait, runningMax)), failure.Dispatched(failure.DispatchNone))
	}
	return failure.New(failure.RouteOpen, "The upstream has failed for several requests in a row and is left alone for a while.",
		failure.Reason(reasonOpen), failure.After(wait), failure.Dispatched(failure.DispatchNone))
}

// breaker finds or makes the circuit of a key.
func (r *Routes) breaker(key Key) (Key, *Breaker) {
	if r.perHost {
		key = Key{Host: key.Host}
	}
	if b, known := r.breakers[key]; known {
		return key, b
	}
	if len(r.breakers) >= maxRoutes && !r.forget() {
		key = overflow
		if b, known := r.breakers[key]; known {
			return key, b
		}
	}
	b := &Breaker{Salt: r.options.Salt ^ saltOf(key)}
	r.breakers[key] = b
	r.obey(key, b, r.options.Clock.Now())
	return key, b
}

// saltOf tells the circuits of one replica apart.
func saltOf(key Key) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key.String()))
	return h.Sum64()
}

// forget drops a circuit that nobody needs.
func (r *Routes) forget() bool {
	for key, b := range r.breakers {
		if b.idle() {
			delete(r.breakers, key)
			return true
		}
	}
	return false
}

// id is a number for a name; empty has none.
func (r *Routes) id(name string) uint64 {
	if name == "" {
		return 0
	}
	return max(1, maphash.String(r.seed, name))
}

// tell reports changes. No lock is held.
func (r *Routes) tell(key Key, changes []Change) {
	for _, c := range changes {
		name := key.String()
		if c.Inconclusive {
			r.options.Metrics.RouteInconclusive(name)
			r.options.Log.Warn("Probes of a route decide nothing", "route", name, "reason", "ProbeInconclusive")
			continue
		}
		r.options.Metrics.RouteChanged(name, c.To.String())
		attributes := []any{"route", name, "from", c.From.String(), "to", c.To.String(), "reason", c.Reason}
		if !c.Until.IsZero() {
			attributes = append(attributes, "until", c.Until.Round(0), "opened", c.Opened)
		}
		r.options.Log.Info("Changed circuit of route", attributes...)
	}
}

// Permit is one admitted attempt. Its methods are safe for concurrent use.
type Permit struct {
	routes  *Routes
	key     Key
	breaker *Breaker

	ticket Ticket // guarded by routes.mu
	done   bool   // guarded by routes.mu
}

// Event says that the first valid event of the answer came, or the first byte of
// a good answer that has no events. Only the first call counts.
func (p *Permit) Event() {
	p.with(func(policy Policy, now time.Time) {
		if !p.done {
			p.breaker.Event(policy, &p.ticket, now)
		}
	})
}

// RouteClosed says that nothing is known against the route: its circuit is closed,
// and the attempt is no probe.
func (p *Permit) RouteClosed() bool {
	p.routes.mu.Lock()
	defer p.routes.mu.Unlock()
	return p.ticket.probe == 0 && p.breaker.shown() == Closed
}

// Done says how the attempt ended, and with which account. Only the first Done or
// Neutral counts.
func (p *Permit) Done(k outcome.Kind, account string) {
	p.with(func(policy Policy, now time.Time) {
		if !p.done {
			p.done = true
			p.breaker.Done(policy, &p.ticket, k, p.routes.id(account), now)
		}
	})
}

// Neutral ends an attempt that tells nothing; a probe's slot is free again.
func (p *Permit) Neutral() { p.Done(outcome.Shed, "") }

func (p *Permit) with(do func(policy Policy, now time.Time)) {
	r := p.routes
	r.mu.Lock()
	do(r.policy, r.options.Clock.Now())
	changes := p.breaker.Changes()
	r.mu.Unlock()
	r.tell(p.key, changes)
}
