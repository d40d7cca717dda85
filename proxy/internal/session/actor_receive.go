package session

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

func (a *actor) receive(in inbound) {
	if in.err != nil {
		a.linkEnded(in.link, in.err)
		return
	}
	f := in.link.match(&in.event)
	if f == nil {
		a.stray(in)
		return
	}
	if f.oversized(&in.event) {
		in.event.Release()
		f.facts = append(f.facts, Fact{Kind: FactEnded, End: &upstream.Ended{Cause: upstream.CauseTooLarge}})
		a.judge(f, nil)
		return
	}
	a.event(f, in.event)
}

// maxTextEvent bounds an event of a turn that draws nothing; one image is larger.
const maxTextEvent = 16 << 20

// oversized says whether an event is larger than its turn has reason for. Transports
// bound the others.
func (f *flight) oversized(e *upstream.Event) bool {
	return len(e.Data) > maxTextEvent && !f.turn.Facts.Media && !bytes.Contains(e.Data, imageCall)
}

// imageCall is in all that holds a drawn image.
var imageCall = []byte(`image_generation_call`)

// stray handles an event that belongs to no turn. It reaches nobody.
func (a *actor) stray(in inbound) {
	if in.event.Kind != upstream.KindVendor && in.event.Kind != upstream.KindKeepalive {
		a.services.Observer.Unmatched()
		a.log().Debug("Dropped an event that belongs to no turn", "event", in.event.Type)
	}
	in.event.Release()
}

// match finds the flight an event belongs to. A response.created always belongs
// to the oldest un-created attempt, whether its client is still there or not;
// an event that names its response belongs to that one.
func (l *link) match(e *upstream.Event) *flight {
	if len(l.live) == 0 {
		return nil
	}
	id := ""
	if len(l.live) > 1 || e.Kind != upstream.KindOther || bytes.Contains(e.Data, responseIDMember) {
		id = responseID(e.Data)
	}
	if id != "" {
		for _, f := range l.live {
			if f.responseID == id {
				return f
			}
		}
		if l.uncreated == nil || slices.Contains(l.done, id) {
			return nil
		}
		return l.uncreated
	}
	switch {
	case e.Kind == upstream.KindCreated, e.Kind == upstream.KindError && l.uncreated != nil:
		return l.uncreated
	case len(l.live) == 1:
		return l.live[0]
	}
	return nil
}

// responseIDMember is what an event of another response would carry; most events
// do not, and are not parsed for it.
var responseIDMember = []byte(`"response_id"`)

// responseID is the id of the response an event names; it shares the event's
// memory.
func responseID(data []byte) string {
	s := view(data)
	if id := gjson.Get(s, "response.id"); id.Type == gjson.String {
		return id.Str
	}
	return gjson.Get(s, "response_id").Str
}

func (a *actor) event(f *flight, e upstream.Event) {
	f.expiring = time.Time{}
	if e.Kind.Lifecycle() {
		f.lastEvent = a.now()
	}
	switch e.Kind {
	case upstream.KindVendor, upstream.KindKeepalive:
		a.learnTurnState(f.link, e)
		if e.Type == usageEvent {
			a.observeUsage(f, account.UsageFromEvent(e.Data, a.now()))
		}
		a.relay(f, e)
	case upstream.KindCreated:
		a.created(f, e)
	case upstream.KindCompleted:
		a.completed(f, e)
	case upstream.KindIncomplete:
		f.note(FactIncomplete)
		a.judge(f, &e)
	case upstream.KindFailed, upstream.KindError:
		fault := upstream.ReadFault(e)
		f.facts = append(f.facts, Fact{Kind: FactFault, Fault: &fault})
		a.judge(f, &e)
	case upstream.KindItemDone:
		item := bytesOf(gjson.Get(view(e.Data), "item").Raw)
		f.outputs = append(f.outputs, affinity.ReadOutput(item))
		if f.hasActed(item) {
			f.noteOnce(FactProgress)
			e.Release()
			return
		}
		a.progress(f, e)
	case upstream.KindInProgress:
		if f.responseID == "" {
			a.created(f, e) // as good as response.created
			return
		}
		a.relay(f, e)
	case upstream.KindItemAdded, upstream.KindOther:
		a.progress(f, e)
	}
}

// usageEvent tells how much of the account's windows is used.
const usageEvent = "codex.rate_limits"

