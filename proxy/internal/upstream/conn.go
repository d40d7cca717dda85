package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Conn is one channel to an account. Send and Receive may run at the same time;
// neither may run twice at once. Close may be called at any time, ends both and
// is idempotent.
type Conn interface {
	// Send hands one request to the upstream and returns when it is written. An
	// error that wraps ErrNotSent says that no byte of it has left; any other
	// error leaves that unknown.
	Send(request Request) error
	// Receive waits for the next event. Its error ends the connection and is an
	// *Ended.
	Receive() (Event, error)
	// Heard is when the peer last showed that it lives, by a ping or a pong; zero =
	// never.
	Heard() time.Time
	// Header is the header of the upgrade or of the response; nil before it came.
	Header() http.Header
	Close()
}

// Request is a body in pieces, so that a large one is never copied whole.
type Request struct {
	Segments [][]byte
}

// Size is the number of bytes of the request.
func (r Request) Size() int64 {
	var n int64
	for _, s := range r.Segments {
		n += int64(len(s))
	}
	return n
}

// ErrNotSent says that no byte of a request reached the wire.
var ErrNotSent = errors.New("request was not sent")

// Cause is how a connection ended.
type Cause uint8

// Causes of an end.
const (
	CauseAbrupt   Cause = iota // reset, EOF, or an abnormal close code
	CauseClean                 // the upstream said good-bye: close code 1000, or the end of an HTTP body
	CauseGarbage               // a frame that is no event
	CauseTooLarge              // an event beyond MaxEventBytes
	CauseLiveness              // neither pong nor event for too long
	CauseLocal                 // closed by the proxy
)

var causeNames = [...]string{"abrupt", "clean", "garbage", "too_large", "liveness", "local"}

func (c Cause) String() string { return causeNames[c] }

// Ended is the error that ends a connection.
type Ended struct {
	Cause Cause
	// Code is the WebSocket close code; 0 = none came.
	Code int
	Err  error
}

func (e *Ended) Error() string {
	if e.Code != 0 {
		return fmt.Sprintf("connection ended (%s, close code %d)", e.Cause, e.Code)
	}
	return fmt.Sprintf("connection ended (%s)", e.Cause)
}

func (e *Ended) Unwrap() error { return e.Err }

// DialError says why no connection came about; nothing of a request was sent.
type DialError struct {
	// Stage is connect, tls or upgrade.
	Stage string
	// Status is the HTTP status of a refused upgrade; 0 otherwise.
	Status int
	// Refusal is the refused upgrade as an error event; zero otherwise.
	Refusal *Event
	Err     error
}

func (e *DialError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("upstream %s: status %d", e.Stage, e.Status)
	}
	return fmt.Sprintf("upstream %s: %v", e.Stage, e.Err)
}

func (e *DialError) Unwrap() []error { return []error{ErrNotSent, e.Err} }

// MaxEventBytes bounds one event: generated images arrive as single events of
// more than 10 MiB.
const MaxEventBytes = 64 << 20
