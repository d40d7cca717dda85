package server

import (
	"context"
	"fmt"
	"sync"
)

// Live counts requests that are being served, so that a proxy that stops can
// wait for them. http.Server's own wait polls and cannot tell how many are left.
type Live struct {
	mu    sync.Mutex // guards all below
	count int
	// idle is closed while count is 0.
	idle chan struct{}
}

// NewLive returns a Live without requests.
func NewLive() *Live {
	l := &Live{idle: make(chan struct{})}
	close(l.idle)
	return l
}

// Begin counts one request until the returned function is called, once.
func (l *Live) Begin() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == 0 {
		l.idle = make(chan struct{})
	}
	l.count++
	return l.end
}

func (l *Live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count--; l.count == 0 {
		close(l.idle)
	}
}

// Count is how many requests are being served.
func (l *Live) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Wait returns when there is a moment without a request, or with an error when
// ctx ends first.
func (l *Live) Wait(ctx context.Context) error {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d requests are still being served: %w", l.Count(), ctx.Err())
	}
}
