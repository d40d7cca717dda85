package report

import (
	"time"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Write rates of one pod. With them 500 busy pods cost the API server 33 writes
// a second at worst, and 500 idle ones less than one.
const (
	// DefaultMinInterval is the mean distance of reports that state a change.
	DefaultMinInterval = 15 * time.Second
	// burst is how many of them may go at once after a quiet time.
	burst = 3
	// minIntervalJitter is added to the interval at random.
	minIntervalJitter = 5 * time.Second
	// countersInterval and freshInterval vary by spreadPercent either way, so
	// that pods that started together do not write together.
	countersInterval = time.Minute
	freshInterval    = 10 * time.Minute
	spreadPercent    = 20
	// A counter is worth a write when it moved by this much.
	minMovePercent = 10
	minMove        = 5
)

// written is the last report that the API server took; at is zero before it.
type written struct {
	status v1alpha1.BridgeReplicaStatus
	at     time.Time
}

// budget is what may be spent on writes. Its times hold the jitter already.
type budget struct {
	// tokens are writes that may go now; one more comes each interval after since.
	tokens   int
	since    time.Time
	interval time.Duration
	// counters and fresh are the distances of reports that state no change.
	counters, fresh time.Duration
	// notBefore is set by failures.
	notBefore time.Time
}

// newBudget is full. random returns a number in [0, 1).
func newBudget(now time.Time, minInterval time.Duration, random func() float64) budget {
	b := budget{tokens: burst, since: now}
	return b.paced(minInterval, random)
}

// paced draws new distances.
func (b budget) paced(minInterval time.Duration, random func() float64) budget {
	if minInterval <= 0 {
		minInterval = DefaultMinInterval
	}
	spread := func(d time.Duration) time.Duration {
		return d + time.Duration((2*random()-1)*float64(d)*spreadPercent/100)
	}
	b.interval = minInterval + time.Duration(random()*float64(minIntervalJitter))
	b.counters, b.fresh = spread(countersInterval), spread(freshInterval)
	return b
}

// refilled adds the tokens that time has earned.
func (b budget) refilled(now time.Time) budget {
	earned := int(now.Sub(b.since) / b.interval)
	if earned <= 0 {
		return b
	}
	b.since = b.since.Add(time.Duration(earned) * b.interval)
	b.tokens += earned
	if b.tokens >= burst {
		b.tokens, b.since = burst, now
	}
	return b
}

// spent takes the token of a write.
func (b budget) spent(now time.Time) budget {
	b = b.refilled(now)
	if b.tokens == burst {
		b.since = now // a full budget earns nothing, so counting starts here
	}
	b.tokens = max(0, b.tokens-1)
	b.notBefore = time.Time{}
	return b
}

// next says whether to write current now and, if not, after what time the
// answer may become yes though nothing changes.
func next(now time.Time, last written, current v1alpha1.BridgeReplicaStatus, b budget) (write bool, wait time.Duration) {
	due := last.at.Add(b.fresh)
	switch {
	case last.at.IsZero() || material(last.status, current):
		due = now
		if b = b.refilled(now); b.tokens == 0 {
			due = b.since.Add(b.interval)
		}
	case moved(last.status, current):
		due = last.at.Add(b.counters)
	}
	if due.Before(b.notBefore) {
		due = b.notBefore
	}
	if due.After(now) {
		return false, due.Sub(now)
	}
	return true, 0
}

// material says whether the operator has to know of the difference soon.
func material(a, b v1alpha1.BridgeReplicaStatus) bool {
	if a.Role != b.Role || a.Epoch != b.Epoch || !same(a.ObservedConfig, b.ObservedConfig) || !same(a.Build, b.Build) {
		return true
	}
	if (a.Sessions == nil) != (b.Sessions == nil) || len(a.Accounts) != len(b.Accounts) {
		return true
	}
	if a.Sessions != nil && (drained(*a.Sessions, *b.Sessions, b.Role) || turned(a, b)) {
		return true
	}
	return failing(a) != failing(b) || accountsTurned(a.Accounts, b.Accounts)
}

func same[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// drained says whether the last session went that somebody waits for.
func drained(a, b v1alpha1.ReplicaSessions, role v1alpha1.ReplicaRole) bool {
	return a.Draining > 0 && b.Draining == 0 || role == v1alpha1.RoleDraining && a.Active > 0 && b.Active == 0
}

// moved says whether a number changed enough to be worth a write.
func moved(a, b v1alpha1.BridgeReplicaStatus) bool {
	if a.Sessions != nil && b.Sessions != nil {
		x, y := *a.Sessions, *b.Sessions
		if far(x.Active, y.Active) || far(x.Draining, y.Draining) || far(x.Quarantined, y.Quarantined) ||
			!same(x.OldestActiveSeconds, y.OldestActiveSeconds) || shifted(a, b) {
			return true
		}
	}
	return turnsMoved(a, b) || accountsMoved(a.Accounts, b.Accounts) || routesMoved(a, b) || lanesMoved(a.Lanes, b.Lanes)
}

func far(a, b int32) bool {
	distance := int64(a) - int64(b)
	if distance < 0 {
		distance = -distance
	}
	return distance >= minMove || distance > 0 && distance*100 >= int64(a)*minMovePercent
}
