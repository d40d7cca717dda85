// Package bulkhead bounds how many turns run at once, in lanes that cannot sink
// each other, and keeps those that wait in a fair order.
//
// It is data: it starts no goroutine, reads no clock and has no lock. The owner of
// a Room guards it with a lock of its own, so that a place in a lane can be taken
// together with whatever else a turn needs, or neither of them.
package bulkhead

import (
	"sync/atomic"
	"time"
)

// Lane is a kind of traffic with limits of its own.
type Lane uint8

// Lanes.
const (
	// HTTP is for turns of clients that speak HTTP, and for all that has no lane of
	// its own.
	HTTP Lane = iota
	// WebSocket is for turns of clients that speak WebSocket.
	WebSocket
	// Compact is for the compaction of conversations.
	Compact
	// Media is for the making of images.
	Media
	// Background is for what no user waits for in the middle of a turn: lists of
	// models, usage.
	Background
)

// laneNames are those of CircuitPolicy.bulkheads.
var laneNames = [...]string{"HTTP", "WebSocket", "Compact", "Media", "Background"}

const lanes = len(laneNames)

// Lanes lists all lanes.
func Lanes() []Lane { return []Lane{HTTP, WebSocket, Compact, Media, Background} }

// String is the name in CircuitPolicy.bulkheads.
func (l Lane) String() string {
	if int(l) >= lanes {
		return "unknown"
	}
	return laneNames[l]
}

// LaneOf is the lane of that name; false = there is none.
func LaneOf(name string) (Lane, bool) {
	for i, n := range laneNames {
		if n == name {
			return Lanes()[i], true
		}
	}
	return HTTP, false
}

// Limits bound one lane.
type Limits struct {
	// MaxConcurrent turns at once; 0 = neither they nor the queue are limited.
	MaxConcurrent int
	// MaxQueued turns may wait; 0 = none.
	MaxQueued int
	// QueueTimeout is how long one may wait. The room does not measure it.
	QueueTimeout time.Duration
}

// Unlimited says that the lane protects nobody.
func (l Limits) Unlimited() bool { return l.MaxConcurrent <= 0 }

// State is how full a lane is.
type State struct {
	Lane   Lane
	Limits Limits
	// Inflight permits are out.
	Inflight int
	// Queued turns wait for one.
	Queued int
}

// Permit is a place in a lane. Whoever holds it gives it back with Release once
// the client has its last byte.
type Permit struct {
	lane Lane
	// order is that of the turn among all: what has begun comes before what has not.
	order    uint64
	released atomic.Bool
	release  func(*Permit)
}

// Lane is where the place is.
func (p *Permit) Lane() Lane { return p.lane }

// Held says whether the permit is out.
func (p *Permit) Held() bool { return p != nil && !p.released.Load() }

// Release gives the place back, to whoever waits for it. It takes the lock of the
// room's owner. It is safe for concurrent use; only the first call counts. A nil
// permit has nothing to give.
func (p *Permit) Release() {
	if p.Spend() {
		p.release(p)
	}
}

// Spend is for the owner of the room, who has the lock: it marks the permit as
// given back and says whether it was out. The owner calls Room.Give then.
func (p *Permit) Spend() bool { return p != nil && !p.released.Swap(true) }
