package session

import (
	"sync"

	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
)

// lanePlace is the permit of a turn's lane. The session takes it with the first
// account; it is given back when the client has its last byte, or is gone.
type lanePlace struct {
	mu     sync.Mutex // guards all below
	permit *bulkhead.Permit
	left   bool
}

// take keeps a permit. A turn whose client is gone has no use for one.
func (p *lanePlace) take(permit *bulkhead.Permit) {
	p.mu.Lock()
	left := p.left
	if !left {
		p.permit = permit
	}
	p.mu.Unlock()
	if left {
		permit.Release()
	}
}

// held is the permit, for a turn that asks for another account; nil = none.
func (p *lanePlace) held() *bulkhead.Permit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.permit
}

// leave gives the permit back.
func (p *lanePlace) leave() {
	p.mu.Lock()
	permit := p.permit
	p.permit, p.left = nil, true
	p.mu.Unlock()
	permit.Release()
}
