package session

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// arm sets the timer to the next moment at which something is due. It is not
// called for each event: events only move deadlines back, and a timer that fires
// early just looks again.
func (a *actor) arm() {
	next := a.nextDue()
	if !a.armed.IsZero() && !next.Before(a.armed) {
		return
	}
	a.armed = next
	a.world.alarm(a, next)
}

func (a *actor) nextDue() time.Time {
	next := a.now().Add(time.Hour)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	for _, f := range a.flights {
		f.dues(earlier)
	}
	for _, f := range a.arriving {
		if a.needsNoRecord(f) {
			earlier(f.submitted.Add(claimWait))
		} else {
			if o := &a.own; !o.claiming && !o.failedAt.IsZero() {
				earlier(o.failedAt.Add(claimRetry))
			}
			earlier(f.submitted.Add(f.turn.Limits.AdmissionWait))
		}
	}
	for _, l := range a.leaving {
		earlier(l.until)
	}
	if len(a.flights) == 0 && len(a.leaving) == 0 {
		earlier(a.idleSince.Add(idleLimit(a.key.Kind)))
	}
	return next
}

// dues are the moments at which something is due for a flight.
func (f *flight) dues(earlier func(time.Time)) {
	earlier(f.renewAt)
	earlier(f.heldUntil)
	if f.stage == stagePausing {
		earlier(f.resumeAt)
	}
	if f.gone {
		return // its link's limit is its own
	}
	if !f.expiring.IsZero() {
		earlier(f.expiring.Add(expiryGrace)) // due is past already
		return
	}
	if limit, _, bounded := f.deadline(); bounded {
		earlier(limit.At)
	}
}

// deadline is when a flight fails if nothing happens, and how; false = never. What
// ends the whole turn is the same fact wherever the turn is: it says nothing
// about the upstream.
func (f *flight) deadline() (deadline.Limit, FactKind, bool) {
	l, budget := &f.turn.Limits, f.turn.Budget
	var limit deadline.Limit
	var bounded bool
	kind := FactRequestTimeout
	switch {
	case f.stage != stageSending && f.stage != stageSent:
		limit, bounded = budget.Phase(deadline.AdmissionWait, f.submitted, 0)
	case Digest(f.facts).Life:
		limit, bounded = budget.Phase(deadline.StreamIdle, f.quietSince(l.StreamIdle), l.StreamIdle)
		kind = FactIdleTimeout
	default:
		limit, bounded = budget.Phase(deadline.FirstEvent, f.sent, l.FirstEvent)
		kind = FactFirstEventTimeout
	}
	if limit.Source == deadline.Caller || limit.Kind == deadline.Total || limit.Kind == deadline.CallerMax {
		kind = FactRequestTimeout
	}
	return limit, kind, bounded
}

// quietSince is the moment from which silence in mid-stream counts. Pongs prove
// that the connection lives, and move it up to silentIdles times.
func (f *flight) quietSince(idle time.Duration) time.Time {
	heard := f.lastEvent
	if h := f.link.conn.Heard(); h.After(heard) {
		heard = h
	}
	if last := f.lastEvent.Add((silentIdles - 1) * idle); last.Before(heard) {
		return last
	}
	return heard
}

func (a *actor) expire(now time.Time) {
	a.catchUp() // what has arrived already wins over the clock
	for _, f := range append([]*flight(nil), a.flights...) {
		a.expireFlight(f, now)
	}
	for _, l := range append([]*link(nil), a.leaving...) {
		if !l.until.IsZero() && !now.Before(l.until) {
			a.cut(l)
		}
	}
}

// catchUp takes in what has arrived on the connections.
func (a *actor) catchUp() {
	for {
		in, ok := a.world.pending(a)
		if !ok {
			return
		}
		a.receive(in)
	}
}

func (a *actor) expireFlight(f *flight, now time.Time) {
	if f.stage == stagePausing && !now.Before(f.resumeAt) && !f.gone {
		a.resume(f)
	}
	if !f.heldUntil.IsZero() && !now.Before(f.heldUntil) {
		a.reveal(f)
	}
	if f.probe && !now.Before(f.renewAt) {
		a.probe(f, ProbeRenewed)
	}
	limit, kind, bounded := f.deadline()
	if f.gone || f.stage == stageSettled || !bounded || now.Before(limit.At) {
		f.expiring = time.Time{}
		return
	}
	if f.expiring.IsZero() {
		f.expiring = now
		return
	}
	if now.Sub(f.expiring) >= expiryGrace {
		f.limit = limit
		f.facts = append(f.facts, Fact{Kind: kind, Source: sourceOf(limit.Source)})
		a.judge(f, nil)
	}
}

func sourceOf(s deadline.Source) outcome.Source {
	if s == deadline.Caller {
		return outcome.SourceCaller
	}
	return outcome.SourceOperator
}

// cut closes a leaving link at its limit.
func (a *actor) cut(l *link) {
	live := append([]*flight(nil), l.live...)
	for _, f := range live {
		if f.gone {
			f.note(FactClientGone)
			a.judge(f, nil)
		}
	}
	if len(l.live) > 0 {
		l.until = time.Time{} // siblings still run; the last one closes it
		return
	}
	a.close(l)
}

// drain ends the session when its turns have ended, or now.
func (a *actor) drain(force bool) {
	a.closing = true
	if a.link != nil && len(a.link.live) == 0 {
		a.close(a.link)
	}
	for _, l := range append([]*link(nil), a.leaving...) {
		if len(l.live) == 0 {
			a.close(l)
		}
	}
	if a.own.valid() {
		a.services.Writer.Drain(a.own.held)
	}
	if !force {
		return
	}
	a.forced = true
	for _, f := range a.arriving {
		a.refuse(f, failure.New(failure.Draining, "This proxy is going away; send the request again.", failure.Reason("drain")))
	}
	a.arriving = nil
	for _, f := range append([]*flight(nil), a.flights...) {
		f.note(FactLocal)
		a.judge(f, nil)
	}
	for _, l := range append([]*link(nil), a.leaving...) {
		a.close(l)
	}
}

// stop releases what is left when the actor ends.
func (a *actor) stop() {
	a.giveUp()
	close(a.done)
	a.emptyMail()
	a.cancel()
	a.timer.Stop()
	if a.link != nil {
		a.close(a.link)
	}
	for _, l := range append([]*link(nil), a.leaving...) {
		a.close(l)
	}
}

// emptyMail undoes what came too late: an account or a connection that waits in
// the mailbox of an actor that has ended would be held for ever.
func (a *actor) emptyMail() {
	for {
		select {
		case m := <-a.mail:
			a.undo(m)
		default:
			return
		}
	}
}

// undo gives back what a message brings that no actor takes in.
func (a *actor) undo(m any) {
	switch m := m.(type) {
	case submitted:
		m.turn.Out.end(ownFault()) // only a session that broke ends with one on its way
	case leased:
		if m.lease != nil {
			m.lease.Release()
		}
	case dialed:
		if m.err == nil {
			m.conn.Close()
		}
	case claimed:
		if m.err == nil {
			a.services.Writer.Release(m.claim.Held)
		}
	}
}
