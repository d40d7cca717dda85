package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// simWriter writes behind, as store.Outbox does: in order for each key, again
// until there is an answer, and once more out of order where an answer was lost.
type simWriter struct {
	proc  *simProc
	lanes map[string]*simLane
}

type simLane struct {
	items []simWrite
	busy  bool
}

type simWrite struct {
	what string
	held store.Held
	do   func(store.Store) error
}

func (w *simWriter) add(lane string, item simWrite) {
	l := w.lanes[lane]
	if l == nil {
		l = &simLane{}
		w.lanes[lane] = l
	}
	s := w.proc.sim
	// A newer record replaces one that is not on its way.
	if n := len(l.items); item.what == "save" && n > 1 && l.items[n-1].what == "save" && l.items[n-1].held == item.held {
		l.items = l.items[:n-1]
	}
	l.items = append(l.items, item)
	if !l.busy {
		l.busy = true
		s.later(s.upTo(s.plan.writeDelay), w.proc, w.proc.name+" writes", func() { w.work(lane) })
	}
}

// work tries the oldest write of a lane.
func (w *simWriter) work(lane string) {
	s, l := w.proc.sim, w.lanes[lane]
	item := l.items[0]
	err := item.do(simStore{w.proc})
	s.log("  %s: %s%s", w.proc.name, item.what, simError(err))
	w.proc.failing = errors.Is(err, store.ErrUnavailable)
	pause := s.upTo(s.plan.writeDelay)
	var f *store.Fenced
	switch {
	case errors.As(err, &f):
		l.items = slices.DeleteFunc(l.items, func(other simWrite) bool { return other.held == item.held })
		p, current := w.proc, f.Current
		s.soon(p, p.name+" is told", func() { p.registry.Fenced(item.held, current) })
	case errors.Is(err, store.ErrUnavailable):
		pause = 100*time.Millisecond + s.upTo(5*time.Second)
		if s.chance(0.2) { // the first try was only late
			s.later(s.upTo(5*time.Second), nil, "late write", func() { w.late(item) })
		}
	default: // done, or lost against something newer
		l.items = l.items[1:]
	}
	if len(l.items) == 0 {
		delete(w.lanes, lane)
		return
	}
	s.later(pause, w.proc, w.proc.name+" writes", func() { w.work(lane) })
}

// late is a write whose first try arrives after all, also from a process that is
// paused or dead by now.
func (w *simWriter) late(item simWrite) {
	shadow := &simProc{sim: w.proc.sim, name: w.proc.name + " (late)"}
	err := item.do(simStore{shadow})
	w.proc.sim.log("  %s: late %s%s", w.proc.name, item.what, simError(err))
}

func (w *simWriter) key(what string, h store.Held, do func(store.Store) error) {
	w.add("k"+string(h.Key), simWrite{what, h, do})
}

func (w *simWriter) Save(h store.Held, version int64, value []byte, life time.Duration) {
	w.proc.saving(h, value)
	w.key("save", h, func(s store.Store) error { return s.Save(context.Background(), h, version, value, life) })
}

func (w *simWriter) PutTurn(h store.Held, t store.Turn, life time.Duration) {
	w.key("turn "+string(t.State), h, func(s store.Store) error { return s.PutTurn(context.Background(), h, t, life) })
}

func (w *simWriter) DropTurn(h store.Held, fingerprint string, attempt int) {
	w.key("drop turn", h, func(s store.Store) error { return s.DropTurn(context.Background(), h, fingerprint, attempt) })
}

func (w *simWriter) AppendEvents(h store.Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration) {
	w.key("events", h, func(s store.Store) error {
		return s.AppendEvents(context.Background(), h, fingerprint, attempt, from, events, life)
	})
}

func (w *simWriter) PutAlias(name string, value []byte, life time.Duration) {
	w.add("a"+name, simWrite{"alias", store.Held{}, func(s store.Store) error {
		return s.PutAlias(context.Background(), name, value, life)
	}})
}

func (w *simWriter) Drain(h store.Held) {
	w.key("drain", h, func(s store.Store) error { return s.Drain(context.Background(), h) })
}

func (w *simWriter) Release(h store.Held) {
	w.key("release", h, func(s store.Store) error { return s.Release(context.Background(), h) })
}

func (w *simWriter) Healthy() bool { return !w.proc.failing }

// Await cannot wait on the one goroutine there is: the scheduler asks again.
func (w *simWriter) Await(_ context.Context, key store.Key) error {
	if w.lanes["k"+string(key)] == nil {
		return nil
	}
	w.proc.sim.blocked = true
	return context.DeadlineExceeded
}
