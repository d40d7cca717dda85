package peer

import (
	"sync"
	"time"
)

// avoidFor is how long a replica that was not reached is passed over: shorter
// than a restart takes, long enough that not every turn waits for it. The
// EndpointSlices are without it seconds after it went, if it went for good.
const avoidFor = 3 * time.Second

// avoided are addresses that were not reached a moment ago. It is safe for
// concurrent use.
type avoided struct {
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

// failed notes that nobody took a turn at address.
func (a *avoided) failed(address string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.until == nil {
		a.until = map[string]time.Time{}
	}
	for other, until := range a.until {
		if !now.Before(until) {
			delete(a.until, other)
		}
	}
	a.until[address] = now.Add(avoidFor)
}

// reached forgets a failure.
func (a *avoided) reached(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.until, address)
}

// skip says whether address is to be passed over.
func (a *avoided) skip(address string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.until[address])
}
