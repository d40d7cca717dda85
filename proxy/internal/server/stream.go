package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// upload is a client's body on its way to the upstream. The transport may read
// it after the handler has the answer, hence the lock.
type upload struct {
	io.ReadCloser
	control *http.ResponseController
	idle    time.Duration

	mu  sync.Mutex // guards err
	err error
}

// Read implements io.Reader; each read has to bring something in time. At the
// end of the body net/http lifts the deadline.
func (u *upload) Read(p []byte) (int, error) {
	_ = u.control.SetReadDeadline(time.Now().Add(u.idle))
	n, err := u.ReadCloser.Read(p)
	if err != nil {
		u.mu.Lock()
		u.err = err
		u.mu.Unlock()
	}
	return n, err
}

func (u *upload) last() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// failure is why the client's body could not be read; nil = it could.
func (u *upload) failure() error {
	if err := u.last(); !errors.Is(err, io.EOF) && !errors.Is(err, http.ErrBodyReadAfterClose) {
		return err
	}
	return nil
}

// ended says whether nothing of the body is left on the connection.
func (u *upload) ended() bool {
	return u.ReadCloser == http.NoBody || errors.Is(u.last(), io.EOF)
}

// download is an upstream's body on its way to the client.
type download struct {
	io.ReadCloser
	pass *pass
	// final is the outcome if the body ends as it should.
	final telemetry.Outcome
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	switch {
	case err == nil:
		d.pass.idle.reset()
	case errors.Is(err, io.EOF):
		d.pass.outcome = d.final
	case d.pass.r.Context().Err() != nil:
		d.pass.outcome = telemetry.OutcomeCallerGone
	case d.pass.idle.fired():
		d.pass.outcome = telemetry.OutcomeTimeout
	default:
		d.pass.outcome = telemetry.OutcomeTruncated
	}
	return n, err
}

// idleTimer cancels a request when nothing has come for a while.
type idleTimer struct {
	after time.Duration
	timer *time.Timer
	late  atomic.Bool
}

// newIdleTimer returns a timer that is not running yet. after 0 = never.
func newIdleTimer(after time.Duration, cancel context.CancelFunc) *idleTimer {
	t := &idleTimer{after: after}
	if after > 0 {
		t.timer = time.AfterFunc(after, func() {
			t.late.Store(true)
			cancel()
		})
		t.timer.Stop()
	}
	return t
}

func (t *idleTimer) reset() {
	if t.timer != nil {
		t.timer.Reset(t.after)
	}
}

func (t *idleTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

func (t *idleTimer) fired() bool { return t.late.Load() }
