package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// Times of the real keeper.
const (
	simRenewEvery = leaseTime / 3
	simRenewRetry = time.Second
)

// simLease is a lease by its process' own clock.
type simLease struct {
	proc    *simProc
	held    store.Held
	until   time.Time
	renewed time.Time // when the request was sent that made it good last
	let     bool
}

func (l *simLease) Valid() bool { return !l.let && l.proc.sim.now.Before(l.until) }
func (l *simLease) Let()        { l.let = true }

// instant is a clock that only goes forward.
func (p *simProc) instant() time.Duration { return p.sim.now.Sub(simEpoch) }

func (p *simProc) keep(c store.Claimed, started time.Duration) Lease {
	begun := simEpoch.Add(started)
	l := &simLease{proc: p, held: c.Held, until: begun.Add(leaseTime), renewed: begun}
	p.leases = append(p.leases, l)
	p.believe(l)
	return l
}

// believe notes a lease that its process takes for good from now on. One that the
// store gave before it lost everything says nothing.
func (p *simProc) believe(l *simLease) {
	sh := p.sim.shared
	if !l.Valid() || !sh.wiped.IsZero() && !l.renewed.After(sh.wiped) {
		return
	}
	sh.alone(p, l.held.Key)
	sh.leases[l.held.Key] = append(sh.leases[l.held.Key], l)
}

// renew asks the store to extend leases, and takes the answer in when it comes.
func (p *simProc) renew(leases []*simLease) {
	s := p.sim
	var batch []*simLease
	var keys []store.Held
	for _, l := range leases {
		if !l.let && !l.Valid() {
			l.let = true // over: its owner has seen that
		}
		if !l.let {
			batch, keys = append(batch, l), append(keys, l.held)
		}
	}
	p.leases = slices.DeleteFunc(p.leases, func(l *simLease) bool { return l.let })
	if len(batch) == 0 {
		return
	}
	begun := s.now
	errs := simStore{p}.Renew(context.Background(), keys, leaseTime)
	s.later(s.upTo(time.Second), p, p.name+" renewed", func() { p.renewed(batch, errs, begun) })
}

func (p *simProc) renewed(batch []*simLease, errs []error, begun time.Time) {
	var again []*simLease
	for i, l := range batch {
		var f *store.Fenced
		switch {
		case l.let:
		case errs[i] == nil:
			l.until, l.renewed = begun.Add(leaseTime), begun
			p.believe(l)
		case errors.As(errs[i], &f):
			l.let = true
			p.registry.Fenced(l.held, f.Current)
		default:
			again = append(again, l)
		}
	}
	if len(again) > 0 {
		p.sim.later(simRenewRetry, p, p.name+" renews again", func() { p.renew(again) })
	}
}

// keepAll renews all leases, again and again.
func (p *simProc) keepAll() {
	p.renew(slices.Clone(p.leases))
	p.sim.later(simRenewEvery, p, p.name+" renews", p.keepAll)
}
