package activation

import (
	"sync"
)

// What may wait for a hand-over at once, in a process. A fleet that starts its
// turns in one second is far below; beyond, waiting would cost more than a retry.
const (
	maxHeld      = 1024
	maxHeldBytes = 256 << 20
)

// Gate is the waiting room of turns for which there is no authority. It is safe
// for concurrent use.
type Gate struct {
	*Keeper

	mu    sync.Mutex // guards all below
	held  int
	bytes int
}

// NewGate makes a Gate before what a Keeper knows.
func NewGate(k *Keeper) *Gate { return &Gate{Keeper: k} }

// Enter takes a place for a turn of so many bytes; false = there is none. The
// returned function gives it back, once.
func (g *Gate) Enter(size int) (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held >= maxHeld || g.held > 0 && g.bytes+size > maxHeldBytes {
		return nil, false
	}
	g.held++
	g.bytes += size
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.held--
		g.bytes -= size
	}, true
}

// Held is how many turns wait.
func (g *Gate) Held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}
