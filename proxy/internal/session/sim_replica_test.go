package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// simPod is the place of a replica: one process after the other lives there.
type simPod struct {
	name  string
	proc  *simProc
	lives int
}

// simProc is one process of a replica.
type simProc struct {
	sim      *sim
	pod      *simPod
	name     string
	holder   store.Holder
	registry *Registry
	accounts *account.Registry
	writer   *simWriter
	leases   []*simLease
	actors   []*simActor
	byActor  map[*actor]*simActor
	conns    []*simConn
	held     []*simTask // while it is paused
	watch    simObserver
	base     uint32 // of the numbers of its sockets
	// claims are what the store knew before each claim, by epoch.
	claims map[int64]store.Entry

	paused, dead, cut, failing, draining bool
}

// simEpoch is when all begins.
var simEpoch = time.Unix(1_800_000_000, 0)

// simClock is the time of an account registry. Nothing waits there, so that
// nothing needs a timer.
type simClock struct{ sim *sim }

func (c simClock) Now() time.Time { return c.sim.now }

// AfterFunc never calls: nobody waits in the registry.
func (c simClock) AfterFunc(time.Duration, func()) clock.Timer { return noTimer{} }

type noTimer struct{}

func (noTimer) C() <-chan time.Time      { return nil }
func (noTimer) Stop() bool               { return true }
func (noTimer) Reset(time.Duration) bool { return true }

// startProc begins a process in a pod.
func (s *sim) startProc(pod *simPod) {
	pod.lives++
	p := &simProc{sim: s, pod: pod, name: fmt.Sprintf("%s.%d", pod.name, pod.lives), byActor: map[*actor]*simActor{},
		claims: map[int64]store.Entry{}}
	p.holder = store.Holder{Pod: pod.name, Process: p.name, Address: pod.name + ":8081"}
	p.writer = &simWriter{proc: p, lanes: map[string]*simLane{}}
	p.accounts = account.NewRegistry(simClock{s})
	p.accounts.Update(s.plan.runtime)
	p.settleCursor()
	p.registry = newRegistry(Services{
		Accounts: simAccounts{p.accounts}, Dialer: func(*config.Runtime) Dialer { return simDialer{p} }, Observer: &p.watch,
		Log: slog.New(slog.DiscardHandler), Holder: p.holder, Store: simStore{p}, Writer: p.writer,
		Keep: p.keep, Instant: p.instant, MaxSessions: s.plan.maxSessions,
	}, &simWorld{s, p})
	// Each process counts its sockets from somewhere else.
	p.base = s.rng.Uint32()
	p.registry.generation.Store(uint64(p.base) << 32)
	pod.proc = p
	s.later(s.upTo(simRenewEvery), p, p.name+" renews", p.keepAll)
	s.log("%s starts", p.name)
}

// settleCursor takes the chance out of the registry's first choice.
func (p *simProc) settleCursor() {
	for {
		lease, err := p.accounts.Acquire(p.sim.context(), account.Want{})
		if err != nil {
			return
		}
		lease.Release()
		if lease.Account().Name == p.sim.plan.accounts[0] {
			return
		}
	}
}

// crash ends a process without a word: nobody is told, nothing is written.
func (p *simProc) crash() {
	s := p.sim
	s.counts["crashes"]++
	s.log("%s crashes", p.name)
	p.bury()
	s.later(time.Second+s.upTo(20*time.Second), nil, p.pod.name+" starts again", func() { s.startProc(p.pod) })
}

func (p *simProc) bury() {
	p.dead, p.paused, p.held = true, false, nil
	for _, c := range p.conns {
		c.vanish()
	}
	for _, sa := range p.actors {
		sa.cancel()
		sa.timer.Stop()
	}
	for _, talk := range p.sim.talks {
		talk.lost(p)
	}
}

// pause stops a process for a while, and its clock with it.
func (p *simProc) pause(d time.Duration) {
	s := p.sim
	s.counts["pauses"]++
	s.log("%s is paused for %s", p.name, d)
	p.paused = true
	s.later(d, nil, p.name+" goes on", p.resume)
}

