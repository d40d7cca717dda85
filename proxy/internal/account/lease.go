package account

import "sync/atomic"

// Lease is one live turn on an account. It counts against the account's
// MaxConcurrent until Release; an idle session holds none.
type Lease struct {
	registry *Registry
	entry    *entry
	account  Account
	released atomic.Bool
}

// Account is the account as it was when the lease began.
func (l *Lease) Account() Account { return l.account }

// Release ends the lease; further calls do nothing.
func (l *Lease) Release() {
	if l.released.Swap(true) {
		return
	}
	r := l.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	l.entry.inflight--
	now := r.clock.Now()
	if l.entry.forgettable(now) {
		delete(r.entries, l.account.Name)
		return
	}
	r.serveFrom(l.entry, now)
}
