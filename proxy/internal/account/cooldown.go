package account

import (
	"math/rand/v2"
	"slices"
	"time"
)

// CoolDown is Registry.CoolDown by a turn. What it says about a limit counts more
// than what was known when it began: a probe renews the cool-down, also to an
// earlier end. A rejection of a credential that has been replaced meanwhile says
// nothing about the new one and is dropped. It returns the end of the cool-down
// of that reason; zero = there is none.
func (l *Lease) CoolDown(until time.Time, reason string) time.Time {
	r := l.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if byHuman(reason) && l.entry.account.Credential != l.account.Credential {
		return time.Time{}
	}
	h := hint{reason: reason, until: until, renews: l.began.After(l.entry.cooling[reason].since)}
	if l.entry.probe == l {
		l.entry.cooling.probed(rand.Float64(), r.clock.Now()) //nolint:gosec // spreads load
	}
	return r.coolDown(l.entry, h)
}

// CoolDown leaves an account alone until a time, at most MaxCoolDown from now.
// The zero time stands for "no hint": 2 s for a rate limit; the end of the window
// that is used up, or an hour, for a quota; a day for a closed account; else base
// of the circuit's ejection. All but those of quotas and closed accounts double
// with each such incident since the last success, up to a minute for a rate limit
// and to the ejection's maximum else. A running cool-down of the same reason is
// never shortened. Limits of more than ten minutes are probed by one turn from time
// to time. Turns that wait are judged anew. An unknown name is ignored: the account
// may just have been removed.
func (r *Registry) CoolDown(name string, until time.Time, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[name]; ok {
		r.coolDown(e, hint{reason: reason, until: until})
	}
}

func (r *Registry) coolDown(e *entry, h hint) time.Time {
	now := r.clock.Now()
	h.jitter = rand.Float64() //nolint:gosec // spreads load, guards nothing
	p := pauses{base: r.ejection.base, limit: r.ejection.limit}
	p.quota = e.usage.fullUntil(now)
	if byLimit(h.reason) {
		e.distrust = false // what the document says has been confirmed
	}
	if e.cooling.set(h, p, now) {
		r.serveWaiters(now)
	}
	return e.cooling[h.reason].until
}

// CoolDownOf is a cool-down that runs.
type CoolDownOf struct {
	Account, Reason string
	Until           time.Time
}

// CoolDowns lists the cool-downs that are about the account wherever it is used:
// limits, and that the provider has closed it. A rejected credential may have been
// replaced elsewhere, and ways to the upstream differ.
func (r *Registry) CoolDowns() []CoolDownOf {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	var list []CoolDownOf
	// Also of an account that was just removed here: siblings may still have it.
	for name, e := range r.entries {
		for reason, c := range e.cooling {
			if c.runs(now) && shared(reason) {
				list = append(list, CoolDownOf{name, reason, c.until})
			}
		}
	}
	return list
}

func shared(reason string) bool { return byLimit(reason) || reason == ReasonDeactivated }

// SwapCoolDown replaces the end of a cool-down by what another replica knows, if it
// still is was; zero times stand for none. It says whether it did: not if there is
// news here, or no such account. Reasons that are not shared are refused.
func (r *Registry) SwapCoolDown(name, reason string, was, until time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	e, ok := r.entries[name]
	if !ok || !e.present || !shared(reason) {
		return false
	}
	c := e.cooling[reason]
	is := c.until
	if !c.runs(now) {
		is = time.Time{}
	}
	switch {
	case !is.Equal(was):
		return false
	case until.After(now):
		e.cooling.set(hint{reason: reason, until: until, renews: true, jitter: rand.Float64()}, pauses{}, now) //nolint:gosec // spreads load
	default:
		delete(e.cooling, reason)
	}
	r.serveWaiters(now)
	return true
}

// Reset ends all cool-downs and ejections of an account, or of all accounts if
// name is empty, and forgets what made them. It does so once per token: the wish
// stays written where it came from. Update calls it.
func (r *Registry) Reset(name, token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reset(name, token)
	r.serveWaiters(r.clock.Now())
}

func (r *Registry) reset(name, token string) {
	wish := name + "=" + token
	if token == "" || wish == r.wish {
		return
	}
	r.wish = wish
	for n, e := range r.entries {
		if name == "" || name == n {
			e.cooling, e.ejection, e.health, e.eventless = coolDowns{}, ejection{}, health{}, eventless{}
			e.lacks = slices.Delete(e.lacks, 0, len(e.lacks))
		}
	}
}
