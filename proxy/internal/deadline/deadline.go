// Package deadline says how long each phase of a turn may take, whose limit that
// is, and how much time a turn has in all, also after it moved to another replica.
//
// It is pure: it is told the time, and compares instants of one process only. From
// replica to replica a budget travels as what is left of it.
package deadline

import (
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// Kind is a limit, by the name that errors carry as deadline_kind.
type Kind string

// The limits of a turn, in the order in which they can run out.
const (
	InboundHeader  Kind = "inboundHeader"
	InboundBody    Kind = "inboundBody"
	AdmissionWait  Kind = "admissionWait"
	Dial           Kind = "dial"
	TLS            Kind = "tls"
	WriteBody      Kind = "writeBody"
	ResponseHeader Kind = "responseHeader"
	FirstEvent     Kind = "firstEvent"
	StreamIdle     Kind = "streamIdle"
	// Total bounds the turn as a whole, CallerMax what a caller may ask for.
	Total     Kind = "total"
	CallerMax Kind = "callerMax"
	// CancelGrace is not an error's: it ends a turn whose client is gone.
	CancelGrace Kind = "cancelGrace"
)

// Source is whose limit ran out, as errors carry it in deadline_source: what a
// caller chose says nothing about an upstream's health.
type Source string

// The two sources of limits.
const (
	Operator Source = "operator"
	Caller   Source = "caller"
)

// Class is what kind of work a turn is.
type Class string

// Classes of turns. Media is slow to begin.
const (
	Text  Class = "text"
	Media Class = "media"
)

// Limits that no field of a CircuitPolicy sets.
const (
	// InboundHeaderTime is for a request's header, on an open connection.
	InboundHeaderTime = 10 * time.Second
	// InboundBodyTime is for a body as a whole. After InboundBodyGrace it also has
	// to have arrived at InboundBodyFloor bytes a second on average.
	InboundBodyTime  = 60 * time.Second
	InboundBodyGrace = 5 * time.Second
	InboundBodyFloor = 8 << 10
	// WriteBodyTime is for handing a request to an upstream.
	WriteBodyTime = 60 * time.Second
	// mediaBegin is the least that an upstream gets to begin an answer with images:
	// it is silent while it draws.
	mediaBegin = 300 * time.Second
	// nonStreamTotal is for an answer in one piece where the policy sets no total:
	// what SDKs wait for by default. Nothing is sent until it is complete, so that
	// no other limit would notice that it never will be.
	nonStreamTotal = 600 * time.Second
)

// Limits are the durations of a turn's phases; 0 = none.
type Limits struct {
	AdmissionWait  time.Duration
	Dial           time.Duration
	TLS            time.Duration
	WriteBody      time.Duration
	ResponseHeader time.Duration
	FirstEvent     time.Duration
	StreamIdle     time.Duration
	Total          time.Duration
	CallerMax      time.Duration
	CancelGrace    time.Duration
}

// For returns the limits of a turn of a class. wait is the queue timeout of its
// lane; stream says that the client gets events as they come.
func For(d bundle.Deadlines, wait time.Duration, class Class, stream bool) Limits {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	l := Limits{
		AdmissionWait: wait, Dial: seconds(d.ConnectSeconds), TLS: seconds(d.TLSSeconds), WriteBody: WriteBodyTime,
		ResponseHeader: seconds(d.ResponseHeaderSeconds), FirstEvent: seconds(d.FirstEventSeconds), StreamIdle: seconds(d.IdleSeconds),
		Total: seconds(d.RequestSeconds), CallerMax: seconds(d.CallerMaxSeconds), CancelGrace: seconds(d.CancelGraceSeconds),
	}
	if class == Media {
		l.ResponseHeader, l.FirstEvent = atLeast(l.ResponseHeader, mediaBegin), atLeast(l.FirstEvent, mediaBegin)
	}
	if !stream && l.Total == 0 {
		l.Total = nonStreamTotal
	}
	return l
}

// atLeast raises a limit; none stays none.
func atLeast(d, least time.Duration) time.Duration {
	if d == 0 {
		return 0
	}
	return max(d, least)
}

// Dispatch is what has left for the upstream when the phase k runs out of time, in
// the words of errors: none, partial, sent or acked. Empty = that depends on the
// phase in which it happens.
func (k Kind) Dispatch() string {
	switch k {
	case InboundHeader, InboundBody, AdmissionWait, Dial, TLS:
		return "none"
	case WriteBody:
		return "partial"
	case ResponseHeader, FirstEvent:
		return "sent"
	case StreamIdle:
		return "acked"
	default:
		return ""
	}
}
