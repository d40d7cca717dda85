// Package share lets replicas know of each other what is worth knowing besides
// sessions: which accounts cool down, which routes are open, and how many turns
// of an account each may run.
//
// What is shared is a hint, or a number that was leased. Nothing waits for it: a
// goroutine exchanges it about once a second, and while the store is away each
// replica goes on with what it knows. Who has no shared store starts none of this,
// but for Capacity, which can divide without one.
//
// What is decided (settle, share, next) is pure.
package share

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// Board is where replicas show each other things; store.Board is one.
type Board interface {
	PutNote(ctx context.Context, board, name string, value []byte, life time.Duration) error
	Notes(ctx context.Context, board string) ([]store.Note, error)
}

// Item is one thing that replicas tell each other.
type Item struct {
	Name string
	// Value says all but how long it holds. The same thing has the same value,
	// whoever tells it and when, so that it need not be told twice.
	Value []byte
	// Left is how long it still holds.
	Left time.Duration
}

// Source is what takes part in the exchange. Both methods are called by one
// goroutine at a time.
type Source interface {
	// Board names the board of the source.
	Board() string
	// Learn takes over what is on the board, whoever wrote it. Items may be
	// anything: what cannot be understood is ignored.
	Learn(items []Item, now time.Time)
	// Local is what the board should hold, after Learn.
	Local(now time.Time) []Item
}

// Times of an exchange.
const (
	// Every is the time between two exchanges, less up to a fifth of it. What one
	// replica tells, the others know after twice that time.
	Every  = time.Second
	jitter = 0.2
	// patience bounds one exchange.
	patience = time.Second
)

// Options of an Exchanger.
type Options struct {
	Board   Board
	Sources []Source
	Clock   clock.Clock
	Log     *slog.Logger
	// Failed is told of each exchange that failed; nil = nobody.
	Failed func()
}

// Exchanger tells and learns for all sources.
type Exchanger struct {
	options Options
	away    bool // the last exchange failed
}

// New makes an exchanger; Run works.
func New(o Options) *Exchanger {
	if o.Failed == nil {
		o.Failed = func() {}
	}
	return &Exchanger{options: o}
}

// Run exchanges until ctx ends, and once more then, so that what came last
// outlives the process; that takes up to a second.
func (e *Exchanger) Run(ctx context.Context) {
	for ctx.Err() == nil {
		e.Once(ctx)
		pause := e.options.Clock.NewTimer(time.Duration((1 - jitter*rand.Float64()) * float64(Every))) //nolint:gosec // spreads load
		select {
		case <-ctx.Done():
		case <-pause.C():
		}
		pause.Stop()
	}
	e.Once(context.WithoutCancel(ctx))
}

// Once exchanges once; not concurrently with itself or with Run. A proxy calls it
// before it serves, so that it knows what its predecessors learned. A store that
// is away is logged, and is no reason to wait for more than a second.
func (e *Exchanger) Once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := e.exchange(ctx)
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled): // the process stops
	case err != nil:
		e.options.Failed()
		if !e.away {
			e.options.Log.Warn("What replicas tell each other is not exchanged; each goes on with what it knows", "error", err)
		}
		e.away = true
	case e.away:
		e.options.Log.Info("Replicas tell each other again what they know")
		e.away = false
	}
}

func (e *Exchanger) exchange(ctx context.Context) error {
	for _, s := range e.options.Sources {
		notes, err := e.options.Board.Notes(ctx, s.Board())
		if err != nil {
			return fmt.Errorf("reading the board %s: %w", s.Board(), err)
		}
		items := make([]Item, len(notes))
		there := make(map[string][]byte, len(notes))
		for i, n := range notes {
			items[i] = Item{Name: n.Name, Value: n.Value, Left: n.Left}
			there[n.Name] = n.Value
		}
		now := e.options.Clock.Now()
		s.Learn(items, now)
		for _, item := range s.Local(now) {
			if value, told := there[item.Name]; told && bytes.Equal(value, item.Value) || item.Left <= 0 {
				continue
			}
			if err := e.options.Board.PutNote(ctx, s.Board(), item.Name, item.Value, item.Left); err != nil {
				return fmt.Errorf("writing to the board %s: %w", s.Board(), err)
			}
		}
	}
	return nil
}
