package bulkhead

import (
	"container/list"
	"time"
)

// Pass is one look at all who wait, in the order in which they are to be served.
// During a pass the room must not change but by the pass, and what the owner can
// give only becomes less.
type Pass[V any] struct {
	room *Room[V]
	at   *list.Element // in Room.line
	// blocked counts classes of which nobody can be served.
	blocked int
}

// Begin begins a pass. It ends the one before.
func (r *Room[V]) Begin() *Pass[V] {
	r.pass++
	return &Pass[V]{room: r, at: r.line.Front()}
}

// Next is who is to be served next and has a place in its lane; nil = nobody. The
// owner answers with Serve or Block before it asks again.
func (p *Pass[V]) Next() *Ticket[V] {
	if p.blocked == len(p.room.classes) || !p.room.MayServe() {
		return nil
	}
	for ; p.at != nil; p.at = p.at.Next() {
		if t := p.room.oldest(clientAt[V](p.at)); t != nil {
			return t
		}
	}
	return nil
}

// MayServe says whether anybody who waits has a place in its lane.
func (r *Room[V]) MayServe() bool {
	if r.underWay > 0 {
		return true
	}
	for i := range r.lanes {
		if r.lanes[i].queued > 0 && r.lanes[i].hasRoom() {
			return true
		}
	}
	return false
}

// oldest is the client's oldest ticket that is not known to be in vain.
func (r *Room[V]) oldest(c *client[V]) *Ticket[V] {
	var first *Ticket[V]
	for _, g := range c.groups {
		if g.class.blocked == r.pass || !g.underWay && !r.lanes[g.lane].hasRoom() {
			continue
		}
		if t := ticketAt[V](g.tickets.Front()); first == nil || t.order < first.order {
			first = t
		}
	}
	return first
}

// Serve takes the ticket out of the room and returns its permit: the one it held,
// or a new one. Its client goes to the end of the line.
func (p *Pass[V]) Serve(t *Ticket[V], now time.Time) *Permit {
	permit := t.permit
	if permit == nil {
		permit = p.room.Take(t.group.lane, now)
	}
	next := p.at.Next()
	p.room.Leave(t)
	if len(t.client.groups) > 0 {
		p.room.line.MoveToBack(t.client.place)
		if next == nil {
			next = t.client.place // alone at the end
		}
	}
	p.at = next
	return permit
}

// Block says that nobody of the ticket's class can be served in this pass.
func (p *Pass[V]) Block(t *Ticket[V]) {
	t.group.class.blocked = p.room.pass
	p.blocked++
}
