package peer

import (
	"context"
	"errors"
	"sync"
)

// errLeaving ends the turns that others serve for a replica that ends.
var errLeaving = errors.New("this replica ends")

// inflight are the turns that others serve for clients of this replica. The zero
// value is none. It is safe for concurrent use.
type inflight struct {
	mu    sync.Mutex // guards all below
	turns map[*turnInflight]struct{}
	left  bool
}

type turnInflight struct{ cancel context.CancelCauseFunc }

// begin counts a turn until the returned function is called.
func (i *inflight) begin(cancel context.CancelCauseFunc) (end func()) {
	t := &turnInflight{cancel}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.turns == nil {
		i.turns = map[*turnInflight]struct{}{}
	}
	i.turns[t] = struct{}{}
	if i.left {
		cancel(errLeaving)
	}
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.turns, t)
	}
}

func (i *inflight) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.turns)
}

// leave ends all turns, also those that begin later.
func (i *inflight) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.left = true
	for t := range i.turns {
		t.cancel(errLeaving)
	}
}
