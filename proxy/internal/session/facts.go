package session

import (
	"strconv"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Fact is one thing that happened to an attempt. An attempt is its facts, in
// order; everything else about it is derived from them.
type Fact struct {
	Kind FactKind
	// Fault is set for FactFault and FactRefused.
	Fault *upstream.Fault
	// End is set for FactEnded; Partial says that the request was being written.
	End     *upstream.Ended
	Partial bool
	// Phase is set for FactDialFailed; Ours says that this process lacked something.
	Phase outcome.Phase
	Ours  bool
	// Source says whose limit a timeout was.
	Source outcome.Source
}

func (f Fact) String() string {
	switch {
	case f.Fault != nil && f.Fault.Code != "":
		return f.Kind.String() + " " + strconv.QuoteToASCII(f.Fault.Code[:min(len(f.Fault.Code), 64)])
	case f.End != nil:
		return f.Kind.String() + " " + f.End.Cause.String()
	}
	return f.Kind.String()
}

// FactKind names a fact.
type FactKind uint8

// Facts of an attempt.
const (
	FactDialFailed        FactKind = iota // no connection; nothing was sent
	FactRefused                           // the upgrade was refused with an answer; nothing was sent
	FactNotSent                           // writing failed before a byte left
	FactDispatched                        // a byte may be on the wire from here on
	FactCreated                           // response.created
	FactProgress                          // any other event of the response
	FactDelivered                         // an event of the response went to the client
	FactCompleted                         // response.completed
	FactIncomplete                        // response.incomplete
	FactFault                             // response.failed or an error event
	FactEnded                             // the connection ended
	FactFirstEventTimeout                 // no event of the response in time
	FactIdleTimeout                       // no event for too long after the first
	FactRequestTimeout                    // the turn's own budget is spent
	FactClientGone                        // the client closed, or reads too slowly
	FactLocal                             // the proxy itself ends it: drain or eviction
)

var factNames = [...]string{"dial failed", "refused", "not sent", "dispatched", "created", "progress", "delivered",
	"completed", "incomplete", "fault", "ended", "no first event", "idle", "budget spent", "client gone", "local"}

func (k FactKind) String() string { return factNames[k] }

// Evidence is the digest of an attempt's facts.
type Evidence struct {
	Dispatched bool
	// Life: the upstream took the request on. Work: it did something for it, beyond
	// saying that the response was created.
	Life, Work bool
	Created    bool
	Delivered  bool
	// Last is the fact that ended the attempt.
	Last Fact
}

// Digest derives the evidence. It is total: any list of facts has a digest.
func Digest(facts []Fact) Evidence {
	var e Evidence
	for _, f := range facts {
		switch f.Kind {
		case FactDispatched:
			e.Dispatched = true
		case FactCreated:
			e.Dispatched, e.Life, e.Created = true, true, true
		case FactProgress, FactCompleted, FactIncomplete:
			e.Dispatched, e.Life, e.Work = true, true, true
		case FactDelivered:
			e.Delivered = true
		case FactFault:
			e.Dispatched = true
		case FactNotSent:
			e.Dispatched = false
		case FactDialFailed, FactRefused, FactEnded, FactFirstEventTimeout, FactIdleTimeout,
			FactRequestTimeout, FactClientGone, FactLocal:
		}
		e.Last = f
	}
	return e
}

// outcome is the evidence as the table of outcomes looks at it.
func (e Evidence) outcome() outcome.Facts {
	last := e.Last
	f := outcome.Facts{Fault: last.Fault, End: last.End, Deadline: last.Source, Dispatch: e.dispatch(),
		Created: e.Created, Life: e.Work, Visible: e.Delivered}
	switch last.Kind {
	case FactDialFailed:
		f.Dial = last.Phase
		if last.Phase == outcome.PhaseNone {
			f.Dial = outcome.PhaseConnect
		}
		if last.Ours {
			f.Local = outcome.LocalShed
		}
	case FactRefused:
		f.Refused = true
	case FactCompleted:
		f.Finish = outcome.FinishCompleted
	case FactIncomplete:
		f.Finish = outcome.FinishIncomplete
	case FactFirstEventTimeout:
		f.Silence = outcome.SilenceFirstEvent
	case FactIdleTimeout:
		f.Silence = outcome.SilenceIdle
	case FactRequestTimeout:
		f.Silence = outcome.SilenceTotal
	case FactClientGone:
		f.ClientGone = true
	case FactLocal:
		f.Local = outcome.LocalDrain
	case FactNotSent, FactDispatched, FactCreated, FactProgress, FactDelivered, FactFault, FactEnded:
	}
	return f
}

// dispatch is how far the request went.
func (e Evidence) dispatch() outcome.Certainty {
	switch {
	case !e.Dispatched:
		return outcome.DispatchNone
	case e.Life, e.Last.Kind == FactFault:
		return outcome.DispatchAcked
	case e.Last.Partial:
		return outcome.DispatchPartial
	}
	return outcome.DispatchSent
}
