package main

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// sink is where the events of one response go.
type sink interface {
	// event writes one event. text is name and data as an event stream has them,
	// data the JSON in it.
	event(text, data []byte) error
}

type sseSink struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (s *sseSink) event(text, _ []byte) error {
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	return s.control.Flush()
}

type socketSink struct{ conn *websocket.Conn }

func (s *socketSink) event(_, data []byte) error {
	return s.conn.WriteMessage(websocket.TextMessage, data)
}

// slotWidth is the pacer's grid. Streams are spread over it, so that few events
// are due at the same moment.
const slotWidth = time.Millisecond

// paced is a stream that gets its events from the pacer.
type paced struct {
	to       sink
	sequence int64
	done     chan struct{} // closed when the pacer writes no more
}

// pacer writes the events of all streams, each at the same rate, on one
// goroutine: the origin shares the machine with what is measured.
type pacer struct {
	sent   atomic.Int64
	finish atomic.Bool

	mu    sync.Mutex // guards all below
	slots [][]*paced
	added int
}

func newPacer(rate float64) *pacer {
	p := &pacer{}
	p.slots = make([][]*paced, slotsFor(rate))
	return p
}

func slotsFor(rate float64) int { return max(1, int(float64(time.Second)/rate/float64(slotWidth))) }

// setRate spreads all streams anew.
func (p *pacer) setRate(rate float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.slots
	p.slots, p.added = make([][]*paced, slotsFor(rate)), 0
	for _, slot := range old {
		for _, s := range slot {
			p.place(s)
		}
	}
}

// place needs mu. A step that has no divisor in common with the number of slots
// fills them evenly and leaves neighbours in time strangers.
func (p *pacer) place(s *paced) {
	const prime = 7919
	i := p.added * prime % len(p.slots)
	p.slots[i] = append(p.slots[i], s)
	p.added++
}

func (p *pacer) add(s *paced) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.place(s)
}

// slot is the streams whose turn it is.
func (p *pacer) slot(i int) []*paced {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slots[i%len(p.slots)]
}

// remove takes broken streams out.
func (p *pacer) remove(broken map[*paced]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, slot := range p.slots {
		var kept []*paced
		for _, s := range slot {
			if !broken[s] {
				kept = append(kept, s)
			}
		}
		p.slots[i] = kept
	}
	for s := range broken {
		close(s.done)
	}
}

// all ends pacing for everyone.
func (p *pacer) all() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, slot := range p.slots {
		for _, s := range slot {
			close(s.done)
		}
		p.slots[i] = nil
	}
}

func (p *pacer) run(ctx context.Context) {
	tick := time.NewTicker(slotWidth)
	defer tick.Stop()
	f := newFrame()
	next, i := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if p.finish.CompareAndSwap(true, false) {
			p.all()
		}
		for now := time.Now(); !next.After(now); next = next.Add(slotWidth) {
			p.write(f, p.slot(i))
			i++
		}
	}
}

// write sends one event to each stream of a slot. Its time is that of the write,
// not of the tick, so that the origin's own lateness is nobody's latency.
func (p *pacer) write(f *frame, slot []*paced) {
	var broken map[*paced]bool
	for _, s := range slot {
		f.fill(s.sequence, time.Now().UnixNano())
		if s.sequence++; s.sequence > lastSequence {
			s.sequence = firstSequence
		}
		if s.to.event(f.sse, f.payload()) != nil {
			if broken == nil {
				broken = map[*paced]bool{}
			}
			broken[s] = true
		}
	}
	p.sent.Add(int64(len(slot) - len(broken)))
	if broken != nil {
		p.remove(broken)
	}
}
