package session

import (
	"slices"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Provenance says who put the anchor into a request. It is never lost over
// retries: a denial means something else for each.
type Provenance uint8

// Provenances of an anchor.
const (
	Unanchored Provenance = iota
	ClientSupplied
	Injected
)

func (p Provenance) String() string { return [...]string{"none", "client", "injected"}[p] }

// Owner is what is known of the anchor that a client supplied.
type Owner struct {
	// Known says that this proxy relayed the response to this client.
	Known bool
	// Foreign says that it was relayed to another client: it is treated as an id
	// that does not exist.
	Foreign bool
	// MayPass says that an unknown id cannot belong to anybody else, so that the
	// upstream may judge it.
	MayPass bool
	Key     affinity.Key
	Account string
	// Connection is the socket it was made on; 0 = it was not made on a socket.
	Connection uint64
	// Stored says that the account keeps the response beyond its socket.
	Stored bool
}

// Target is where an attempt is about to go.
type Target struct {
	Account string
	// Connection is the generation of the socket; 0 = an HTTP request.
	Connection uint64
	Scope      upstream.Scope
}

// Question is all that the planner looks at.
type Question struct {
	Facts  affinity.Facts
	Hard   bool // whether the session key promises continuity
	Owner  Owner
	Pin    Pin
	Record Record
	Target Target
	// Whole says that this turn must go without an anchor: one was denied or
	// went silent already.
	Whole bool
	// Unowned says that another replica may own the key: what the record knows may
	// be old.
	Unowned bool
}

// Plan is how a turn is sent.
type Plan struct {
	Class      affinity.Class
	Anchor     string
	Provenance Provenance
	// From is the first input item that is sent; items before it are covered by
	// the anchor.
	From int
	// Whole says that the turn can also be sent without its anchor.
	Whole bool
	// Answers are made for tool calls that the client left without an output:
	// their types and ids, sent before the turn's own input.
	Answers []Answer
}

// Answer is the output that the proxy gives for an interrupted tool call.
type Answer struct{ Type, CallID string }

// Needs is where a turn has to go, judged before an account is taken.
type Needs struct {
	// Only is the one account that can serve it; empty = any.
	Only string
	// Prefer is the account that knows the conversation.
	Prefer string
	// Connection is the one socket that can serve it; 0 = any.
	Connection uint64
	// Ordered says that the turn builds on the session's last response and waits
	// for the turn before it; any other turn can run beside it.
	Ordered bool
}

// known is what the record's anchor knows, or nil.
func (q Question) known() *affinity.Known {
	if q.Record.Anchor == nil {
		return nil
	}
	return &q.Record.Anchor.Known
}

func (q Question) clientAnchor() bool { return q.Facts.PreviousResponseID != "" }

// Route says what q needs. It does not look at q.Target.
func Route(q Question) (Needs, *failure.Failure) {
	needs, refusal := route(q)
	if refusal != nil {
		return needs, refusal
	}
	return q.Pin.bind(needs, q.clientAnchor())
}

func route(q Question) (Needs, *failure.Failure) {
	needs := Needs{Prefer: q.Record.Account}
	switch {
	case q.clientAnchor():
		return routeClientAnchor(q, needs)
	case q.Facts.HasConversation:
		return needs, nil
	}
	class, _ := affinity.Classify(q.Facts.Input, q.known())
	if class == affinity.ClassDelta && q.Unowned {
		return needs, storeUnavailable()
	}
	if class != affinity.ClassDelta || !q.Hard || q.Record.Anchor == nil {
		return needs, nil // it is whole, or nothing is known that could complete it
	}
	a := q.Record.Anchor
	if a.Status == AnchorDead {
		return needs, anchorGone("anchor_dead")
	}
	return Needs{Only: a.Account, Prefer: a.Account, Connection: a.Connection, Ordered: true}, nil
}

func routeClientAnchor(q Question, needs Needs) (Needs, *failure.Failure) {
	needs.Ordered = true
	if slices.Contains(q.Record.Health.Denied, q.Facts.PreviousResponseID) {
		return needs, anchorGone("anchor_dead") // the upstream has said so
	}
	switch {
	case q.Owner.Foreign, !q.Owner.Known && !q.Owner.MayPass:
		return needs, anchorGone("anchor_unknown")
	case !q.Owner.Known:
		return needs, nil
	}
	needs.Only, needs.Prefer = q.Owner.Account, q.Owner.Account
	if a := q.Record.Anchor; a.is(q.Facts.PreviousResponseID) {
		if a.Status == AnchorDead && !q.Owner.Stored {
			return needs, anchorGone("anchor_dead")
		}
		if a.Account != q.Owner.Account && !q.Unowned {
			return needs, ownerConflict()
		}
	}
	if !q.Owner.Stored {
		needs.Connection = q.Owner.Connection
	}
	return needs, nil
}

// anchorGone tells a client to send its whole history again: the one exit that
// loses nothing. The id itself is not repeated.
func anchorGone(reason string) *failure.Failure {
	return failure.New(failure.PreviousResponseNotFound,
		"Previous response not found: send the whole conversation again without previous_response_id.",
		failure.Param("previous_response_id"), failure.Reason(reason))
}

// Make plans one attempt. It is called last, when account and connection are
// known, and is the only place that injects an anchor or trims.
func Make(q Question) (Plan, *failure.Failure) {
	if refusal := place(q); refusal != nil {
		return Plan{}, refusal
	}
	class, from := affinity.Classify(q.Facts.Input, q.known())
	p := Plan{
		Class: class,
		Whole: q.Facts.Input.SelfContained() && !q.clientAnchor() && !q.Facts.HasConversation,
	}
	switch {
	case q.clientAnchor():
		p.Anchor, p.Provenance = q.Facts.PreviousResponseID, ClientSupplied
	case q.Facts.HasConversation:
	case class == affinity.ClassDelta:
		var refusal *failure.Failure
		if p, refusal = completeDelta(q, p); refusal != nil {
			return Plan{}, refusal
		}
	case class == affinity.ClassFullProved && !q.Whole && reachable(q, AnchorGood):
		p.Anchor, p.Provenance, p.From = q.Record.Anchor.ResponseID, Injected, from
	}
	p.Answers = interrupted(q, p)
	return p, nil
}

// interrupted are the tool calls of the anchor that the turn leaves without an
// output. The upstream refuses to go on without them; a client leaves them out
// when its user stopped a tool.
func interrupted(q Question, p Plan) []Answer {
	a := q.Record.Anchor
	if p.Anchor == "" || q.Unowned || !a.is(p.Anchor) || !q.Facts.Input.List {
		return nil
	}
	var answers []Answer
	for _, out := range a.Known.Outputs {
		if out.Role == affinity.RoleCall && out.CallID != "" && answerable(out.Type) && !q.Facts.Input.Answers(out.CallID, p.From) {
			answers = append(answers, Answer{Type: out.Type + "_output", CallID: out.CallID})
		}
	}
	return answers
}

// answerable says whether the client gives the output of a call of this type;
// hosted tools have theirs already.
func answerable(callType string) bool {
	switch callType {
	case "function_call", "custom_tool_call", "apply_patch_call":
		return true
	}
	return false
}

// place refuses a target that cannot serve the turn.
func place(q Question) *failure.Failure {
	needs, refusal := Route(q)
	if refusal != nil {
		return refusal
	}
	if needs.Only != "" && needs.Only != q.Target.Account {
		return failure.New(failure.OwnerUnavailable, "The account that holds this conversation is not available; retry later.")
	}
	if needs.Connection != 0 && needs.Connection != q.Target.Connection && q.Target.Scope == upstream.ScopeConnection {
		return anchorGone("connection_gone")
	}
	return nil
}

// completeDelta gives a delta its anchor. On a session that promises nothing, or
// that knows nothing, it goes as it is: the client may know more.
func completeDelta(q Question, p Plan) (Plan, *failure.Failure) {
	if !q.Hard || q.Record.Anchor == nil {
		return p, nil
	}
	if !reachable(q, AnchorSuspect) {
		return Plan{}, anchorGone("connection_gone")
	}
	p.Anchor, p.Provenance = q.Record.Anchor.ResponseID, Injected
	return p, nil
}

// reachable says whether the record's anchor resolves at the target and is no
// worse than worst.
func reachable(q Question, worst AnchorStatus) bool {
	a := q.Record.Anchor
	if a == nil || q.Unowned || a.Status > worst || a.Account != q.Target.Account {
		return false
	}
	if q.Target.Scope == upstream.ScopeConnection {
		return a.Connection != 0 && a.Connection == q.Target.Connection
	}
	return true
}
