package bulkhead

import (
	"math"
	"time"
)

const (
	// meterTime is the memory of a meter: long enough to see turns that last a
	// minute, short enough to follow an upstream that slows down.
	meterTime = time.Minute
	// meterLeast is the weight of one event two meterTimes ago. What weighs less
	// is silence.
	meterLeast = 0.135
	// MinWait is the shortest wait that is told to anybody.
	MinWait = time.Second
)

// Meter knows how often something has happened lately. The zero value has seen
// nothing.
type Meter struct {
	// weight of events, each of which fades with meterTime.
	weight float64
	// at is when weight was true; began is when events became possible.
	at, began time.Time
}

// Begin says that events become possible now, after a time in which they were
// not. Silence of before is no silence then.
func (m *Meter) Begin(now time.Time) {
	if m.began.IsZero() || m.now(now) < meterLeast {
		*m = Meter{began: now, at: now}
	}
}

// Add counts one event.
func (m *Meter) Add(now time.Time) {
	if m.began.IsZero() {
		m.began = now
	}
	m.weight, m.at = m.now(now)+1, now
}

// now is the weight that is left.
func (m *Meter) now(now time.Time) float64 {
	if m.weight == 0 {
		return 0
	}
	return m.weight * math.Exp(-max(now.Sub(m.at), 0).Seconds()/meterTime.Seconds())
}

// PerSecond is the rate of events lately; 0 = not known.
func (m *Meter) PerSecond(now time.Time) float64 {
	if m.began.IsZero() {
		return 0
	}
	weight, age := m.now(now), max(now.Sub(m.began), MinWait)
	if weight < meterLeast {
		if age < 2*meterTime {
			return 0
		}
		weight = meterLeast // it cannot be more
	}
	// A meter that has just begun has not had the time to gather its full weight.
	full := meterTime.Seconds() * (1 - math.Exp(-age.Seconds()/meterTime.Seconds()))
	return weight / full
}

// Wait estimates how long it takes until n more events have happened, at least
// MinWait. If nothing is known it is fallback.
func Wait(n int, perSecond float64, fallback time.Duration) time.Duration {
	if perSecond <= 0 {
		return max(fallback, MinWait)
	}
	// An hour is far beyond what anybody is told, and far below an overflow.
	seconds := min(float64(max(n, 1))/perSecond, time.Hour.Seconds())
	return max(time.Duration(seconds*float64(time.Second)), MinWait)
}
