package outcome

import (
	"net/http"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Judge is the kind of an attempt and its effect, less what the facts forbid:
// nothing runs again that has shown work or that the client has seen, and what
// never left is not unknown.
func Judge(f Facts) (Kind, Effect) {
	k := Classify(f)
	e := k.Effect()
	switch {
	case f.Life, f.Visible:
		e.Retry = RetryNever
	case f.Created && k != Overloaded && k != ModelAtCapacity:
		// Of what was created only a lack of room says that it was not run.
		e.Retry = RetryNever
	}
	if f.Dispatch == DispatchNone || f.Refused {
		e.Unknown = false
	}
	return k, e
}

// Classify finds the kind of an attempt. It is total and pure; the first that
// fits wins, so that facts of this side outrank those of the other.
func Classify(f Facts) Kind {
	switch {
	case f.Finish == FinishCompleted:
		return OK
	case f.Finish == FinishIncomplete:
		return Incomplete
	case f.ClientGone:
		return CallerGone
	case f.Local != LocalNone:
		return local(f.Local)
	case f.Deadline == SourceCaller:
		return CallerDeadline
	case f.Dial != PhaseNone && f.Dispatch == DispatchNone && f.Fault == nil:
		return dial(f.Dial)
	case f.Fault != nil:
		return fault(f)
	case f.Silence != SilenceNone:
		return silence(f)
	}
	return ended(f)
}

func local(l Local) Kind {
	switch l {
	case LocalShed:
		return Shed
	case LocalDrain:
		return Drained
	case LocalNone, LocalInternal:
	}
	return Internal
}

func dial(p Phase) Kind {
	switch p {
	case PhaseDNS:
		return DNSFailed
	case PhaseTLS:
		return TLSFailed
	case PhaseProxy:
		return ProxyFailed
	case PhaseUpgrade:
		return UpgradeFailed
	case PhaseNone, PhaseConnect:
	}
	return ConnectFailed
}

func silence(f Facts) Kind {
	answered := f.Created || f.Life
	switch {
	case f.Silence == SilenceTotal:
		return BudgetSpent
	case f.Dispatch == DispatchNone:
		return NotSent
	case answered:
		return IdleTimeout
	case f.Silence == SilenceHeader:
		return HeaderTimeout
	}
	return FirstEventTimeout
}

// messageTooBig is the WebSocket close code of a peer that does not read so much.
const messageTooBig = 1009

func ended(f Facts) Kind {
	if f.Dispatch == DispatchNone {
		return NotSent
	}
	end := f.End
	if end == nil {
		end = &upstream.Ended{Cause: upstream.CauseAbrupt}
	}
	answered := f.Created || f.Life
	switch {
	case end.Cause == upstream.CauseLocal:
		return Drained
	case end.Cause == upstream.CauseGarbage, end.Cause == upstream.CauseTooLarge:
		return Garbage
	case end.Cause == upstream.CauseLiveness:
		return LivenessLost
	case answered:
		return Truncated
	case end.Code == messageTooBig:
		return TooLarge
	case f.Dispatch == DispatchPartial:
		return WriteCut
	case end.Cause == upstream.CauseClean:
		return CleanClose
	}
	return CutEventless
}

// fault judges the upstream's own word: what its codes say, then what its status
// says.
func fault(f Facts) Kind {
	if k, ok := byCode(f.Fault); ok {
		return k
	}
	return byStatus(f)
}

// byStatus judges what has no code of meaning.
func byStatus(f Facts) Kind {
	status := f.Fault.Status
	switch {
	case f.Refused && (&upstream.DialError{Status: status}).NoWebSocket():
		return NoWebSocket
	case status == http.StatusUnauthorized:
		return AuthRejected
	case status == http.StatusPaymentRequired:
		return Entitlement
	case status == http.StatusForbidden:
		return forbidden(f.Fault)
	case status == http.StatusRequestEntityTooLarge:
		return TooLarge
	case status == http.StatusTooManyRequests:
		return limited(f.Fault)
	case status == http.StatusRequestTimeout:
		return server(f) // an edge that grew tired; the request may have got through
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError:
		return CallerError
	case status < http.StatusBadRequest && callers(f.Fault):
		return CallerError
	}
	return server(f)
}

// server judges a failure of the upstream that gives no reason.
func server(f Facts) Kind {
	switch {
	case f.Refused:
		return UpgradeFailed
	case f.Created || f.Life:
		return ResponseFailed
	case f.Fault.Status == http.StatusServiceUnavailable:
		return Unavailable
	}
	return ServerError
}
