package store

import (
	"container/list"
	"slices"
	"time"
)

// kind is what an item does. The order is the order in which items go when there
// is no room.
type kind uint8

const (
	kindEvents kind = iota
	kindAlias
	kindDrain
	kindRelease // the lease runs out by itself
	kindDrop
	kindTurn
	kindSave
	kinds
)

// item is one write that waits.
type item struct {
	kind  kind
	held  Held
	life  time.Duration
	since time.Time

	name        string // of an alias
	version     int64
	value       []byte
	fingerprint string
	attempt     int
	turn        Turn
	from        int
	events      [][]byte

	size int
	// running says that a worker has it. stale says that a newer item made it
	// needless meanwhile: it is not tried again.
	running, stale bool
	place          *list.Element
}

// lane is the writes of one key, in order. A worker takes one at a time.
type lane struct {
	name  string
	items []*item
	// listed says that the lane is in Outbox.ready.
	listed bool
}

func laneOfKey(key Key) string { return "s:" + string(key) }

func (it *item) lane() string {
	if it.kind == kindAlias {
		return "a:" + it.name
	}
	return laneOfKey(it.held.Key)
}

func (it *item) turnName() turnName { return turnName{it.held.Key, it.fingerprint} }

func (it *item) weigh() int {
	const fixed = 256 // structures and names
	size := fixed + len(it.value)
	for _, e := range it.events {
		size += len(e) + 24
	}
	return size
}

// queue counts all items and knows the oldest of each kind.
type queue struct {
	items, bytes int
	byKind       [kinds]*list.List
}

func newQueue() queue {
	var q queue
	for i := range q.byKind {
		q.byKind[i] = list.New()
	}
	return q
}

func (q *queue) add(it *item) {
	it.size = it.weigh()
	it.place = q.byKind[it.kind].PushBack(it)
	q.items++
	q.bytes += it.size
}

func (q *queue) remove(it *item) {
	q.byKind[it.kind].Remove(it.place)
	q.items--
	q.bytes -= it.size
}

// victim is what goes first when there is no room; nil = all are on their way.
func (q *queue) victim() *item {
	for _, l := range q.byKind {
		for e := l.Front(); e != nil; e = e.Next() {
			if it, _ := e.Value.(*item); !it.running {
				return it
			}
		}
	}
	return nil
}

// add queues a write.
func (o *Outbox) add(it *item) {
	it.since = o.opts.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	name := it.lane()
	l := o.lanes[name]
	if l == nil {
		l = &lane{name: name}
		o.lanes[name] = l
	}
	if it.kind == kindEvents && o.isBroken(it) {
		o.settle(l)
		return
	}
	if !o.merge(l, it) {
		o.supersede(l, it)
		l.items = append(l.items, it)
		o.queue.add(it)
	}
	o.makeRoom()
	o.offer(l)
}

// merge adds events to an append of the same turn that waits at the end.
func (o *Outbox) merge(l *lane, it *item) bool {
	if it.kind != kindEvents || len(l.items) == 0 {
		return false
	}
	last := l.items[len(l.items)-1]
	if last.kind != kindEvents || last.running || last.held != it.held ||
		last.fingerprint != it.fingerprint || last.attempt != it.attempt ||
		last.from+len(last.events) != it.from ||
		len(last.events)+len(it.events) > mergedEvents || last.size+it.weigh() > mergedBytes {
		return false
	}
	o.queue.bytes -= last.size
	last.events = append(slices.Clip(last.events), it.events...)
	last.size = last.weigh()
	o.queue.bytes += last.size
	return true
}

// supersede removes what it makes needless. it takes its own place at the end:
// a record must not overtake the turns it speaks of.
func (o *Outbox) supersede(l *lane, it *item) {
	l.items = slices.DeleteFunc(l.items, func(old *item) bool {
		if !it.replaces(old) {
			return false
		}
		if old.kind == it.kind && old.since.Before(it.since) {
			it.since = old.since // its key has waited since then
		}
		if old.running {
			old.stale = true
			return false
		}
		o.queue.remove(old)
		return true
	})
}

func (it *item) replaces(old *item) bool {
	sameTurn := it.fingerprint == old.fingerprint && it.attempt >= old.attempt
	switch it.kind {
	case kindSave:
		return old.kind == kindSave && old.version <= it.version
	case kindAlias:
		return old.kind == kindAlias
	case kindTurn:
		return old.kind == kindTurn && sameTurn && it.goesOn(old) // else the store judges
	case kindDrop:
		return (old.kind == kindTurn || old.kind == kindEvents) && sameTurn
	case kindRelease:
		return old.kind == kindDrain && old.held.Epoch <= it.held.Epoch
	default:
		return false
	}
}

// goesOn says whether it is a later word on the same turn.
func (it *item) goesOn(old *item) bool {
	return it.attempt > old.attempt || !old.turn.State.Final() && it.turn.State.stage() >= old.turn.State.stage()
}

// makeRoom throws away what matters least until the rest fits.
func (o *Outbox) makeRoom() {
	for o.queue.items > o.opts.MaxItems || o.queue.bytes > o.opts.MaxBytes {
		it := o.queue.victim()
		if it == nil {
			return
		}
		if !o.full {
			o.full = true
			o.opts.Log.Warn("Outbox is full: writes are lost", "waiting", o.queue.items, "bytes", o.queue.bytes)
		}
		l := o.lanes[it.lane()]
		o.remove(l, it)
		o.lose(l, it)
		o.settle(l)
	}
}

// lose counts an item that will not be written.
func (o *Outbox) lose(l *lane, it *item) {
	switch it.kind {
	case kindEvents:
		o.breakTranscript(l, it)
	case kindAlias:
		o.counts.DroppedAliases++
	case kindTurn, kindDrop:
		o.counts.DroppedTurns++
	case kindSave:
		o.counts.DroppedRecords++
	default: // a drain or a release: the lease says it too, later
	}
}

// breakTranscript gives the transcript of a turn up: one with a hole is of no use.
func (o *Outbox) breakTranscript(l *lane, it *item) {
	o.counts.DroppedTranscripts++
	o.broken.put(it.turnName(), it.attempt, it.since, time.Hour)
	l.items = slices.DeleteFunc(l.items, func(old *item) bool {
		if old.kind != kindEvents || old.fingerprint != it.fingerprint || old.attempt != it.attempt {
			return false
		}
		if old.running {
			old.stale = true
			return false
		}
		o.queue.remove(old)
		return true
	})
}

func (o *Outbox) isBroken(it *item) bool {
	attempt, ok := o.broken.get(it.turnName(), it.since)
	return ok && attempt == it.attempt
}

func (o *Outbox) remove(l *lane, it *item) {
	if i := slices.Index(l.items, it); i >= 0 {
		l.items = slices.Delete(l.items, i, i+1)
		o.queue.remove(it)
	}
}

// offer makes a lane one of those that workers take from.
func (o *Outbox) offer(l *lane) {
	if l.listed || len(l.items) == 0 || l.items[0].running {
		return
	}
	l.listed = true
	o.ready = append(o.ready, l)
	o.signal()
}

// settle forgets a lane without items.
func (o *Outbox) settle(l *lane) {
	if len(l.items) == 0 && o.lanes[l.name] == l {
		delete(o.lanes, l.name)
		o.full = o.full && len(o.lanes) > 0
		o.tellWaiters()
	}
}

func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
