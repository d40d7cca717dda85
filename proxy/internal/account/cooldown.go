package account

import "time"

// CoolDown is Registry.CoolDown for the credential this lease was given: a
// rejection of a credential that has been replaced meanwhile says nothing about
// the new one and is dropped.
func (l *Lease) CoolDown(until time.Time, reason string) {
	r := l.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == ReasonAuthRejected && l.entry.account.Credential != l.account.Credential {
		return
	}
	r.coolDown(l.entry, until, reason)
}

// CoolDown leaves an account alone until a time, at most MaxCoolDown from now.
// The zero time stands for "no hint": base of the circuit's ejection, doubled
// with each such incident since the last success, up to its maximum. A running
// cool-down of the same reason is never shortened. Turns that wait are judged
// anew. An unknown name is ignored: the account may just have been removed.
func (r *Registry) CoolDown(name string, until time.Time, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[name]; ok {
		r.coolDown(e, until, reason)
	}
}

func (r *Registry) coolDown(e *entry, until time.Time, reason string) {
	now := r.clock.Now()
	running := e.cooling[reason]
	if until.IsZero() {
		if running.After(now) {
			return // one incident, seen by several turns
		}
		e.failures++
		until = now.Add(backoff(r.base, r.limit, e.failures))
	}
	if limit := now.Add(MaxCoolDown); until.After(limit) {
		until = limit
	}
	if until.After(now) && until.After(running) {
		e.cooling[reason] = until
		r.serveWaiters(now)
	}
}

// Succeeded says that the account answered: it ends a cool-down after failed
// connects and forgets past incidents. It does not end the others, because a
// turn that began before a limit was hit may succeed after it.
func (r *Registry) Succeeded(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	if !ok {
		return
	}
	e.failures = 0
	if _, cooling := e.cooling[ReasonConnectFailed]; cooling {
		delete(e.cooling, ReasonConnectFailed)
		r.serveWaiters(r.clock.Now())
	}
}

// States describes every account of the configuration, in its order.
func (r *Registry) States() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	states := make([]State, 0, len(r.order))
	for _, name := range r.order {
		e := r.entries[name]
		c := e.candidate(now)
		states = append(states, State{Name: name, Kind: e.account.Kind, State: c.State, Reason: c.Reason, Until: c.Until, Inflight: c.Inflight,
			Generation: e.account.Credential.Generation})
	}
	return states
}
