package session

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// world is the time and the concurrency that actors live in: goroutines and the
// clock in a proxy, one seeded scheduler in a simulation. An actor's own code is
// the same in both.
type world interface {
	now() time.Time
	// jitter is a random time below limit.
	jitter(limit time.Duration) time.Duration
	// start runs an actor until it retires.
	start(a *actor)
	// wait returns when all actors have ended.
	wait()
	// post delivers a message and says whether the actor was still there. It may
	// wait for room in the mailbox, so that no actor calls it for another.
	post(a *actor, m any) bool
	// hand delivers a message from one actor to another without waiting.
	hand(a *actor, m any)
	// beside does work that may wait, next to the actor, and posts what it returns.
	// If the actor has ended, its undo gets it.
	beside(a *actor, work func() any)
	// listen is the permanent reader of a link: without one, pings go unanswered
	// and a dead socket is handed to the next turn.
	listen(a *actor, l *link)
	// alarm makes the actor look at its deadlines at the given time.
	alarm(a *actor, at time.Time)
	// pending returns what has arrived for the actor already, or false.
	pending(a *actor) (inbound, bool)
}

// goroutines is the real world.
type goroutines struct{ running sync.WaitGroup }

func (*goroutines) now() time.Time { return time.Now() }

func (*goroutines) jitter(limit time.Duration) time.Duration {
	return rand.N(limit) //nolint:gosec // spreads load, guards nothing
}

func (g *goroutines) start(a *actor) { g.running.Go(a.run) }

func (g *goroutines) wait() { g.running.Wait() }

func (*goroutines) post(a *actor, m any) bool {
	select {
	case a.mail <- m:
	case <-a.done:
		return false
	}
	select {
	case <-a.done:
		a.emptyMail() // it ended meanwhile, and nobody reads this
	default:
	}
	return true
}

func (g *goroutines) hand(a *actor, m any) {
	select {
	case a.mail <- m:
	default:
		go g.post(a, m)
	}
}

func (g *goroutines) beside(a *actor, work func() any) {
	go func() {
		m := a.guarded(work)
		if m != nil && !g.post(a, m) {
			a.undo(m)
		}
	}()
}

// guarded does work; a panic of it is the end of the session alone.
func (a *actor) guarded(work func() any) (m any) {
	defer func() {
		if v := recover(); v != nil {
			a.logPanic(v)
			m = broken{}
		}
	}()
	return work()
}

func (*goroutines) listen(a *actor, l *link) {
	go func() {
		for {
			e, err := l.receive(a)
			select {
			case a.frames <- inbound{l, e, err}:
			case <-a.done:
				e.Release()
				return
			}
			if err != nil {
				return
			}
		}
	}()
}

// receive is conn.Receive; a panic of it is the end of the connection.
func (l *link) receive(a *actor) (e upstream.Event, err error) {
	defer func() {
		if v := recover(); v != nil {
			a.logPanic(v)
			err = &upstream.Ended{Cause: upstream.CauseLocal, Err: errors.New("reading broke")}
		}
	}()
	return l.conn.Receive()
}

func (*goroutines) alarm(a *actor, at time.Time) { a.timer.Reset(time.Until(at)) }

func (*goroutines) pending(a *actor) (inbound, bool) {
	select {
	case in := <-a.frames:
		return in, true
	default:
		return inbound{}, false
	}
}
