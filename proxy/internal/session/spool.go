package session

import (
	"bytes"
	"context"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Bounds of a transcript.
const (
	// maxSpoolBytes is the longest transcript; a longer answer is delivered and
	// cannot be replayed.
	maxSpoolBytes = 2 << 20
	// Events are handed to the store in batches.
	spoolEvents = 32
	spoolBytes  = 64 << 10
)

// spool collects the events of a recorded turn on their way to the store.
type spool struct {
	events [][]byte
	bytes  int // of events
	total  int // bytes so far
	stored int // events in the store
	over   bool
}

// spoolEvent keeps a copy of an event of a recorded turn.
func (a *actor) spoolEvent(f *flight, e *upstream.Event) {
	if f.recorded == 0 || f.spool.over || !e.Kind.Lifecycle() {
		return
	}
	s := &f.spool
	if s.total += len(e.Data); s.total > maxSpoolBytes {
		*s = spool{over: true}
		return
	}
	block := make([]byte, 0, len(e.Type)+1+len(e.Data))
	block = append(append(append(block, e.Type...), '\n'), e.Data...)
	s.events, s.bytes = append(s.events, block), s.bytes+len(block)
	if len(s.events) >= spoolEvents || s.bytes >= spoolBytes {
		s.flush(a, f)
	}
}

// flush hands the collected events over and says whether the transcript is whole
// so far.
func (s *spool) flush(a *actor, f *flight) bool {
	if s.over || !a.own.valid() {
		s.over = true
		return false
	}
	if len(s.events) > 0 {
		a.services.Writer.AppendEvents(a.own.held, f.turn.Fingerprint, f.recorded, s.stored, s.events, f.turn.recordLife())
		s.stored += len(s.events)
		s.events, s.bytes = nil, 0
	}
	return s.stored > 0
}

// recallTimeout bounds the reading of a transcript.
const recallTimeout = 5 * time.Second

// recall answers a turn from the transcript of the same turn before.
func (a *actor) recall(f *flight) {
	f.stage = stageRecalling
	a.flights = append(a.flights, f)
	s, key, fingerprint := a.services, store.Key(a.key.Name()), f.turn.Fingerprint
	work := func() any {
		ctx, cancel := context.WithTimeout(a.ctx, recallTimeout)
		defer cancel()
		events, err := s.Store.Transcript(ctx, key, fingerprint)
		return recalled{f, events, err}
	}
	if s.Local {
		a.recalled(work().(recalled))
		return
	}
	a.world.beside(a, work)
}

func (a *actor) recalled(m recalled) {
	f := m.flight
	if f.stage != stageRecalling {
		return
	}
	if m.err != nil || len(m.events) == 0 {
		a.services.Observer.StoreFailed("transcript")
		a.settle(f, failure.New(failure.OutcomeUnknown,
			"The same request has been answered before and the answer cannot be read now; it is not sent twice.",
			failure.Reason("transcript"), failure.After(claimRetry)))
		return
	}
	for _, block := range m.events {
		name, data, _ := bytes.Cut(block, []byte{'\n'})
		if !f.turn.Out.push(upstream.Own(string(name), data)) {
			break
		}
	}
	f.turn.recorded.Store(true)
	if e := a.earlier.find(f.turn.Fingerprint); e != nil {
		e.ID = f.turn.ID // whose client says when it got the answer
	}
	a.services.Observer.Replayed("transcript")
	a.settle(f, nil)
}
