package bulkhead

import (
	"container/list"
	"time"
)

// Room is the lanes and those who wait for them. V is what the owner knows of
// one who waits. Not safe for concurrent use: its owner's lock guards it.
//
// Order: clients take turns, whoever was served longest ago first; within a client
// first come, first served. What cannot be served holds up nobody behind it.
type Room[V any] struct {
	release func(*Permit)
	lanes   [lanes]lane
	// line holds *client[V], all of whom wait; the first was served longest ago.
	line    list.List
	clients map[string]*client[V]
	classes map[string]*class
	waiting int
	// underWay counts those who wait with a permit in their hands.
	underWay int
	order    uint64
	pass     uint64
}

type lane struct {
	limits           Limits
	inflight, queued int
	meter            Meter
}

func (l *lane) hasRoom() bool { return l.limits.Unlimited() || l.inflight < l.limits.MaxConcurrent }

// class is all who need the same and differ in nothing that decides whether they
// can be served.
type class struct {
	name string
	size int
	// blocked is the last pass in which one of them could not be served.
	blocked uint64
}

// client is one who has tickets in the room.
type client[V any] struct {
	name    string
	place   *list.Element // in Room.line
	groups  []*group[V]
	perLane [lanes]int // without those under way
}

// group is the tickets of a client that differ in nothing but their age.
type group[V any] struct {
	lane     Lane
	underWay bool
	class    *class
	tickets  list.List // of *Ticket[V], oldest first
}

// Ticket is one who waits.
type Ticket[V any] struct {
	Value V
	// Since is when the waiting began.
	Since  time.Time
	client *client[V]
	group  *group[V]
	place  *list.Element // in group.tickets; nil = waits no longer
	order  uint64
	permit *Permit
}

// Lane is the lane that the ticket waits in.
func (t *Ticket[V]) Lane() Lane { return t.group.lane }

// Permit is what the turn held when it came; nil = nothing.
func (t *Ticket[V]) Permit() *Permit { return t.permit }

// Waits says whether the ticket is in the room.
func (t *Ticket[V]) Waits() bool { return t.place != nil }

// NewRoom returns a room whose lanes are all unlimited; see Limit. release is
// called, without the owner's lock, when a permit is given back by its holder: it
// has to take the lock, call Give and serve those who wait.
func NewRoom[V any](release func(*Permit)) *Room[V] {
	return &Room[V]{release: release, clients: map[string]*client[V]{}, classes: map[string]*class{}}
}

// Limit sets the limits of a lane. What is out and who waits stay: a lane above
// its limit takes nobody until it is below.
func (r *Room[V]) Limit(l Lane, limits Limits) { r.lanes[l].limits = limits }

// Limits are those of a lane.
func (r *Room[V]) Limits(l Lane) Limits { return r.lanes[l].limits }

// HasRoom says whether a lane has a place.
func (r *Room[V]) HasRoom(l Lane) bool { return r.lanes[l].hasRoom() }

// Waiting counts tickets.
func (r *Room[V]) Waiting() int { return r.waiting }

// Take takes a place in a lane that has one.
func (r *Room[V]) Take(l Lane, now time.Time) *Permit {
	if r.lanes[l].inflight == 0 {
		r.lanes[l].meter.Begin(now)
	}
	r.lanes[l].inflight++
	r.order++
	return &Permit{lane: l, order: r.order, release: r.release}
}

// Give takes a permit back that was spent.
func (r *Room[V]) Give(p *Permit, now time.Time) {
	r.lanes[p.lane].inflight--
	r.lanes[p.lane].meter.Add(now)
}

// States says how full each lane is.
func (r *Room[V]) States() []State {
	states := make([]State, 0, lanes)
	for _, l := range Lanes() {
		s := &r.lanes[l]
		states = append(states, State{Lane: l, Limits: s.limits, Inflight: s.inflight, Queued: s.queued})
	}
	return states
}

// Ask is one who wants to wait.
type Ask struct {
	Lane Lane
	// Client shares the room fairly with other clients.
	Client string
	// Class names all that decides whether it can be served: of two asks with the
	// same class in the same lane, either both can be or neither.
	Class string
	// Permit is held already; nil = one is wanted as well. Who holds one is under
	// way and is neither counted as queued nor turned away.
	Permit *Permit
}

// Enter lets one wait. If the queue of its lane is full, it may get the place of
// another, who is returned and has left the room; a nil ticket means that it may
// not, and has to be refused.
func (r *Room[V]) Enter(a Ask, value V, now time.Time) (ticket, evicted *Ticket[V]) {
	underWay := a.Permit != nil
	if underWay {
		a.Lane = a.Permit.lane
	}
	l := &r.lanes[a.Lane]
	if !underWay && !l.limits.Unlimited() && l.queued >= l.limits.MaxQueued {
		if evicted = r.victim(a); evicted == nil {
			return nil, nil
		}
		r.Leave(evicted)
	}
	c := r.clientOf(a.Client)
	g := r.groupOf(c, a, underWay)
	r.order++
	t := &Ticket[V]{Value: value, Since: now, client: c, group: g, order: r.order, permit: a.Permit}
	if underWay {
		t.order = a.Permit.order
		r.underWay++
	} else {
		c.perLane[a.Lane]++
		l.queued++
	}
	t.place = insert(&g.tickets, t)
	r.waiting++
	g.class.size++
	return t, evicted
}

// insert keeps the tickets in order; nearly all are the youngest.
func insert[V any](tickets *list.List, t *Ticket[V]) *list.Element {
	for e := tickets.Back(); e != nil; e = e.Prev() {
		if ticketAt[V](e).order <= t.order {
			return tickets.InsertAfter(t, e)
		}
	}
	return tickets.PushFront(t)
}

