package session

import (
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// AnchorEffect is what an attempt means for its anchor. What a strike means for
// it is decided where strikes are counted.
type AnchorEffect uint8

// Effects on the anchor.
const (
	AnchorKeeps AnchorEffect = iota
	AnchorReplaced
	AnchorDies
	AnchorWedges // the upstream worked, and never created the response
)

// Recovery is what may be done about the turn, at most once each.
type Recovery uint8

// Recoveries.
const (
	// RecoverNone: the outcome goes to the client.
	RecoverNone Recovery = iota
	// RecoverRedial: nothing was sent; connect again.
	RecoverRedial
	// RecoverHTTP: the upstream has no WebSocket here; send the turn by HTTP.
	RecoverHTTP
	// RecoverOtherAccount: the upstream said that it did not run the turn, and
	// another account may have more luck.
	RecoverOtherAccount
	// RecoverAnyAccount: the same, where the reason is not the account's: if there
	// is no other, the same one is asked again, after a short, random pause.
	RecoverAnyAccount
	// RecoverWhole: send the whole conversation again without the anchor, on the
	// same account.
	RecoverWhole
	// RecoverAfterPause: the upstream closed in good order without an answer; send
	// the turn again on a new connection, after a short, random pause.
	RecoverAfterPause
)

var recoveryNames = [...]string{"", "redial", "http", "other_account", "any_account", "whole", "after_pause"}

func (r Recovery) String() string { return recoveryNames[r] }

// ClientResult is what the client gets if nothing is recovered.
type ClientResult uint8

// Results for the client.
const (
	DeliverEvent      ClientResult = iota // the upstream's own last event
	DeliverFault                          // the upstream's error, in the form that fits
	DeliverAnchorGone                     // the anchor is gone: send the whole conversation again
	DeliverMasked                         // the same, when the client has seen a part of the answer
	DeliverDuplicate                      // a tool call that the client has made already was kept back
	DeliverCut                            // stream_incomplete
	DeliverSilence                        // no first event in time
	DeliverIdle                           // silence in mid-stream
	DeliverConnect                        // no connection
	DeliverBudget                         // the turn's own budget is spent
	DeliverGarbage                        // what came is no response
	DeliverTooLarge                       // the upstream does not read so much
	DeliverLocal                          // the proxy ends
	DeliverNothing                        // nobody is there
)

// Verdict is what one attempt means. An attempt has exactly one.
type Verdict struct {
	// Row is the row of the verdict table, for logs and metrics.
	Row string
	// Kind is what the attempt means for everybody but the session: its account, its
	// route and the whole.
	Kind outcome.Kind
	// Strike counts against the session key.
	Strike StrikeClass
	// Settles: the key works; its circuit closes.
	Settles bool
	Anchor  AnchorEffect
	Account outcome.Account
	// Retire ends the connection.
	Retire   bool
	Recovery Recovery
	Client   ClientResult
}

// TurnState is what of a turn a verdict depends on.
type TurnState struct {
	Plan Plan
	// Recovered: this turn's one recovery after a dispatch is spent.
	Recovered bool
	// Redialed: this turn has connected again already.
	Redialed bool
	// Moved: another account was asked already, because the first was not reached.
	Moved bool
	// CleanCloses counts the times that this turn was sent again after the
	// upstream had closed in good order.
	CleanCloses int
	// Attempts counts the dispatches of the turn, this one included, but for those
	// that an account refused for a reason of its own.
	Attempts int
	// Retry is what the policy allows, Budget whether the turns of late leave room
	// for one that is sent again.
	Retry  RetryPolicy
	Budget bool
	// Neutral: any account can run the turn, and no tool of it acts at the upstream;
	// see affinity.Neutral. It is looked at only where a second run is in question.
	Neutral bool
	// Prewarm: the turn asks for no answer.
	Prewarm bool
	// Duplicate: a tool call of the response was kept from the client.
	Duplicate bool
}

// maxCleanCloses is how often a turn is sent again after a clean close: the
// upstream says good-bye before it has taken the request, for example while it
// rolls out a version, and the next socket can hit the same server once more.
const maxCleanCloses = 2

// Decide judges an attempt. It is total and pure; the first row that fits wins.
func Decide(e Evidence, t TurnState) Verdict {
	kind, effect := outcome.Judge(e.outcome())
	v := decide(e, t, kind, effect)
	v.Kind = kind
	if effect.Account != outcome.AccountSuspect || t.Plan.Provenance == Unanchored {
		// Silence on an anchor is the anchor's before it is the account's.
		v.Account = effect.Account
	}
	if !t.Retry.allows(v.Recovery, kind, t) {
		v.Recovery = RecoverNone
	}
	return v
}

func decide(e Evidence, t TurnState, kind outcome.Kind, effect outcome.Effect) Verdict {
	switch e.Last.Kind {
	case FactClientGone:
		return Verdict{Row: "client_gone", Retire: e.Dispatched, Client: DeliverNothing}
	case FactLocal:
		return Verdict{Row: "local", Retire: true, Client: DeliverLocal}
	case FactDialFailed, FactNotSent:
		return dialFailed(t)
	case FactRefused:
		return refused(e, t, kind, effect)
	case FactCompleted:
		return finished(t)
	case FactIncomplete:
		return Verdict{Row: "incomplete", Client: DeliverEvent}
	case FactFault:
		return fault(e, t, kind, effect)
	case FactEnded:
		if kind == outcome.TooLarge {
			return Verdict{Row: "too_large", Retire: true, Client: DeliverTooLarge}
		}
		return ended(e, t)
	case FactFirstEventTimeout:
		return silent(e, t)
	case FactIdleTimeout:
		if v, ok := wedged(e, t); ok {
			return v
		}
		return Verdict{Row: "idle", Retire: true, Client: DeliverIdle}
	case FactRequestTimeout:
		return Verdict{Row: "budget", Retire: e.Dispatched, Client: DeliverBudget}
	case FactDispatched, FactCreated, FactProgress, FactDelivered:
		return Verdict{Row: "unfinished", Retire: true, Client: DeliverCut}
	}
	return Verdict{Row: "unfinished", Retire: true, Client: DeliverCut}
}

func finished(t TurnState) Verdict {
	switch {
	case t.Duplicate:
		// The client's history lacks the call, so nothing can be built on it.
		return Verdict{Row: "duplicate", Retire: true, Client: DeliverDuplicate}
	case t.Prewarm:
		return Verdict{Row: "prewarm", Client: DeliverEvent}
	}
	return Verdict{Row: "completed", Settles: true, Anchor: AnchorReplaced, Client: DeliverEvent}
}

// wedged judges an attempt that showed life and was never created: how an
// account works on an anchor that it cannot resume. It proves more than a
// strike, and is none.
func wedged(e Evidence, t TurnState) (Verdict, bool) {
	if !e.Life || e.Created || t.Plan.Provenance != Injected {
		return Verdict{}, false
	}
	return Verdict{Row: "wedged", Anchor: AnchorWedges, Retire: true, Client: DeliverCut}, true
}

// dialFailed judges a turn that did not leave. All accounts of a pool are reached
// at one endpoint, so that one other is worth a try, and no more.
func dialFailed(t TurnState) Verdict {
	v := Verdict{Row: "not_sent", Retire: true, Client: DeliverConnect}
	switch {
	case !t.Redialed:
		v.Recovery = RecoverRedial
	case anyAccount(t.Plan) && !t.Moved:
		v.Recovery = RecoverOtherAccount
	}
	return v
}

// refused judges an upgrade that was answered with an HTTP error: nothing was
// sent, so every recovery is legal.
func refused(e Evidence, t TurnState, kind outcome.Kind, effect outcome.Effect) Verdict {
	v := Verdict{Row: "refused", Retire: true, Client: DeliverFault}
	switch {
	case e.Last.Fault == nil:
	case kind == outcome.NoWebSocket:
		v.Row, v.Recovery = "no_websocket", RecoverHTTP
	case effect.Retry == outcome.RetryOther:
		if anyAccount(t.Plan) {
			v.Recovery = elsewhere(effect)
		}
	case effect.Retry == outcome.RetryRedial && !t.Redialed:
		v.Recovery = RecoverRedial
	}
	return v
}

// elsewhere is the recovery of what was refused without being run.
func elsewhere(effect outcome.Effect) Recovery {
	if effect.Blame == outcome.BlameAccount {
		return RecoverOtherAccount
	}
	return RecoverAnyAccount
}

// fault judges an explicit failure: an error event or response.failed. What the
// upstream refuses before any work on the response, it has not run, if it says
// so.
func fault(e Evidence, t TurnState, kind outcome.Kind, effect outcome.Effect) Verdict {
	v := Verdict{Row: "fault", Client: DeliverFault}
	if e.Last.Fault == nil {
		return v
	}
	unrun := !e.Life && !e.Delivered
	switch kind {
	case outcome.AnchorDenied:
		return denied(unrun, t)
	case outcome.MissingToolOutput:
		v.Row = "missing_tool_output"
		if t.Plan.Provenance == Injected {
			// The client's history and the anchor's disagree; only the whole tells.
			v.Anchor = AnchorDies
			v.Recovery = whole(unrun, t)
		}
		return v
	case outcome.ConnectionLimit:
		v.Row, v.Retire = "connection_limit", true
		v.Recovery = whole(unrun, t)
		return v
	case outcome.AuthRejected, outcome.Entitlement, outcome.Forbidden, outcome.Deactivated, outcome.RateLimited,
		outcome.QuotaExhausted, outcome.ModelNotForAccount:
		v.Row = "account_fault"
		v.Retire = kind == outcome.AuthRejected
	case outcome.Overloaded, outcome.ModelAtCapacity, outcome.EdgeLimited:
		v.Row = "overloaded"
	case outcome.ServerError, outcome.Unavailable, outcome.ResponseFailed, outcome.UpgradeFailed:
		// It is left open whether the request ran; the next turn gets a new connection.
		v.Row, v.Retire = "upstream_fault", true
		if !e.Life {
			v.Strike = StrikeIncomplete
		}
	default: // the request's own fault
	}
	if effect.Retry == outcome.RetryOther && anyAccount(t.Plan) {
		v.Recovery = elsewhere(effect)
	}
	return v
}

// denied judges the upstream's word that it does not know the anchor. It did not
// run the request, so that a whole payload can go again at once.
func denied(unrun bool, t TurnState) Verdict {
	v := Verdict{Row: "denied", Anchor: AnchorDies, Client: DeliverFault}
	if t.Plan.Provenance != Injected {
		return v // the client named it, and the client can send its history
	}
	v.Client, v.Recovery = DeliverAnchorGone, whole(unrun, t)
	if !unrun {
		v.Row, v.Client = "denied_late", DeliverMasked
	}
	return v
}

// whole is the resend of a whole payload without its anchor, once a turn.
func whole(unrun bool, t TurnState) Recovery {
	if unrun && t.Plan.Whole && !t.Recovered {
		return RecoverWhole
	}
	return RecoverNone
}

func ended(e Evidence, t TurnState) Verdict {
	v := Verdict{Row: "cut", Retire: true, Client: DeliverCut}
	if !e.Dispatched {
		// The socket died under a turn that was not sent yet.
		v.Row, v.Client = "not_sent", DeliverConnect
		if !t.Redialed {
			v.Recovery = RecoverRedial
		}
		return v
	}
	cause := upstream.CauseAbrupt
	if e.Last.End != nil {
		cause = e.Last.End.Cause
	}
	switch cause {
	case upstream.CauseLocal:
		v.Row = "closed_here"
	case upstream.CauseLiveness:
		v.Row = "liveness"
	case upstream.CauseGarbage, upstream.CauseTooLarge:
		v.Row, v.Client = "garbage", DeliverGarbage
	case upstream.CauseAbrupt, upstream.CauseClean:
		return lost(e, t, cause)
	}
	return v
}

// lost judges a connection that the upstream ended without an answer.
func lost(e Evidence, t TurnState, cause upstream.Cause) Verdict {
	v := Verdict{Row: "cut", Retire: true, Client: DeliverCut}
	if w, ok := wedged(e, t); ok {
		return w
	}
	switch {
	case e.Life:
	case cause == upstream.CauseClean:
		v.Row, v.Strike = "clean_close", StrikeCleanClose
		if replayable(e, t) && t.CleanCloses < maxCleanCloses {
			v.Recovery = RecoverAfterPause
		}
	default:
		v.Row, v.Strike = "cut_eventless", StrikeIncomplete
	}
	return v
}

// silent judges an attempt without any event in time. Silence is how an account
// answers an anchor it does not know: a whole payload goes again without it,
// once. Any other attempt may be running, so that it is sent again only, and
// only once, where a second run costs nothing but upstream work.
func silent(e Evidence, t TurnState) Verdict {
	if w, ok := wedged(e, t); ok {
		return w
	}
	v := Verdict{Row: "silent", Retire: true, Client: DeliverSilence}
	if e.Life || !e.Dispatched {
		v.Row = "cut"
		return v
	}
	v.Strike = StrikeSilence
	switch {
	case t.Plan.Provenance == Injected:
		v.Recovery = whole(!e.Delivered, t)
	case replayable(e, t) && !t.Recovered:
		v.Recovery = RecoverOtherAccount
	}
	return v
}

// replayable says whether a second run of the turn would cost nothing but
// upstream work: it goes without an anchor, any account can run it, and no tool
// of it acts at the upstream.
func replayable(e Evidence, t TurnState) bool {
	return t.Plan.Provenance == Unanchored && t.Plan.Whole && t.Neutral && !e.Life && !e.Delivered
}

// anyAccount says whether another account may be asked. A turn that only its
// account can resolve is refused by the others without being run, so asking is
// legal for every whole payload; the first answer stands if all refuse.
func anyAccount(p Plan) bool { return p.Whole }
