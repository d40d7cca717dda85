package session

import (
	"slices"
	"time"
)

// simWorld is the world of one process' actors: the scheduler of the simulation.
type simWorld struct {
	sim  *sim
	proc *simProc
}

// simActor is a real actor with what the real world would hold for it.
type simActor struct {
	*actor
	sim   *sim
	proc  *simProc
	name  string
	mails []any
	conns []*simConn // it listens to
	alarm int        // the newest; an older one does not ring
	ended bool
	check simActorCheck
}

func (w *simWorld) now() time.Time { return w.sim.now }

func (w *simWorld) jitter(limit time.Duration) time.Duration {
	return time.Duration(w.sim.rng.Int64N(int64(limit))).Truncate(time.Millisecond)
}

func (w *simWorld) start(a *actor) {
	sa := &simActor{actor: a, sim: w.sim, proc: w.proc, name: w.proc.name + "/" + a.key.String()}
	sa.check = newSimActorCheck()
	w.proc.actors = append(w.proc.actors, sa)
	w.proc.byActor[a] = sa
}

func (w *simWorld) wait() {}

func (w *simWorld) post(a *actor, m any) bool {
	sa := w.proc.byActor[a]
	if sa.ended {
		return false
	}
	sa.mails = append(sa.mails, m)
	w.sim.soon(w.proc, sa.name+" mail", sa.readMail)
	return true
}

// hand may be overtaken: a full mailbox lets it wait beside.
func (w *simWorld) hand(a *actor, m any) {
	if !w.sim.healed && w.sim.chance(0.03) {
		if _, turn := m.(submitted); turn {
			w.proc.byActor[a].check.onTheWay++
		}
		w.sim.soon(w.proc, "overtaken message", func() {
			if _, turn := m.(submitted); turn {
				w.proc.byActor[a].check.onTheWay--
			}
			w.post(a, m)
		})
		return
	}
	w.post(a, m)
}

// patience is how long work beside an actor waits for what blocks it.
const patience = 2 * time.Second

func (w *simWorld) beside(a *actor, work func() any) {
	s, sa, begun := w.sim, w.proc.byActor[a], w.sim.now
	deliver := func(m any) {
		if !w.post(a, m) {
			a.undo(m)
		}
	}
	var try func()
	try = func() {
		s.blocked = false
		m := work()
		if s.blocked && s.now.Sub(begun) < patience {
			s.later(20*time.Millisecond+s.upTo(patience/4), w.proc, sa.name+" works again", try)
			return
		}
		switch {
		case m == nil:
		case !s.healed && s.chance(0.05):
			s.later(s.upTo(3*time.Second), w.proc, sa.name+" late result", func() { deliver(m) })
		default:
			s.soon(w.proc, sa.name+" result", func() { deliver(m) })
		}
	}
	s.soon(w.proc, sa.name+" works", try)
}

func (w *simWorld) listen(a *actor, l *link) {
	sa, c := w.proc.byActor[a], l.conn.(*simConn)
	c.listener, c.link = sa, l
	sa.conns = append(sa.conns, c)
	c.offer(len(c.inbox))
}

func (w *simWorld) alarm(a *actor, at time.Time) {
	sa := w.proc.byActor[a]
	sa.alarm++
	mine := sa.alarm
	w.sim.later(max(0, at.Sub(w.sim.now)), w.proc, sa.name+" alarm", func() {
		if sa.alarm == mine && !sa.ended {
			sa.act("wakes", sa.wake)
		}
	})
}

func (w *simWorld) pending(a *actor) (inbound, bool) {
	sa := w.proc.byActor[a]
	for _, c := range sa.conns {
		if in, ok := c.take(); ok {
			w.sim.log("  %s", c.describe(in))
			return in, true
		}
	}
	return inbound{}, false
}

// readMail takes the oldest message in.
func (sa *simActor) readMail() {
	if sa.ended || len(sa.mails) == 0 {
		return
	}
	m := sa.mails[0]
	sa.mails = sa.mails[1:]
	sa.act(simMessage(m), func() { sa.handle(m) })
}

// hear takes the next event of a connection in, as run does.
func (sa *simActor) hear(c *simConn) {
	if sa.ended {
		return
	}
	in, ok := c.take()
	if !ok {
		return
	}
	sa.act(c.describe(in), func() {
		sa.receive(in)
		sa.advance()
	})
}

// act is one step of an actor, with all that has to hold before and after it.
func (sa *simActor) act(what string, step func()) {
	sa.sim.log("  %s: %s", sa.name, what)
	before := sa.before()
	step()
	sa.after(what, before)
	if !sa.retired() {
		return
	}
	sa.sim.log("  %s ends", sa.name)
	sa.stop()
	sa.ended = true
	for _, m := range sa.mails {
		sa.undo(m)
	}
	sa.gone()
	sa.proc.actors = slices.DeleteFunc(sa.proc.actors, func(other *simActor) bool { return other == sa })
}

// simMessage names a message for the trace.
func simMessage(m any) string {
	switch m := m.(type) {
	case submitted:
		return "submitted " + m.turn.ID
	case detached:
		return "detached " + m.turn.ID
	case delivered:
		return "delivered " + m.turn.ID
	case leased:
		return "leased " + m.flight.name() + simError(m.err)
	case dialed:
		return "dialed " + m.flight.name() + simError(m.err)
	case sent:
		return "sent " + m.flight.name() + simError(m.err)
	case claimed:
		return "claimed" + simError(m.err)
	case recalled:
		return "recalled " + m.flight.name() + simError(m.err)
	case fenced:
		return "fenced, owner now " + m.current.Holder.Pod
	case reset:
		return "reset " + m.token
	case evicted:
		return "evicted"
	case draining:
		return "draining"
	}
	return "?"
}

func simError(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
