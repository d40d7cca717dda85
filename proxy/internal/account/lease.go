package account

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
)

// Lease is one live turn on an account. It counts against the account's
// MaxConcurrent until Release; an idle session holds none.
//
// With it comes the permit of the turn's lane. A caller that takes it, by Permit,
// gives it back itself, once the client has its last byte. Of one that does not,
// Release gives back both. A turn that came with a permit (Want.Permit) keeps it
// either way.
type Lease struct {
	registry *Registry
	entry    *entry
	account  Account
	permit   *bulkhead.Permit
	// began tells what the turn proves about limits that were hit meanwhile.
	began time.Time
	// apart: the permit is given back by someone else.
	apart    atomic.Bool
	released atomic.Bool
}

// Account is the account as it was when the lease began.
func (l *Lease) Account() Account { return l.account }

// Permit is the lane's permit, which is the caller's to release from now on. Take
// it before Release, not beside it: what Release has given back stays so.
func (l *Lease) Permit() *bulkhead.Permit {
	l.apart.Store(true)
	return l.permit
}

// Release gives the account back, to whoever waits for it; further calls do
// nothing.
func (l *Lease) Release() {
	if l.released.Swap(true) {
		return
	}
	r := l.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	l.entry.inflight--
	l.entry.probeEnded(l)
	l.entry.pace.Add(now)
	if !l.apart.Load() && l.permit.Spend() {
		r.room.Give(l.permit, now)
	}
	if l.entry.forgettable(now) {
		delete(r.entries, l.account.Name)
	}
	r.serveRoom(now)
}

// permitReleased is what Permit.Release does.
func (r *Registry) permitReleased(p *bulkhead.Permit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	r.room.Give(p, now)
	r.serveRoom(now)
}

// Scope names a lane in metrics and errors.
func Scope(l bulkhead.Lane) string { return strings.ToLower(l.String()) }
