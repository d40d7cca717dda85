package share

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// Settings of a demand.
const (
	// linger is how long a permit is kept that is not used any more: the next turn
	// of a session comes seconds after the last.
	linger = 5 * time.Second
	// reserveShare of what is in use, and one, is wanted on top, so that most turns
	// find a permit here.
	reserveShare = 4
	// leaseLife is for how long permits are leased: what a dead replica had is free
	// after it, and what a living one has outlasts so long an outage of the store.
	leaseLife = 15 * time.Second
	// leaseMargin is how much earlier a lease ends here than in the store. It is more
	// than a loop can be late that waits for a pause and for the store.
	leaseMargin = 3 * time.Second
)

// demand is what this replica has of one account and needs. Times are those of a
// clock that runs while the machine is suspended.
type demand struct {
	// until is the end of the lease; held says that it has one.
	until time.Duration
	held  bool
	// peak is the highest need of late, and since when it was not reached again.
	peak int
	at   time.Duration
}

// ask is what to say of a load. What may be used before the answer is kept.
func (d *demand) ask(l account.Load, now time.Duration) store.Ask {
	need := l.Inflight + l.Waiting
	if need >= d.peak || now-d.at >= linger {
		d.peak, d.at = need, now
	}
	return store.Ask{
		Name: l.Name, Limit: l.Limit, Keep: max(l.Allowed, l.Inflight),
		Need: need, Want: d.peak + 1 + need/reserveShare,
	}
}

// granted takes in an answer to what was asked at a time, and says how many turns
// may run from now on. again: some were taken from this replica, which has to say
// that it uses them no more.
func (d *demand) granted(asked store.Ask, g store.Grant, at time.Duration) (limit int, again bool) {
	d.held, d.until = true, at+leaseLife-leaseMargin
	return min(g.Count, g.Fair), g.Fair < asked.Keep
}

// lost says that the lease is over, once.
func (d *demand) lost(now time.Duration) bool {
	if d.held && now < d.until {
		return false
	}
	d.held = false
	return true
}
