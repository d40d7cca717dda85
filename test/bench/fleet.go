package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// opening is how many streams are being opened at once.
const opening = 16

// fleet is the live streams of one phase.
type fleet struct {
	sessions []*session
	received atomic.Int64
	running  sync.WaitGroup
	cancel   context.CancelFunc

	mu   sync.Mutex // guards all below
	cuts []error
}

// openFleet returns when all streams have their first events.
func (b *bench) openFleet(ctx context.Context, t *target) (*fleet, error) {
	inner, cancel := context.WithCancel(ctx)
	f := &fleet{cancel: cancel}
	places := make(chan struct{}, opening)
	for range b.settings.streams {
		s := newSession(t)
		f.sessions = append(f.sessions, s)
		places <- struct{}{}
		f.running.Go(func() {
			var once sync.Once
			leave := func() { once.Do(func() { <-places }) }
			if err := s.follow(inner, &f.received, leave); err != nil {
				f.cut(err)
			}
			leave()
		})
	}
	for range opening {
		places <- struct{}{}
	}
	if n, err := f.cutStreams(); n > b.settings.streams/10 {
		f.end()
		return nil, t.failed(fmt.Errorf("%d of %d streams did not open: %w", n, b.settings.streams, err))
	}
	return f, nil
}

func (t *target) failed(err error) error {
	if t.process == nil {
		return err
	}
	return t.failure(err)
}

func (f *fleet) cut(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cuts = append(f.cuts, err)
}

func (f *fleet) cutStreams() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.cuts) == 0 {
		return 0, nil
	}
	return len(f.cuts), f.cuts[0]
}

// finish ends all streams as the origin ends them, and waits for that.
func (f *fleet) finish(ctx context.Context, o *originProcess) error {
	defer f.cancel()
	if err := o.finish(ctx); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		f.running.Wait()
		close(ended)
	}()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case <-ended:
		return nil
	case <-limit.C:
		f.cancel()
		<-ended
		return errors.New("the streams did not end with the origin's last events")
	case <-ctx.Done():
		<-ended
		return context.Cause(ctx)
	}
}

// end drops all streams.
func (f *fleet) end() {
	f.cancel()
	f.running.Wait()
}
