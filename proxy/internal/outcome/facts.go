package outcome

import (
	"errors"
	"net"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Facts are what is known of an attempt at its end. They are plain values; the
// zero value is an attempt of which nothing was sent.
type Facts struct {
	// Finish is how the response ended by its own terminal event, if it did.
	Finish Finish
	// Fault is the upstream's refusal or failure: of the upgrade, as an HTTP answer,
	// as an error event or as response.failed. An error event that is followed by
	// response.failed is one fault.
	Fault *upstream.Fault
	// Refused: the fault answered the upgrade of a socket, so nothing was sent.
	Refused bool
	// Dial is the phase in which connecting failed.
	Dial Phase
	// End is how the connection ended under the attempt; nil = it did not.
	End *upstream.Ended
	// Silence is the phase whose limit ran out.
	Silence Silence
	// Deadline says whose limit ended the attempt.
	Deadline Source
	// Dispatch is how far the request went.
	Dispatch Certainty
	// Created: response.created, .queued or .in_progress came.
	Created bool
	// Life: an event came that only work on the response makes: an item, a part, a
	// delta. Created, queued and in_progress are no work, and neither are keepalives
	// and telemetry.
	Life bool
	// Visible: the client has seen an event of the response, other than a heartbeat.
	Visible bool
	// ClientGone: the client closed, or reads too slowly.
	ClientGone bool
	// Local is why the proxy itself ended it.
	Local Local
}

// Finish is the good end of a response.
type Finish uint8

// Finishes.
const (
	FinishNone       Finish = iota
	FinishCompleted         // response.completed
	FinishIncomplete        // response.incomplete
)

// Phase is a phase of connecting.
type Phase uint8

// Phases. PhaseProxy is the CONNECT of an egress proxy, PhaseUpgrade is the
// WebSocket handshake when it got no answer.
const (
	PhaseNone Phase = iota
	PhaseDNS
	PhaseConnect
	PhaseTLS
	PhaseProxy
	PhaseUpgrade
)

// PhaseOf says in which phase connecting failed with err; PhaseNone for an error
// that is not about connecting.
func PhaseOf(err error) Phase {
	var dial *upstream.DialError
	if !errors.As(err, &dial) {
		return PhaseNone
	}
	var name *net.DNSError
	var operation *net.OpError
	switch {
	case errors.As(dial.Err, &name):
		return PhaseDNS
	case errors.As(dial.Err, &operation) && operation.Op == "proxyconnect":
		return PhaseProxy
	case dial.Stage == "tls":
		return PhaseTLS
	case dial.Stage == "upgrade":
		return PhaseUpgrade
	}
	return PhaseConnect
}

// Silence is a wait of an attempt that has a limit.
type Silence uint8

// Silences. SilenceTotal is the limit of the whole turn.
const (
	SilenceNone Silence = iota
	SilenceHeader
	SilenceFirstEvent
	SilenceIdle
	SilenceTotal
)

// Source is whose limit it was.
type Source uint8

// Sources. SourceNone: no limit ended the attempt.
const (
	SourceNone Source = iota
	SourceOperator
	SourceCaller
)

// Certainty is how far a request went.
type Certainty uint8

// Certainties, in their order.
const (
	DispatchNone     Certainty = iota // no byte was written
	DispatchPartial                   // a part was
	DispatchSent                      // all of it was
	DispatchAcked                     // a response header or an event came
	DispatchTerminal                  // a terminal event or a whole answer came
)

// Local is why the proxy itself ended an attempt.
type Local uint8

// Reasons.
const (
	LocalNone     Local = iota
	LocalShed           // a bulkhead, a queue, an open circuit
	LocalDrain          // drain, eviction, hand-over
	LocalInternal       // a fault of ours
)
