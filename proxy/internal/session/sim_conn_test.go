package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// simConn is both ends of one upstream connection and the network between them.
type simConn struct {
	sim      *sim
	proc     *simProc
	account  string
	http     bool
	tagged   bool // its events name their response
	listener *simActor
	link     *link
	wire     []simArrival // on its way
	inbox    []simArrival
	lastDue  time.Time // of what is on its way: nothing overtakes
	runs     []*simRun
	// closedHere: the proxy closed it. endedThere: the upstream did. read: the end
	// has been read.
	closedHere, endedThere, read, gone bool
	pongs                              bool // the peer answers pings, whatever else it does
}

// simArrival is an event, or the end, as it reaches the proxy.
type simArrival struct {
	name, data string
	end        error
	run        *simRun
	life       bool
}

func (c *simConn) open() bool { return !c.closedHere && !c.endedThere && !c.gone }

// play sends something from the upstream's end.
func (c *simConn) play(after time.Duration, m simArrival) {
	at := c.sim.now.Add(after)
	if at.Before(c.lastDue) {
		at = c.lastDue
	}
	c.lastDue = at
	c.wire = append(c.wire, m)
	c.sim.later(at.Sub(c.sim.now), nil, "something arrives", func() {
		next := c.wire[0]
		c.wire = c.wire[1:]
		c.sim.log("  %s from %s", next.name, c.account)
		c.arrive(next)
	})
}

func (c *simConn) arrive(m simArrival) {
	if !c.open() {
		return
	}
	if m.end != nil {
		c.endedThere = true
		c.stopRuns(m.name)
	}
	c.inbox = append(c.inbox, m)
	c.offer(1)
}

// stopRuns: what runs for a connection that is gone goes on for nobody.
func (c *simConn) stopRuns(why string) {
	for _, r := range c.runs {
		if r.outcome == "" {
			r.outcome = why
		}
		r.live = false
	}
}

// offer lets the listener hear n arrivals.
func (c *simConn) offer(n int) {
	if c.listener == nil {
		return
	}
	for range n {
		c.sim.soon(c.proc, c.listener.name+" hears", func() { c.listener.hear(c) })
	}
}

// take reads the next arrival.
func (c *simConn) take() (inbound, bool) {
	if len(c.inbox) == 0 || c.read {
		return inbound{}, false
	}
	m := c.inbox[0]
	c.inbox = c.inbox[1:]
	if m.end != nil {
		c.read = true
		if m.run != nil {
			m.run.endRead = true
		}
		return inbound{c.link, upstream.Event{}, m.end}, true
	}
	if m.run != nil {
		m.run.read(m)
	}
	return inbound{c.link, upstream.Own(m.name, []byte(m.data)), nil}, true
}

func (c *simConn) describe(in inbound) string {
	if in.err != nil {
		return "end of the connection to " + c.account + simError(in.err)
	}
	return "event " + in.event.Type + " " + responseID(in.event.Data)
}

// vanish: the process is gone.
func (c *simConn) vanish() {
	c.gone = true
	c.stopRuns("crashed")
}

func (c *simConn) Send(request upstream.Request) error {
	s := c.sim
	if c.closedHere || c.endedThere && s.chance(0.5) {
		return fmt.Errorf("%w: closed", upstream.ErrNotSent)
	}
	data := bytes.Join(request.Segments, nil)
	switch {
	case c.endedThere:
		return nil // into the buffer of a dead socket
	case s.fault(0.02):
		c.breakOff()
		return fmt.Errorf("%w: broken pipe", upstream.ErrNotSent)
	case s.fault(0.02):
		s.up.lose(c, data, "torn")
		c.breakOff()
		return errors.New("broken pipe after some bytes")
	}
	s.later(s.upTo(50*time.Millisecond), nil, "upstream reads a request", func() {
		if c.open() {
			s.up.serve(c, data)
		} else {
			s.up.lose(c, data, "unread")
		}
	})
	return nil
}

// breakOff ends the connection under a write.
func (c *simConn) breakOff() {
	c.play(0, simArrival{name: "reset", end: &upstream.Ended{Cause: upstream.CauseAbrupt, Err: errors.New("reset")}})
}

// Receive is not called: listen hands arrivals over.
func (c *simConn) Receive() (upstream.Event, error) {
	return upstream.Event{}, errors.New("not used")
}

func (c *simConn) Heard() time.Time {
	if c.pongs {
		return c.sim.now
	}
	return time.Time{}
}

func (c *simConn) Header() http.Header { return simHeader }

var simHeader = http.Header{}

// Close ends the connection from here. What had arrived may still be read.
func (c *simConn) Close() {
	if c.closedHere {
		return
	}
	c.closedHere = true
	c.stopRuns("closed by the proxy")
	if keep := c.sim.rng.IntN(5); len(c.inbox) > keep {
		c.inbox = c.inbox[:keep]
	}
	if !c.read {
		c.inbox = append(c.inbox, simArrival{name: "local end", end: &upstream.Ended{Cause: upstream.CauseLocal, Err: errors.New("closed")}})
		c.offer(1)
	}
}

// simDialer connects a process to the upstream.
type simDialer struct{ proc *simProc }

func (d simDialer) WebSocket(ctx context.Context, t upstream.Target) (upstream.Conn, error) {
	s := d.proc.sim
	switch {
	case ctx.Err() != nil:
		return nil, &upstream.DialError{Stage: "connect", Err: ctx.Err()}
	case s.fault(0.05):
		return nil, &upstream.DialError{Stage: "connect", Err: errors.New("refused")}
	case s.fault(0.03):
		status := []int{401, 429, 503, 426}[s.rng.IntN(4)]
		refusal := upstream.Own("error", fmt.Appendf(nil, `{"type":"error","status":%d,"error":{"type":"x","message":"no upgrade"}}`, status))
		return nil, &upstream.DialError{Stage: "upgrade", Status: status, Refusal: &refusal, Err: errors.New("bad handshake")}
	}
	return d.conn(t, false), nil
}

func (d simDialer) HTTP(t upstream.Target) upstream.Conn {
	d.proc.sim.counts["http"]++
	return d.conn(t, true)
}

func (d simDialer) conn(t upstream.Target, http bool) *simConn {
	s := d.proc.sim
	c := &simConn{sim: s, proc: d.proc, account: t.Account, http: http, tagged: s.plan.tagged, pongs: s.chance(0.5)}
	d.proc.conns = append(d.proc.conns, c)
	return c
}
