package circuit

import (
	"slices"
	"time"
)

// Force is the wish of a person that a circuit be open or closed until a time.
type Force struct {
	// Route is one route; with a host alone, all routes of that host.
	Route Key
	// To is Open or Closed.
	To State
	// Until is wall time.
	Until time.Time
}

// MaxForce is the longest time for which a circuit is forced, counted from when
// the wish was read first: no state is without an end.
const MaxForce = 24 * time.Hour

// SetForces takes over all wishes there are. One that is gone ends at once, one
// that was there before goes on, one whose time is over does nothing. The first
// that names a route counts. by names who asks.
func (r *Routes) SetForces(wishes []Force, by string) {
	now := r.options.Clock.Now()
	r.mu.Lock()
	news := r.wish(wishes, now)
	r.mu.Unlock()
	r.all(func(key Key, b *Breaker) { r.obey(key, b, now) })
	for _, f := range news {
		r.options.Log.Info("Forcing circuit of route", "audit", true, "by", by,
			"route", f.Route.String(), "to", f.To.String(), "until", f.Until.Round(0))
	}
}

// wish remembers the wishes that are not over and returns those that are new.
func (r *Routes) wish(wishes []Force, now time.Time) (news []Force) {
	forces := make([]Force, 0, len(wishes))
	for _, f := range wishes {
		left := min(f.Until.Sub(now), MaxForce) // of wall clocks
		if left <= 0 {
			continue
		}
		f.Until = now.Add(left)
		before := slices.IndexFunc(r.forces, func(o Force) bool { return o.Route == f.Route && o.To == f.To })
		switch {
		case before < 0:
			news = append(news, f)
		case left == MaxForce:
			f.Until = r.forces[before].Until // its day has begun already
		}
		forces = append(forces, f)
	}
	r.forces = forces
	return news
}

// obey forces one circuit as it is wished, or releases it.
func (r *Routes) obey(key Key, b *Breaker, now time.Time) {
	for _, f := range r.forces {
		if f.Until.After(now) && (f.Route == key || f.Route.Host == key.Host && (f.Route == Key{Host: key.Host} || r.perHost)) {
			b.Force(f.To, f.Until)
			return
		}
	}
	b.Release()
}
