package store

import (
	"math"
	"time"
)

// Late is by how much the renewal that is most overdue is overdue; 0 = none is.
// As long as the store answers, it is not more than what one renewal takes.
func (k *Keeper) Late() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, late := k.opts.Now(), time.Duration(0)
	for l := range k.leases {
		if until := l.until.Load(); until != math.MinInt64 { // it is about to be let go
			late = max(late, now-(time.Duration(until)-k.opts.Lease)-k.opts.Every)
		}
	}
	return late
}
