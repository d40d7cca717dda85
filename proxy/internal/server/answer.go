package server

import (
	"net/http"
	"strings"
	"time"
)

// answer is a ResponseWriter that knows whether its head was sent.
type answer struct {
	http.ResponseWriter
	// status is 0 until the head is sent.
	status int
	// tail are the last two bytes that were written.
	tail  [2]byte
	flush flusher
	stall stall
	// watched: the stall is.
	watched bool
}

// flusher is what net/http's own writers are besides; looked up once, because a
// stream is flushed with each event.
type flusher interface{ FlushError() error }

// newAnswer returns an answer whose client may take nothing for stallTime; finish
// ends it.
func newAnswer(w http.ResponseWriter, stallTime time.Duration) *answer {
	f, _ := w.(flusher)
	return &answer{ResponseWriter: w, flush: f, stall: stall{control: http.NewResponseController(w), every: stallTime}}
}

// WriteHeader sends the head. An upstream's 1xx answers are for us: what it
// hints at in them is not checked for what a client may see.
func (a *answer) WriteHeader(status int) {
	if status < http.StatusOK {
		return
	}
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write sends a part of the body.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	a.watch()
	n := 0
	for {
		end := min(n+piece, len(p))
		a.stall.begin()
		m, err := a.ResponseWriter.Write(p[n:end])
		a.stall.end()
		if n += m; err != nil || n == len(p) {
			a.note(p[:n])
			return n, err
		}
	}
}

// watch begins with the first byte of the body.
func (a *answer) watch() {
	if !a.watched {
		a.watched = true
		a.stall.watch()
	}
}

func (a *answer) note(p []byte) {
	switch n := len(p); {
	case n >= 2:
		a.tail = [2]byte(p[n-2:])
	case n == 1:
		a.tail = [2]byte{a.tail[1], p[0]}
	}
}

// betweenEvents says whether a stream of events can take another one.
func (a *answer) betweenEvents() bool {
	return strings.HasPrefix(a.Header().Get("Content-Type"), "text/event-stream") && (a.tail == [2]byte{} || a.tail == [2]byte{'\n', '\n'})
}

// Flush implements http.Flusher.
func (a *answer) Flush() { _ = a.FlushError() }

// FlushError is what http.ResponseController calls.
func (a *answer) FlushError() error {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.flush == nil {
		return http.ErrNotSupported
	}
	a.watch()
	a.stall.begin()
	defer a.stall.end()
	return a.flush.FlushError()
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
