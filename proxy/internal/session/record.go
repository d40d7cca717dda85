// Package session owns conversations: one actor per session key, which holds
// the key's record, its upstream connection and its turns. What it decides is
// decided by pure functions over plain values (Make, Decide, Apply); the actor
// only carries it out.
package session

import (
	"slices"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// AnchorStatus is what is known of an anchor. It belongs to the anchor's
// identity and never improves with time: only a new response makes a new one.
type AnchorStatus uint8

const (
	// AnchorGood: the response completed here.
	AnchorGood AnchorStatus = iota
	// AnchorSuspect: attempts with it wedged or went silent. A full payload goes
	// without it; a delta keeps it, since it has nothing else.
	AnchorSuspect
	// AnchorDead: the upstream denied it, its socket is gone, or it failed or
	// wedged once more after it had become suspect.
	AnchorDead
)

var anchorStatusNames = [...]string{"good", "suspect", "dead"}

func (s AnchorStatus) String() string { return anchorStatusNames[s] }

// AnchorCause says why an anchor is not good, in one word.
type AnchorCause string

// Causes. The last two are no failures.
const (
	CauseDenied     AnchorCause = "AnchorDenied"   // the upstream does not know it
	CauseWedged     AnchorCause = "Wedged"         // the upstream worked on it and created no response
	CauseEventless  AnchorCause = "Eventless"      // silence
	CauseOpened     AnchorCause = "CircuitOpened"  // the circuit opened while it was in use
	CauseConfirmed  AnchorCause = "FailedAgain"    // and it failed once more
	CauseConnection AnchorCause = "ConnectionGone" // it went with its socket
	CauseAccount    AnchorCause = "OtherAccount"   // the session moved to another account
)

// Anchor is a response that later turns can build on.
type Anchor struct {
	ResponseID string
	Account    string
	// Connection is the generation of the socket it lives on; 0 = any connection
	// of the account resolves it.
	Connection uint64
	Status     AnchorStatus
	// Cause and Since say why and since when it is not good.
	Cause AnchorCause
	Since time.Time
	// Known is the conversation up to and including the response.
	Known affinity.Known
}

// Record is all that survives of a session between its turns.
type Record struct {
	// Account is where the conversation lives: the preferred account of the next
	// turn, and the owner of the anchor.
	Account string
	// Model is the model of the session's lane; a socket serves one model.
	Model  string
	Anchor *Anchor
	Health Health
	// Version rises with every change.
	Version   int64
	UpdatedAt time.Time
}

// Quarantined says whether the session has an anchor that full payloads do not
// use because it failed. An anchor that merely went with its socket or account
// is no failure.
func (r Record) Quarantined() bool {
	return r.Anchor != nil && r.Anchor.Status != AnchorGood && r.Anchor.Cause != CauseConnection && r.Anchor.Cause != CauseAccount
}

// Event is something that happened to a session. Exactly one field is set.
type Event struct {
	// Sent is an attempt that goes out now.
	Sent *Sent
	// Completed replaces the anchor by a new, good one and settles the circuit.
	Completed *Completed
	// Denied is an anchor that the upstream does not know.
	Denied string
	// Wedged is an attempt that showed life without ever being created.
	Wedged *Wedged
	// Struck is an attempt that failed without any sign of life.
	Struck *Struck
	// ConnectionGone is the generation of a socket that ended.
	ConnectionGone uint64
	// Moved says that the record came from another process: what lived on that
	// process' sockets is gone.
	Moved bool
	// Probe is about the token of the half-open circuit.
	Probe *ProbeEvent
	// Reset is the token of a user's wish to close the circuit.
	Reset string
}

// Sent says where an attempt goes.
type Sent struct{ Account, Model string }

// Completed is the end of a response that later turns can build on.
type Completed struct {
	// Anchor is the new anchor; nil = nothing can be built on the response, and
	// the turn alone proves that the key works.
	Anchor *Anchor
	// Sequence is the attempt's number in the record; see Health.Sequence.
	Sequence int64
}

// Wedged says which anchor wedged which socket.
type Wedged struct {
	Anchor     string
	Generation uint64
}

// Struck is a strike: the evidence that one attempt adds.
type Struck struct {
	// Attempt identifies it; the same attempt never strikes twice. Turn is the turn
	// it belongs to, whose probe ends with it.
	Attempt, Turn string
	Sequence      int64
	Class         StrikeClass
	// Anchor that was sent; empty = none.
	Anchor string
	// Spared says that the anchor was the proxy's own and the payload does not
	// need it: it is suspect at once.
	Spared bool
	Policy Policy
}

// Apply is the only way a record changes. It never changes its argument, and a
// record that an event says nothing new about comes back as it was.
func Apply(r Record, e Event, now time.Time) Record {
	next, changed := r, true
	switch {
	case e.Sent != nil:
		next = applySent(r, *e.Sent, now)
	case e.Completed != nil:
		next = applyCompleted(r, *e.Completed)
	case e.Denied != "":
		next, changed = applyDenied(r, e.Denied, now)
	case e.Wedged != nil:
		next, changed = applyWedged(r, *e.Wedged, now)
	case e.Struck != nil:
		next, changed = applyStruck(r, *e.Struck, now)
	case e.ConnectionGone != 0:
		next.Anchor = r.Anchor.marked(AnchorDead, CauseConnection, now, r.Anchor.on(e.ConnectionGone))
		changed = next.Anchor != r.Anchor
	case e.Moved:
		next, changed = applyMoved(r, now)
	case e.Probe != nil:
		next.Health, changed = r.Health.probe(*e.Probe, now)
	case e.Reset != "":
		next.Health, changed = r.Health.reset(e.Reset)
	default:
		changed = false
	}
	if !changed {
		return r
	}
	next.Version, next.UpdatedAt = r.Version+1, now
	return next
}

func applySent(r Record, s Sent, now time.Time) Record {
	next := r
	next.Account, next.Model = s.Account, s.Model
	next.Health.Sequence++
	// An anchor of another account is never sent again from here.
	next.Anchor = r.Anchor.marked(AnchorDead, CauseAccount, now, r.Anchor != nil && r.Anchor.Account != s.Account)
	return next
}

func applyCompleted(r Record, c Completed) Record {
	next := r
	if c.Anchor != nil {
		anchor := *c.Anchor
		anchor.Status, anchor.Cause, anchor.Since = AnchorGood, "", time.Time{}
		next.Anchor, next.Account = &anchor, anchor.Account
	}
	if r.Health.StruckSequence <= c.Sequence {
		next.Health = r.Health.settled(c.Sequence)
	}
	return next
}

// applyMoved forgets what meant something in another process only.
func applyMoved(r Record, now time.Time) (Record, bool) {
	next := r
	next.Anchor = r.Anchor.marked(AnchorDead, CauseConnection, now, r.Anchor != nil && r.Anchor.Connection != 0)
	next.Health.MinGeneration = 0
	return next, next.Anchor != r.Anchor || r.Health.MinGeneration != 0
}

// applyDenied remembers the id whoever named it. Strikes that were all made with
// it are settled: their cause is gone.
func applyDenied(r Record, id string, now time.Time) (Record, bool) {
	next := r
	next.Anchor = r.Anchor.marked(AnchorDead, CauseDenied, now, r.Anchor.is(id))
	if !slices.Contains(r.Health.Denied, id) {
		next.Health.Denied = lastFew(r.Health.Denied, id)
	} else if next.Anchor == r.Anchor {
		return r, false
	}
	if r.Health.Strikes > 0 && r.Health.Blamed == id {
		next.Health = next.Health.settled(r.Health.StruckSequence)
	}
	return next, true
}

// applyWedged makes the anchor suspect, and dead when it wedges another socket:
// a delta keeps a suspect anchor, and would wedge on it for ever.
func applyWedged(r Record, w Wedged, now time.Time) (Record, bool) {
	status, cause := AnchorSuspect, CauseWedged
	if r.Anchor.is(w.Anchor) && r.Anchor.Status == AnchorSuspect && w.Generation >= r.Health.MinGeneration {
		status, cause = AnchorDead, CauseConfirmed
	}
	next := r
	next.Anchor = r.Anchor.marked(status, cause, now, r.Anchor.is(w.Anchor))
	next.Health.MinGeneration = max(r.Health.MinGeneration, w.Generation+1)
	return next, next.Anchor != r.Anchor || next.Health.MinGeneration != r.Health.MinGeneration
}

// applyStruck counts a strike, once an attempt, and not after a later attempt
// has proved that the key works.
func applyStruck(r Record, s Struck, now time.Time) (Record, bool) {
	h := r.Health
	if slices.Contains(h.Struck, s.Attempt) || s.Sequence <= h.Cleared {
		return r, false
	}
	next := r
	next.Health = h.struck(s, now)
	opened := next.Health.Strikes >= s.Policy.Threshold
	anchor := r.Anchor.is(s.Anchor)
	switch {
	case !anchor || !s.Class.poisons():
	case opened && r.Anchor.Status == AnchorSuspect:
		next.Anchor = r.Anchor.marked(AnchorDead, CauseConfirmed, now, true)
	case opened:
		next.Anchor = r.Anchor.marked(AnchorSuspect, CauseOpened, now, true)
	case s.Class == StrikeSilence && (s.Spared || next.Health.Eventless >= s.Policy.Eventless):
		next.Anchor = r.Anchor.marked(AnchorSuspect, CauseEventless, now, true)
	}
	return next, true
}

func (a *Anchor) id() string {
	if a == nil {
		return ""
	}
	return a.ResponseID
}

// is says whether the anchor has this id; a missing anchor has none.
func (a *Anchor) is(id string) bool { return a != nil && id != "" && a.ResponseID == id }

// on says whether the anchor lives on this socket.
func (a *Anchor) on(generation uint64) bool { return a != nil && a.Connection == generation }

// marked lowers the status if the condition holds; a status never rises.
func (a *Anchor) marked(status AnchorStatus, cause AnchorCause, now time.Time, condition bool) *Anchor {
	if a == nil || !condition || a.Status >= status {
		return a
	}
	marked := *a
	marked.Status, marked.Cause, marked.Since = status, cause, now
	return &marked
}

// fewIDs bounds the ids that a record remembers.
const fewIDs = 8

func lastFew(ids []string, id string) []string {
	ids = append(slices.Clone(ids), id)
	return ids[max(0, len(ids)-fewIDs):]
}
