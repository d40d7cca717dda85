package server

import "net/http"

// answer is a ResponseWriter that knows whether its head was sent.
type answer struct {
	http.ResponseWriter
	// status is 0 until the head is sent.
	status int
	flush  flusher
}

// flusher is what net/http's own writers are besides; looked up once, because a
// stream is flushed with each event.
type flusher interface{ FlushError() error }

func newAnswer(w http.ResponseWriter) *answer {
	f, _ := w.(flusher)
	return &answer{ResponseWriter: w, flush: f}
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
	return a.ResponseWriter.Write(p)
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
	return a.flush.FlushError()
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
