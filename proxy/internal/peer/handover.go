package peer

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// takeTime is how long the receiver may take to ask for the body, which it does
	// when it has checked the envelope. A replica that is frozen or cut off is told
	// apart from one that works by this, before anything is dispatched.
	takeTime = 2 * time.Second
	// stallTime is how long a body under way may rest.
	stallTime = 5 * time.Second
)

var (
	errAbandoned = errors.New("the turn is served elsewhere")
	errUnasked   = errors.New("the peer did not ask for the turn")
)

// handover is a body on its way to another replica. It knows whether the last
// byte may have left, and it can be taken back until then.
type handover struct {
	// stalled is called when the receiver takes no more of the body and never will.
	stalled func()

	mu    sync.Mutex // guards all below
	rest  []byte
	asked bool // by the receiver, for the body
	given bool // the last byte was handed over
	taken bool // back, that is
	timer *time.Timer
}

func newHandover(body []byte, stalled func()) *handover {
	h := &handover{rest: body, stalled: stalled}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(takeTime, h.expired)
	return h
}

// Read implements io.Reader.
func (h *handover) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.taken:
		return 0, errAbandoned
	case !h.asked: // net/http would send it behind an answer that came too early
		return 0, errUnasked
	case len(h.rest) == 0:
		return 0, io.EOF
	}
	n := copy(p, h.rest)
	h.rest = h.rest[n:]
	if len(h.rest) == 0 {
		h.given = true
		h.timer.Stop()
	} else {
		h.timer.Reset(stallTime)
	}
	return n, nil
}

// ask lets the body go.
func (h *handover) ask() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = true
}

// Close implements io.Closer.
func (h *handover) Close() error { return nil }

// takeBack says whether the turn can be served elsewhere; if so, no further byte
// leaves.
func (h *handover) takeBack() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer.Stop()
	h.taken = h.taken || !h.given
	return h.taken
}

func (h *handover) expired() {
	if h.takeBack() {
		h.stalled()
	}
}
