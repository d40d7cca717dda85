package account

// permits bound the turns of an account on this replica, if its maxConcurrent is
// shared with other replicas.
type permits struct {
	// needed: turns need permits; without that nothing here matters.
	needed bool
	// count is how many there are, below 0 = they are not to be had and share counts.
	count int
	// share is this replica's part of the limit, for as long as it hears of no other.
	share int
}

// need says whether turns need permits. The first are leased, so that there are
// none to begin with.
func (p *permits) need(needed bool) {
	if needed != p.needed {
		p.needed, p.count = needed, 0
	}
}

func (p *permits) allowed() int {
	if p.count < 0 {
		return p.share
	}
	return p.count
}

func (p *permits) used(inflight int) bool { return p.needed && inflight >= p.allowed() }

// Load is how busy an account is here whose limit is shared with other replicas.
type Load struct {
	Name string
	// Limit is how many turns may run on it in all replicas together.
	Limit int
	// Allowed is how many may run here: what SetPermits said, or this replica's share.
	Allowed int
	// Inflight turns run here. Waiting ones would, if there was room; a turn that can
	// take several accounts waits for each of them.
	Inflight, Waiting int
}

// LeasePermits makes the turns of pools with capacityScope Shared need permits: see
// Loads and SetPermits. short is called when one waits that may need a permit, or
// when the configuration has changed; it must not block, nor call the registry.
// Call it before Update. Without it a Shared limit holds for each replica by itself.
func (r *Registry) LeasePermits(short func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.short = short
}

func (r *Registry) askPermits() {
	if r.short != nil && r.capacity == scopeShared {
		r.short()
	}
}

// Loads lists the accounts whose turns need permits.
func (r *Registry) Loads() []Load {
	r.mu.Lock()
	defer r.mu.Unlock()
	var loads []Load
	index := map[string]int{}
	for _, name := range r.order {
		if e := r.entries[name]; e.permits.needed {
			index[name] = len(loads)
			loads = append(loads, Load{Name: name, Limit: e.written.MaxConcurrent, Allowed: e.permits.allowed(), Inflight: e.inflight})
		}
	}
	if len(loads) == 0 || r.room.Waiting() == 0 {
		return loads
	}
	r.look(r.clock.Now())
	r.room.Demand(func(one *ticket, count int) {
		for i := range r.view {
			if at, ok := index[r.view[i].Name]; ok && r.view[i].takes(r.strategy, one.Value.want) {
				loads[at].Waiting += count
			}
		}
	})
	return loads
}

// SetPermits says how many turns may run on an account here, below 0 = no more than
// this replica's share of the limit. Turns that run beyond that go on, and no new
// one begins. It returns how many run.
func (r *Registry) SetPermits(name string, count int) (inflight int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	if !ok {
		return 0
	}
	if more := count < 0 || count > e.permits.allowed(); e.permits.count != count {
		e.permits.count = count
		if more {
			r.serveWaiters(r.clock.Now())
		}
	}
	return e.inflight
}
