package session

import (
	"net/http"
	"sync"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// outboxBytes bounds what may wait for one slow client when another event comes.
// The event itself does not count: one generated image is larger than the bound,
// and a client that is up to date must get it. Nor is a response's end ever
// dropped: nothing comes after it.
const outboxBytes = 8 << 20

// Outbox carries the events of one turn from the session to the client's
// handler. The session never waits for it: what a client does not read in time
// fails this turn alone.
type Outbox struct {
	ready chan struct{} // capacity 1: something changed

	mu        sync.Mutex // guards all below
	events    []upstream.Event
	bytes     int
	limit     int
	head      http.Header
	fresh     bool
	ended     bool
	failure   *failure.Failure
	elsewhere string
	detached  bool
}

// NewOutbox makes an empty outbox.
func NewOutbox() *Outbox { return &Outbox{ready: make(chan struct{}, 1), limit: outboxBytes} }

// Ready receives when Take has something new. There is one reader.
func (o *Outbox) Ready() <-chan struct{} { return o.ready }

// Batch is what Take returns.
type Batch struct {
	Events []upstream.Event
	// Ended says that no event follows; Failure is how it ended, nil = the last
	// event was the response's own end.
	Ended   bool
	Failure *failure.Failure
	// Elsewhere is the peer address of the replica that owns the session, where
	// the turn can be sent instead; nothing was done for it here.
	Elsewhere string
}

// Take returns the waiting events. It reuses spent, the slice of an earlier
// batch whose events were released.
func (o *Outbox) Take(spent []upstream.Event) Batch {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := Batch{Events: o.events, Ended: o.ended, Failure: o.failure, Elsewhere: o.elsewhere}
	o.events, o.bytes = spent[:0], 0
	return b
}

// Head is the upstream's header for this turn; fresh says that it came with the
// turn and not with an earlier one of the same socket. nil = none came.
func (o *Outbox) Head() (h http.Header, fresh bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.head, o.fresh
}

func (o *Outbox) setHead(h http.Header, fresh bool) {
	o.mu.Lock()
	o.head, o.fresh = h, fresh
	o.mu.Unlock()
}

// push hands an event over. false means that the client is gone or too slow;
// the event is released then.
func (o *Outbox) push(e upstream.Event) bool {
	o.mu.Lock()
	fits := !o.detached && !o.ended && (o.bytes <= o.limit || e.Kind.Terminal())
	if fits {
		o.events = append(o.events, e)
		o.bytes += len(e.Data)
	}
	o.mu.Unlock()
	if !fits {
		e.Release()
		return false
	}
	o.signal()
	return true
}

// end says that no event follows. Only the first call counts.
func (o *Outbox) end(f *failure.Failure) {
	o.mu.Lock()
	if !o.ended {
		o.ended, o.failure = true, f
	}
	o.mu.Unlock()
	o.signal()
}

// move says where the turn belongs; end follows.
func (o *Outbox) move(address string) {
	o.mu.Lock()
	o.elsewhere = address
	o.mu.Unlock()
}

// detach releases what waits: the client is gone.
func (o *Outbox) detach() {
	o.mu.Lock()
	o.detached = true
	for i := range o.events {
		o.events[i].Release()
	}
	o.events, o.bytes = nil, 0
	o.mu.Unlock()
}

func (o *Outbox) signal() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}
