package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// work is one worker: it takes an item, writes it, and settles it.
func (o *Outbox) work() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l, it, wait := o.take()
		if it != nil {
			o.finish(l, it, o.perform(it))
			continue
		}
		timer.Reset(wait)
		select {
		case <-o.ctx.Done():
			return
		case <-o.wake:
		case <-timer.C:
		}
	}
}

// take picks the next item, or says how long there is nothing to do. While the
// store gives no answer one worker tries, one lane after the other, so that a
// part of the store that works is found.
func (o *Outbox) take() (*lane, *item, time.Duration) {
	const idle = time.Hour
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.failures > 0 && o.probing {
		return nil, nil, idle
	}
	if wait := time.Until(o.pause); o.failures > 0 && wait > 0 {
		return nil, nil, wait
	}
	for len(o.ready) > 0 {
		l := o.ready[0]
		o.ready[0] = nil
		o.ready = o.ready[1:]
		l.listed = false
		if len(l.items) == 0 { // superseded, or thrown away
			continue
		}
		it := l.items[0]
		it.running = true
		o.probing = o.failures > 0
		if it.kind == kindTurn && o.isBroken(it) {
			it.turn.Complete = false
		}
		return l, it, 0
	}
	return nil, nil, idle
}

// perform tries one write.
func (o *Outbox) perform(it *item) error {
	ctx, cancel := context.WithTimeout(o.ctx, outboxTimeout)
	defer cancel()
	switch it.kind {
	case kindSave:
		return o.store.Save(ctx, it.held, it.version, it.value, it.life)
	case kindAlias:
		return o.store.PutAlias(ctx, it.name, it.value, it.life)
	case kindTurn:
		return o.store.PutTurn(ctx, it.held, it.turn, it.life)
	case kindDrop:
		return o.store.DropTurn(ctx, it.held, it.fingerprint, it.attempt)
	case kindEvents:
		return o.store.AppendEvents(ctx, it.held, it.fingerprint, it.attempt, it.from, it.events, it.life)
	case kindDrain:
		return o.store.Drain(ctx, it.held)
	case kindRelease:
		return o.store.Release(ctx, it.held)
	default:
		return ErrCorrupt
	}
}

// finish settles an item by its answer and tells who has to know, without the lock.
func (o *Outbox) finish(l *lane, it *item, err error) {
	var refused *Fenced
	unanswered := err != nil && !errors.As(err, &refused) && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrCorrupt)
	o.mu.Lock()
	it.running = false
	switch {
	case unanswered:
		o.failed(err)
		if it.stale {
			o.remove(l, it)
		}
	default:
		o.answered()
		o.settleItem(l, it, err, refused)
	}
	o.settle(l)
	o.offer(l)
	closed := o.closed
	o.mu.Unlock()

	if unanswered && !closed && o.opts.Failed != nil {
		o.opts.Failed()
	}
	if refused != nil && o.opts.Fenced != nil {
		o.opts.Fenced(it.held, refused)
	}
}

// settleItem removes an item that was answered.
func (o *Outbox) settleItem(l *lane, it *item, err error, refused *Fenced) {
	o.remove(l, it)
	switch {
	case err == nil:
		o.counts.Written++
		if it.kind == kindDrop || it.kind == kindTurn && it.turn.State.Final() {
			o.broken.remove(it.turnName())
		}
	case refused != nil:
		o.counts.Refused++
		l.items = slices.DeleteFunc(l.items, func(old *item) bool {
			theirs := old.held.Epoch <= it.held.Epoch
			if theirs {
				o.queue.remove(old)
			}
			return theirs
		})
	case errors.Is(err, ErrConflict):
		o.counts.Refused++
		if it.kind == kindEvents && !it.stale {
			o.breakTranscript(l, it)
		}
	default: // corrupt: it would be refused each time
		o.opts.Log.Warn("A write is lost", "session", it.held.Key.short(), "error", err)
		o.lose(l, it)
	}
}

// failed notes a try without an answer: the pause before the next grows.
func (o *Outbox) failed(err error) {
	o.probing = false
	if o.failures == 0 {
		o.since = o.opts.Now()
		if !o.closed {
			o.opts.Log.Warn("The store does not answer: writes wait", "error", err)
		}
	}
	o.failures++
	limit := outboxPauseMax
	if o.flushing > 0 {
		limit /= 10 // there is no later
	}
	const most = 10 // doublings: more than the limit
	pause := min(outboxPause<<min(o.failures-1, most), limit)
	pause = pause/2 + rand.N(pause/2+1) //nolint:gosec // jitter needs no secrecy
	o.pause = time.Now().Add(pause)
}

// answered notes that the store is there.
func (o *Outbox) answered() {
	o.probing = false
	if o.failures == 0 {
		return
	}
	o.opts.Log.Info("The store answers again", "after", o.opts.Now().Sub(o.since), "waiting", o.queue.items)
	o.failures = 0
	for range outboxWorkers {
		o.signal()
	}
}