func (p *simProc) resume() {
	p.paused = false
	p.sim.ready = append(p.sim.ready, p.held...)
	p.held = nil
}

// cutOff keeps the store from a process for a while.
func (p *simProc) cutOff(d time.Duration) {
	p.sim.log("%s loses the store for %s", p.name, d)
	p.cut = true
	p.sim.later(d, nil, p.name+" has the store again", func() { p.cut = false })
}

// drain does what Registry.Close does, without waiting for it.
func (p *simProc) drain(limit time.Duration) {
	s := p.sim
	s.counts["drains"]++
	s.log("%s drains", p.name)
	p.draining = true
	p.registry.mu.Lock()
	p.registry.closing = true
	p.registry.mu.Unlock()
	p.tellAll(draining{})
	s.later(limit, p, p.name+" is out of time", func() { p.tellAll(draining{force: true}) })
	p.awaitEnd()
}

func (p *simProc) tellAll(m any) {
	for _, sa := range append([]*simActor(nil), p.actors...) {
		p.registry.world.post(sa.actor, m)
	}
}

// awaitEnd replaces the process when its last actor has ended and its last write
// has gone out, at the latest some seconds later.
func (p *simProc) awaitEnd() {
	s := p.sim
	if len(p.actors) > 0 {
		s.later(time.Second, p, p.name+" ends soon", p.awaitEnd)
		return
	}
	s.later(2*hurry, p, p.name+" ends", func() { // after the last late result of its work
		p.mustBeEmpty()
		p.bury()
		s.startProc(p.pod)
	})
}

// mustBeEmpty: nothing is left of turns and connections when the actors are gone.
func (p *simProc) mustBeEmpty() {
	s := p.sim
	for _, state := range p.accounts.States() {
		s.must(state.Inflight == 0, "leases of accounts are balanced", "%s: %d left on %s", p.name, state.Inflight, state.Name)
	}
	for _, c := range p.conns {
		s.must(!c.open(), "connections end with their session", "%s: a connection to %s is open", p.name, c.account)
	}
	s.must(p.registry.sockets.Load() == 0, "sockets are counted", "%s: %d left", p.name, p.registry.sockets.Load())
	s.must(len(p.registry.sessions) == 0, "sessions end", "%s: %d left", p.name, len(p.registry.sessions))
	for key, owner := range s.shared.owners {
		if s.healed && s.now.Sub(s.healedAt) > 2*leaseTime && owner.proc == p { // no claim whose answer got lost
			e := s.shared.entry(key)
			s.must(!e.Holder.Same(p.holder), "keys are released", "%s is held by %s", key, p.name)
		}
	}
}

// simObserver counts what actors tell.
type simObserver struct {
	rows    []string // of one step
	strikes int      // in one step
	counts  map[string]int
}

func (o *simObserver) add(what string) {
	if o.counts == nil {
		o.counts = map[string]int{}
	}
	o.counts[what]++
}

func (o *simObserver) AttemptDone(_ Transport, row string) {
	o.rows = append(o.rows, row)
	o.add("row " + row)
}
func (o *simObserver) RequestSent(Transport, int64)    {}
func (o *simObserver) Unmatched()                      { o.add("unmatched") }
func (o *simObserver) Struck(StrikeClass)              { o.strikes++; o.add("strike") }
func (o *simObserver) Suppressed(reason string)        { o.add("suppressed " + reason) }
func (o *simObserver) Probed(outcome string)           { o.add("probe " + outcome) }
func (o *simObserver) AnchorRetired(cause AnchorCause) { o.add("retired " + string(cause)) }
func (o *simObserver) Replayed(proof string)           { o.add("replayed " + proof) }
func (o *simObserver) Fenced()                         { o.add("fenced") }
func (o *simObserver) StoreFailed(request string)      { o.add("store " + request) }

// simAccounts lets nobody wait: who would have to is refused, as after the time to
// wait. The world has one goroutine, and waiting is the registry's own business.
type simAccounts struct{ *account.Registry }

func (s simAccounts) Acquire(ctx context.Context, w account.Want) (*account.Lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return s.Registry.Acquire(ctx, w)
}
