package share

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cooler is a replica's cool-downs.
type cooler struct {
	mu       sync.Mutex
	now      func() time.Time
	accounts []string // empty = all
	until    map[string]time.Time
	swaps    int
}

func newCooler(now func() time.Time) *cooler {
	return &cooler{now: now, until: map[string]time.Time{}}
}

func (c *cooler) CoolDowns() []account.CoolDownOf {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []account.CoolDownOf
	for key, until := range c.until {
		name, reason, _ := splitName(key)
		if until.After(c.now()) {
			all = append(all, account.CoolDownOf{Account: name, Reason: reason, Until: until})
		}
	}
	return all
}

func (c *cooler) SwapCoolDown(name, reason string, was, until time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.accounts) > 0 && !slices.Contains(c.accounts, name) {
		return false
	}
	is := c.until[joinName(name, reason)]
	if !is.After(c.now()) {
		is = time.Time{}
	}
	if !is.Equal(was) {
		return false
	}
	c.swaps++
	c.until[joinName(name, reason)] = until
	return true
}

// cool is what the upstream told this replica; 0 = that the account works.
func (c *cooler) cool(name string, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until[name] = c.now().Add(d)
}

func (c *cooler) left(name string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(c.until[name].Sub(c.now()), 0)
}

// counting is a board that counts, and that can be away.
type counting struct {
	Board
	mu     sync.Mutex
	writes int
	err    error
	silent bool
}

func (b *counting) reach(ctx context.Context, write int) error {
	b.mu.Lock()
	silent, err := b.silent, b.err
	b.mu.Unlock()
	if silent {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	if err == nil {
		b.mu.Lock()
		b.writes += write
		b.mu.Unlock()
	}
	return err
}

func (b *counting) PutNote(ctx context.Context, board, name string, value []byte, life time.Duration) error {
	if err := b.reach(ctx, 1); err != nil {
		return err
	}
	return b.Board.PutNote(ctx, board, name, value, life)
}

func (b *counting) Notes(ctx context.Context, board string) ([]store.Note, error) {
	if err := b.reach(ctx, 0); err != nil {
		return nil, err
	}
	return b.Board.Notes(ctx, board)
}

func (b *counting) set(err error, silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err, b.silent = err, silent
}

func (b *counting) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writes
}

// logged is a log that can be read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.b.String(), "\n"), "\n")
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// run starts an exchanger; the function that is returned ends it.
func run(t *testing.T, b Board, log *slog.Logger, sources ...Source) (stop func()) {
	t.Helper()
	e := New(Options{Board: b, Sources: sources, Clock: clock.RealClock{}, Log: log})
	return start(t, e.Run)
}

// start runs something until stop.
func start(t *testing.T, f func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func pass(d time.Duration) { <-time.After(d) }