func ticketAt[V any](e *list.Element) *Ticket[V] {
	return e.Value.(*Ticket[V]) //nolint:forcetypeassert // the list holds nothing else
}

func (r *Room[V]) clientOf(name string) *client[V] {
	c, ok := r.clients[name]
	if !ok {
		c = &client[V]{name: name}
		c.place = r.line.PushBack(c)
		r.clients[name] = c
	}
	return c
}

func (r *Room[V]) groupOf(c *client[V], a Ask, underWay bool) *group[V] {
	for _, g := range c.groups {
		if g.lane == a.Lane && g.underWay == underWay && g.class.name == a.Class {
			return g
		}
	}
	k, ok := r.classes[a.Class]
	if !ok {
		k = &class{name: a.Class}
		r.classes[a.Class] = k
	}
	g := &group[V]{lane: a.Lane, underWay: underWay, class: k}
	c.groups = append(c.groups, g)
	return g
}

// victim is who gives its place in a full queue to a newcomer: the youngest of
// the largest group of the client that has most places. It has to leave that
// client with no fewer than the newcomer's will have, or the two would take the
// place from each other for ever. Within one client what waits for different
// things shares its places in the same way.
func (r *Room[V]) victim(a Ask) *Ticket[V] {
	own := 0
	if c, ok := r.clients[a.Client]; ok {
		own = c.perLane[a.Lane]
	}
	var most *client[V]
	for e := r.line.Front(); e != nil; e = e.Next() {
		if c := clientAt[V](e); most == nil || c.perLane[a.Lane] > most.perLane[a.Lane] {
			most = c
		}
	}
	switch {
	case most == nil:
		return nil
	case most.perLane[a.Lane] > own+1:
		g := most.largest(a.Lane)
		return ticketAt[V](g.tickets.Back())
	case own == 0:
		return nil
	}
	mine := r.clients[a.Client]
	same := 0
	for _, g := range mine.groups {
		if g.lane == a.Lane && !g.underWay && g.class.name == a.Class {
			same = g.tickets.Len()
		}
	}
	if g := mine.largest(a.Lane); g.tickets.Len() > same+1 {
		return ticketAt[V](g.tickets.Back())
	}
	return nil
}

func clientAt[V any](e *list.Element) *client[V] {
	return e.Value.(*client[V]) //nolint:forcetypeassert // the list holds nothing else
}

// largest is the client's largest group in a lane in which it has tickets.
func (c *client[V]) largest(l Lane) *group[V] {
	var most *group[V]
	for _, g := range c.groups {
		if g.lane == l && !g.underWay && (most == nil || g.tickets.Len() > most.tickets.Len()) {
			most = g
		}
	}
	return most
}

// Leave takes a ticket out of the room. It says whether the ticket was there.
func (r *Room[V]) Leave(t *Ticket[V]) bool {
	if t.place == nil {
		return false
	}
	c, g := t.client, t.group
	g.tickets.Remove(t.place)
	t.place = nil
	r.waiting--
	if g.underWay {
		r.underWay--
	} else {
		c.perLane[g.lane]--
		r.lanes[g.lane].queued--
	}
	if g.class.size--; g.class.size == 0 {
		delete(r.classes, g.class.name)
	}
	if g.tickets.Len() == 0 {
		c.drop(g)
	}
	if len(c.groups) == 0 {
		r.line.Remove(c.place)
		delete(r.clients, c.name)
	}
	return true
}

// Sweep takes out of the room all for whom waiting has become pointless, in any
// lane, full or not, and returns them. Of each class one is judged for all.
func (r *Room[V]) Sweep(pointless func(*Ticket[V]) bool) []*Ticket[V] {
	judged := make(map[*class]bool, len(r.classes))
	var out []*Ticket[V]
	for e := r.line.Front(); e != nil; e = e.Next() {
		for _, g := range clientAt[V](e).groups {
			leaves, known := judged[g.class]
			if !known {
				leaves = pointless(ticketAt[V](g.tickets.Front()))
				judged[g.class] = leaves
			}
			for t := g.tickets.Front(); leaves && t != nil; t = t.Next() {
				out = append(out, ticketAt[V](t))
			}
		}
	}
	for _, t := range out {
		r.Leave(t)
	}
	return out
}

// Demand calls each for every class of which some wait for more than their lane:
// with one of them, and how many they are.
func (r *Room[V]) Demand(each func(one *Ticket[V], count int)) {
	type of struct {
		one   *Ticket[V]
		count int
	}
	byClass := make(map[*class]of, len(r.classes))
	for e := r.line.Front(); e != nil; e = e.Next() {
		for _, g := range clientAt[V](e).groups {
			if !g.underWay && !r.lanes[g.lane].hasRoom() {
				continue
			}
			d := byClass[g.class]
			if d.count == 0 {
				d.one = ticketAt[V](g.tickets.Front())
			}
			d.count += g.tickets.Len()
			byClass[g.class] = d
		}
	}
	for _, d := range byClass {
		each(d.one, d.count)
	}
}

func (c *client[V]) drop(g *group[V]) {
	for i := range c.groups {
		if c.groups[i] == g {
			c.groups = append(c.groups[:i], c.groups[i+1:]...)
			return
		}
	}
}

// WaitFor estimates how long a newcomer to a lane waits for a place, by how often
// one was given back lately. A lane that does not know says its queue timeout: by
// then whoever waits now is served or gone.
func (r *Room[V]) WaitFor(l Lane, now time.Time) time.Duration {
	s := &r.lanes[l]
	return Wait(s.queued+1, s.meter.PerSecond(now), s.limits.QueueTimeout)
}

// Class counts those of a class that wait, in all lanes.
func (r *Room[V]) Class(name string) int {
	if k, ok := r.classes[name]; ok {
		return k.size
	}
	return 0
}