func (a *actor) created(f *flight, e upstream.Event) {
	f.responseID = strings.Clone(responseID(e.Data))
	f.noteOnce(FactCreated)
	f.answered()
	if f.link.uncreated == f {
		f.link.uncreated = nil
	}
	if f.probe {
		a.probe(f, ProbeProved)
	}
	a.head(f)
	a.relay(f, e)
	a.arm()
}

func (a *actor) progress(f *flight, e upstream.Event) {
	if len(f.facts) > 0 && f.facts[len(f.facts)-1].Kind != FactDelivered {
		f.noteOnce(FactProgress)
		f.answered()
		a.head(f)
	}
	if !f.inspected && f.responseID != "" {
		f.inspected = true
		f.link.tagged = gjson.Get(view(e.Data), "response_id").Exists()
	}
	a.relay(f, e)
}

// head tells the client's handler the header of an HTTP answer.
func (a *actor) head(f *flight) {
	if f.link.transport == HTTP {
		f.turn.Out.setHead(f.link.conn.Header(), true)
	}
}

// relay hands an event to the client. A client that is too slow loses its own
// turn and nothing else.
func (a *actor) relay(f *flight, e upstream.Event) {
	a.spoolEvent(f, &e) // also for a client that left: it may come back for the answer
	if f.gone {
		e.Release()
		return
	}
	if f.holds(e.Kind, a.now()) {
		a.hold(f, e)
		return
	}
	if a.reveal(f) {
		a.push(f, e)
	}
}

// push hands an event to the client and says whether the turn goes on.
func (a *actor) push(f *flight, e upstream.Event) bool {
	lifecycle := e.Kind.Lifecycle()
	if f.turn.Out.push(e) {
		if lifecycle && f.facts[len(f.facts)-1].Kind != FactDelivered {
			f.note(FactDelivered)
			f.turn.lighten()
		}
		return true
	}
	a.abandon(f, failure.New(failure.DownstreamOverflow,
		"The client reads more slowly than the response arrives; more than 8 MiB wait for it."))
	return false
}

// hasActed says whether a tool call must be kept from the client: it has got the
// same one when it sent this turn before.
func (f *flight) hasActed(item []byte) bool {
	key, acts := CallKey(item)
	if !acts {
		return false
	}
	if i := slices.Index(f.before, key); i >= 0 {
		f.before = slices.Delete(f.before, i, i+1)
		f.duplicate = true
		return true
	}
	f.calls = append(f.calls, key)
	return false
}

func (a *actor) completed(f *flight, e upstream.Event) {
	if f.responseID == "" { // a stream without response.created
		f.responseID = strings.Clone(responseID(e.Data))
	}
	f.note(FactCompleted)
	a.judge(f, &e)
}

// learnTurnState keeps the upstream's own token with the socket it came on.
func (a *actor) learnTurnState(l *link, e upstream.Event) {
	if e.Type != "response.metadata" {
		return
	}
	gjson.Get(view(e.Data), "headers").ForEach(func(k, v gjson.Result) bool {
		if strings.EqualFold(k.Str, affinity.TurnStateHeader) {
			l.turnState = strings.Clone(v.Str)
		}
		return true
	})
}

// linkEnded judges what was still running on a connection that is gone.
func (a *actor) linkEnded(l *link, err error) {
	a.end(l)
	live := append([]*flight(nil), l.live...)
	for _, f := range live {
		if f.gone {
			f.note(FactClientGone)
		} else {
			f.facts = append(f.facts, sendFact(err))
		}
		a.judge(f, nil)
	}
	a.sendNext(l)
}

// sendFact is what an error of Send or Receive means.
func sendFact(err error) Fact {
	if errors.Is(err, upstream.ErrNotSent) {
		return Fact{Kind: FactNotSent}
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return Fact{Kind: FactFirstEventTimeout} // of an HTTP answer's head
	}
	var ended *upstream.Ended
	if !errors.As(err, &ended) {
		ended = &upstream.Ended{Cause: upstream.CauseAbrupt, Err: err}
	}
	return Fact{Kind: FactEnded, End: ended}
}

// dialFact is what an error of a dial means.
func dialFact(err error) Fact {
	var dial *upstream.DialError
	if errors.As(err, &dial) && dial.Refusal != nil {
		fault := upstream.ReadFault(*dial.Refusal)
		return Fact{Kind: FactRefused, Fault: &fault}
	}
	// Our own want of descriptors says nothing about the other side.
	ours := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
	return Fact{Kind: FactDialFailed, Phase: outcome.PhaseOf(err), Ours: ours}
}
