package store

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// scripted is a store that does what a test says before, or instead of, what the
// store behind it does. It logs every write.
type scripted struct {
	Store
	mu  sync.Mutex
	log []string
	// before is asked for each call; an error is the answer. after is asked once
	// the call was done: its answer is lost.
	before, after func(ctx context.Context, call string) error
}

func (s *scripted) do(ctx context.Context, call string, do func() error) error {
	s.mu.Lock()
	s.log = append(s.log, call)
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, call); err != nil {
			return err
		}
	}
	err := do()
	if after != nil && err == nil {
		err = after(ctx, call)
	}
	return err
}

func (s *scripted) script(before, after func(context.Context, string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

// calls returns the log, and begins it anew.
func (s *scripted) calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.log
	s.log = nil
	return calls
}

func (s *scripted) Save(ctx context.Context, h Held, version int64, value []byte, life time.Duration) error {
	return s.do(ctx, fmt.Sprintf("save %s %d", h.Key, version), func() error { return s.Store.Save(ctx, h, version, value, life) })
}

func (s *scripted) PutAlias(ctx context.Context, name string, value []byte, life time.Duration) error {
	return s.do(ctx, fmt.Sprintf("alias %s %s", name, value), func() error { return s.Store.PutAlias(ctx, name, value, life) })
}

func (s *scripted) PutTurn(ctx context.Context, h Held, t Turn, life time.Duration) error {
	return s.do(ctx, fmt.Sprintf("turn %s %s %d %s", h.Key, t.Fingerprint, t.Attempt, t.State),
		func() error { return s.Store.PutTurn(ctx, h, t, life) })
}

func (s *scripted) DropTurn(ctx context.Context, h Held, fingerprint string, attempt int) error {
	return s.do(ctx, fmt.Sprintf("drop %s %s %d", h.Key, fingerprint, attempt),
		func() error { return s.Store.DropTurn(ctx, h, fingerprint, attempt) })
}

func (s *scripted) AppendEvents(
	ctx context.Context, h Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration,
) error {
	return s.do(ctx, fmt.Sprintf("events %s %s %d %d+%d", h.Key, fingerprint, attempt, from, len(events)),
		func() error { return s.Store.AppendEvents(ctx, h, fingerprint, attempt, from, events, life) })
}

func (s *scripted) Drain(ctx context.Context, h Held) error {
	return s.do(ctx, fmt.Sprintf("drain %s", h.Key), func() error { return s.Store.Drain(ctx, h) })
}

func (s *scripted) Release(ctx context.Context, h Held) error {
	return s.do(ctx, fmt.Sprintf("release %s", h.Key), func() error { return s.Store.Release(ctx, h) })
}

func (s *scripted) Renew(ctx context.Context, keys []Held, lease time.Duration) []error {
	errs := make([]error, len(keys))
	err := s.do(ctx, fmt.Sprintf("renew %d", len(keys)), func() error {
		errs = s.current().Renew(ctx, keys, lease)
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// away answers nothing at once.
func away(context.Context, string) error { return fmt.Errorf("%w: refused", ErrUnavailable) }

// silent answers nothing until the caller gives up.
func silent(ctx context.Context, _ string) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
}

// forget puts an empty store behind, as a server has that came back without its
// data.
func (s *scripted) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Store = NewMemory(time.Now)
}

func (s *scripted) current() Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store
}
