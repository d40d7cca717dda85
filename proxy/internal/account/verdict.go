package account

import "time"

// Succeeded says that the turn went well. It ends a cool-down after failed
// connects, and those of limits that were hit before the turn began: the account
// works, whatever was said of it. It counts for the account's health.
func (l *Lease) Succeeded() {
	l.registry.mu.Lock()
	defer l.registry.mu.Unlock()
	l.registry.succeeded(l.entry, l.began)
}

// Succeeded is Lease.Succeeded of a turn of which it is not known when it began:
// it ends no cool-down of a limit.
func (r *Registry) Succeeded(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[name]; ok {
		r.succeeded(e, time.Time{})
	}
}

func (r *Registry) succeeded(e *entry, began time.Time) {
	now := r.clock.Now()
	e.succeeded = now
	e.health.succeed()
	e.eventless.clear()
	ejected := e.ejection.until.After(now)
	e.ejection = ejection{}
	if e.cooling.succeeded(began, now) {
		e.distrust = true
		ejected = true
	}
	if ejected {
		r.serveWaiters(now)
	}
}

// Failed says that a turn broke and that the account is to blame: it counts for the
// account's health and for its ejection. Overload, limits and what lies at the
// network or the client are no such failures and must not come here.
func (r *Registry) Failed(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[name]; ok {
		now := r.clock.Now()
		e.health.fail(now)
		e.ejection.fail(r.ejection, false, now)
		r.serveWaiters(now)
	}
}

// Eventless says that a turn broke without a single event. One says nothing about
// the account; the third within 300 s makes it sick. If more than half of the
// accounts had one within that time, the cause is what they share: nobody is
// blamed, and who was already is cleared. In a row they lead to an ejection.
func (r *Registry) Eventless(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	if !ok {
		return
	}
	now := r.clock.Now()
	limit := e.eventless.note(now)
	if hit, all := r.hit(now); most(hit, all) {
		r.forgive(now)
	} else {
		if limit {
			e.health.blame(now)
			e.eventless.clear()
		}
		e.ejection.fail(r.ejection, true, now)
	}
	r.serveWaiters(now)
}

// hit counts the accounts with an eventless failure, and all that can have one.
func (r *Registry) hit(now time.Time) (hit, all int) {
	for _, name := range r.order {
		e := r.entries[name]
		recent := e.eventless.recent(now)
		if state, _, _ := e.state(now); state == Usable || state == Draining || recent {
			all++
			hit += one(recent)
		}
	}
	return hit, all
}

func (r *Registry) forgive(now time.Time) {
	for _, name := range r.order {
		if e := r.entries[name]; e.eventless.recent(now) {
			e.health.forgive()
			e.ejection.forgive()
			e.eventless.clear()
		}
	}
}

// Lacks says that the upstream does not serve a model on this account; for an hour
// such turns go to others. The account is well.
func (r *Registry) Lacks(name, model string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[name]; ok && model != "" {
		now := r.clock.Now()
		e.lack(model, now)
		r.serveWaiters(now)
	}
}

// Spent says how many tokens the turn took, as the upstream counts them, for the
// limits of the account and the quotas of the pool.
func (l *Lease) Spent(tokens int64) {
	if tokens <= 0 {
		return
	}
	r := l.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	l.entry.tokens.spend(float64(tokens), now)
	r.budgets.spend(unitTokens, tokens, now)
}

// Observe takes in what an upstream tells of the windows of an account, wherever it
// told it. The account cools down only if the upstream says that it takes no more
// turns; not if a turn has gone well within the last minute, or since it was said
// first, because the usage document lags behind.
func (r *Registry) Observe(name string, told Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	if !ok || !told.Known() {
		return
	}
	now := r.clock.Now()
	e.usage.learn(told, now)
	if !told.Refused {
		for _, w := range told.Windows {
			if w.Used >= fullPercent {
				return
			}
		}
		e.distrust = false
		return
	}
	disproved := e.distrust || !e.succeeded.IsZero() && now.Sub(e.succeeded) < documentLag
	if until := e.usage.fullUntil(now); !disproved && !until.IsZero() {
		r.coolDown(e, hint{reason: ReasonQuotaExhausted, until: until})
	}
}

// documentLag is how old a good turn may be and still count more than the usage
// document. If the limit was hit since, the next turn finds out.
const documentLag = time.Minute

// admitted takes in that an account got a turn. own: it is not the first of its
// request, which was counted as one already.
func (r *Registry) admitted(l *Lease, c *Candidate, own bool, now time.Time) {
	e := l.entry
	switch {
	case c.Probe:
		e.probe = l
	case c.Trial:
		e.health.tried = now
	}
	e.granted = r.cursor
	r.cursor++
	e.requests.spend(1, now)
	if !own {
		r.budgets.spend(unitRequests, 1, now)
	}
}

// SetShare says how many replicas spend the limits and which of them this one is.
// Limits that are divided shrink at once and grow after a minute in which the
// membership did not change; call it every few seconds, changed or not.
func (r *Registry) SetShare(s Share) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	before := r.shares.now
	if r.shares.observe(s, now); r.shares.now == before {
		return
	}
	for _, e := range r.entries {
		e.limit(r.capacity, r.shares.now, now)
	}
	r.budgets.divide(r.shares.now)
	r.serveWaiters(now)
}
