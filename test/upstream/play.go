package upstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// sink is the way back to the client: SSE, one JSON body, or a WebSocket.
type sink interface {
	// begin sends the head, once; frames need none.
	begin(ctx context.Context, headers map[string]string) error
	send(ctx context.Context, e event) error
	// form is the payload the client gets for an event; nil if this answer has
	// no place for it.
	form(e event) []byte
	// raw delivers what is no event.
	raw(ctx context.Context, kind rawKind, b []byte) error
	refuse(ctx context.Context, e *apiError) error
	// cut ends the connection.
	cut(how string, closeCode int, reason string)
	pace() *pace
}

// rawKind is the wrapping of bytes that are no event.
type rawKind int

const (
	rawText    rawKind = iota // a text frame, or a data line
	rawBinary                 // a binary frame, or bare bytes
	rawWire                   // bytes on the connection, no framing at all
	rawPartial                // a frame or block that never ends
	rawPage                   // a whole HTML answer
)

// errEnded stops play when a step has ended the answer.
var errEnded = errors.New("answer ended")

// step is one move of an answer: a wait, then an event or an act.
type step struct {
	wait time.Duration
	ev   *event
	act  func(context.Context) error
}

// head is the part of every answer before its events.
func (t *turn) head() []step {
	return []step{{act: func(ctx context.Context) error {
		r := t.comp.ans.respond
		headers := t.s.quotas.headers(t.req, r.Headers)
		if r.TurnState != "" {
			headers[turnStateHeader] = t.req.fillAccount(r.TurnState)
		}
		return t.out.begin(ctx, headers)
	}}}
}

// steps is the healthy answer.
func (t *turn) steps() []step {
	r := t.comp.ans.respond
	t.out.pace().chunk = r.ChunkBytes
	var events []event
	if e := t.s.quotas.event(t.req); e != nil {
		events = append(events, *e)
	}
	if len(r.Events) > 0 {
		for _, raw := range r.Events {
			payload := []byte(strings.ReplaceAll(string(raw), "{{id}}", t.comp.ans.id))
			t.comp.events = append(t.comp.events, event{gjson.GetBytes(payload, "type").String(), payload})
		}
	} else {
		t.comp.compose()
	}
	events = append(events, t.comp.events...)
	steps := t.head()
	for i := range events {
		wait := time.Duration(r.EventDelay)
		switch {
		case i == 0:
			wait = time.Duration(r.Delay)
		case events[i].name == "keepalive" && r.KeepaliveEvery > 0:
			wait = time.Duration(r.KeepaliveEvery)
		}
		steps = append(steps, step{wait: wait, ev: &events[i]})
	}
	return steps
}

// play carries the steps out, until one of them ends the answer, the client
// leaves, or a response.interrupt comes.
func (t *turn) play(ctx context.Context, steps []step) {
	err := t.playAll(ctx, steps)
	switch {
	case errors.Is(err, errInterrupted):
		t.interrupt(ctx)
	case err != nil && !errors.Is(err, errEnded):
		t.endAs(OutcomeCancelled)
	default:
		t.endAs(OutcomeUnfinished)
	}
}

var errInterrupted = errors.New("interrupted by the client")

func (t *turn) playAll(ctx context.Context, steps []step) error {
	for _, st := range steps {
		if err := t.sleep(ctx, st.wait); err != nil {
			return err
		}
		var err error
		if st.ev != nil {
			err = t.emit(ctx, *st.ev)
		} else {
			err = st.act(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *turn) sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.interrupted:
		return errInterrupted
	default:
	}
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.interrupted:
		return errInterrupted
	}
}

// emit sends one event. A terminal one is in the ledger, and its response an
// anchor, before it is on the wire.
func (t *turn) emit(ctx context.Context, e event) error {
	if n := gjson.GetBytes(e.payload, "sequence_number"); n.Exists() {
		t.lastSeq = n.Int()
	}
	if form := t.out.form(e); form != nil {
		t.sent++
		t.sum.Write(form)
	}
	if e.terminal() && t.outcome == "" && gjson.ValidBytes(e.payload) {
		t.terminal(e)
	}
	return t.out.send(ctx, e)
}

func (t *turn) terminal(e event) {
	switch e.name {
	case "response.completed":
		t.remember(true)
		t.commit(OutcomeCompleted)
	case "response.incomplete":
		t.remember(false)
		t.commit(OutcomeIncomplete)
	default:
		t.entryUpdate(func(d *Dispatch) { d.Code = gjson.GetBytes(e.payload, "response.error.code").String() })
		if t.sent == 1 {
			t.commit(OutcomeRefused) // it was never created
			return
		}
		t.commit(OutcomeFailed)
	}
}

// interrupt ends a response the way response.interrupt wants it.
func (t *turn) interrupt(ctx context.Context) {
	t.comp.seq = int(t.lastSeq) + 1
	if err := t.emit(ctx, t.comp.incomplete("interrupted")); err != nil {
		t.endAs(OutcomeCancelled)
	}
}

// endAs commits an outcome unless a terminal event or a fault has set one.
func (t *turn) endAs(o Outcome) {
	if t.outcome == "" {
		t.commit(o)
	}
}

// mute says nothing until the client leaves.
func (t *turn) mute(ctx context.Context) error {
	t.endAs(OutcomeMuted)
	<-ctx.Done()
	return errEnded
}

// hold waits for a Release.
func (t *turn) hold(ctx context.Context) error {
	select {
	case <-t.s.released:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.interrupted:
		return errInterrupted
	}
}

// position is the index in steps before which a fault at that place comes.
// steps[0] is the head.
func position(steps []step, f *Fault) int {
	event := func(name string) int {
		return slices.IndexFunc(steps, func(s step) bool { return s.ev != nil && (s.ev.name == name || name == "" && s.ev.terminal()) })
	}
	after := func(i int) int {
		if i < 0 {
			return len(steps)
		}
		return i + 1
	}
	switch f.At {
	case "", AtBeforeHeaders, AtUpgrade:
		return 0
	case AtAfterHeaders:
		return min(1, len(steps))
	case AtAfterCreated:
		return after(event("response.created"))
	case AtAfterItem:
		return after(event("response.output_item.done"))
	case AtBeforeTerminal:
		return max(after(event(""))-1, 0)
	case AtAfterTerminal:
		return after(event(""))
	default:
		n, err := f.afterEvents()
		if err != nil {
			return len(steps) // validate has refused it
		}
		return min(1+n, len(steps))
	}
}
