package account

import (
	"math"
	"time"
)

// burst is the time whose worth of a limit per minute may be spent at once. In no
// minute more than 7/6 of the limit is spent.
const burst = 10 * time.Second

// bucket holds a limit per minute. The zero value is no limit. It may go into
// debt: what a turn costs is known after it.
type bucket struct {
	perMinute float64
	level     float64
	at        time.Time
}

// setLimit changes the limit; 0 = none. What has been spent stays spent.
func (b *bucket) setLimit(perMinute int64, now time.Time) {
	limit := float64(perMinute)
	if limit == b.perMinute {
		return
	}
	b.fill(now)
	before := b.size()
	fresh := b.perMinute == 0
	b.perMinute = limit
	if fresh {
		b.level = b.size()
		return
	}
	b.level = min(b.level+max(b.size()-before, 0), b.size())
}

// size is the most that can be spent at once, at least one turn.
func (b *bucket) size() float64 { return max(b.perMinute*burst.Minutes(), 1) }

func (b *bucket) fill(now time.Time) {
	if d := now.Sub(b.at); !b.at.IsZero() && d > 0 {
		b.level = min(b.level+d.Minutes()*b.perMinute, b.size())
	}
	if b.at.Before(now) {
		b.at = now
	}
}

// spend takes n, though it be more than there is.
func (b *bucket) spend(n float64, now time.Time) {
	if b.perMinute > 0 {
		b.fill(now)
		b.level = max(b.level-n, -b.perMinute*maxDebt.Minutes())
	}
}

// readyAt is when n can be spent: now, or the time at which so much has come in.
func (b *bucket) readyAt(n float64, now time.Time) time.Time {
	if b.perMinute == 0 {
		return now
	}
	b.fill(now)
	if missing := n - b.level; missing > tiny {
		// Rounded up: a timer that fires too early would fire again.
		wait := math.Ceil(missing / b.perMinute * float64(time.Minute))
		return now.Add(time.Duration(wait))
	}
	return now
}

const (
	// tiny absorbs what sums of fractions lose.
	tiny = 1e-6
	// maxDebt bounds how long turns block an account for what they cost: a
	// mistaken count of tokens is no latch.
	maxDebt = time.Hour
)
