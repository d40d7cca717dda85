package server

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stallTime is how long a client may take nothing of what it is being sent. It is
	// cut between one and two of them: what it does not read holds a goroutine, what
	// waits for it, and its place among all turns.
	stallTime = 30 * time.Second
	// piece is written at once. A client that takes a large event slowly, but takes
	// it, makes progress with each.
	piece = 256 << 10
)

// stall watches the writes of one answer. A deadline of the connection would have to
// be moved with each event, and in HTTP/2 would end a stream in which nothing is
// being written.
type stall struct {
	control *http.ResponseController
	every   time.Duration
	// steps is odd while a write is under way.
	steps atomic.Uint64

	mu    sync.Mutex // guards all below
	timer *time.Timer
	seen  uint64
	done  bool
}

// begin notes that a write begins; end, that it is over.
func (s *stall) begin() { s.steps.Add(1) }

func (s *stall) end() { s.steps.Add(1) }

// watch starts looking.
func (s *stall) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer == nil && !s.done {
		s.timer = time.AfterFunc(s.every, s.look)
	}
}

// look cuts a write that was under way at the last look already.
func (s *stall) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	steps := s.steps.Load()
	if steps%2 == 1 && steps == s.seen {
		_ = s.control.SetWriteDeadline(time.Now())
	}
	s.seen = steps
	s.timer.Reset(s.every)
}

// finish ends the watch. What net/http still has to write has its own bound.
func (s *stall) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	if s.timer != nil {
		s.timer.Stop()
		_ = s.control.SetWriteDeadline(time.Now().Add(s.every))
	}
}
