package session

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// Turns that only their anchor gives a meaning cannot simply be run again: the
// first run may have been billed, may have acted, and may be running. Their
// records say what became of them when the client sends the same request once
// more. A whole payload needs none: running it again is what its client asks for.

// unknownPatience is how long the outcome of a turn is waited for whose
// connection is gone: nothing can come of it any more, but the upstream may
// still be working on it.
const unknownPatience = time.Minute

// Earlier is a turn that was sent before under the same fingerprint.
type Earlier struct {
	store.Turn
	// Begun is when its last attempt was sent.
	Begun time.Time
}

// Again is what happens to a turn that was sent before.
type Again uint8

// Answers to an identical turn.
const (
	AgainRun    Again = iota // run it
	AgainReplay              // answer from the transcript
	AgainWait                // its outcome is not known yet
	AgainGone                // its outcome will never be known: start from the whole conversation
)

// JudgeAgain decides; live says that the earlier turn still runs here, and stored
// that the response it builds on is kept by its account, so that it can be built
// on twice. The time is how long to wait.
func JudgeAgain(e Earlier, live, stored bool, now time.Time) (Again, time.Duration) {
	switch {
	case live:
		return AgainWait, time.Second
	case e.State == store.TurnCompleted, e.State == store.TurnIncomplete:
		switch {
		case e.Delivered:
			return AgainRun, 0 // the client has the answer, so that it wants another
		case e.Complete:
			return AgainReplay, 0
		case stored:
			return AgainRun, 0
		}
		// The anchor has moved on to an answer that the client cannot have.
		return AgainGone, 0
	case e.State.Final():
		return AgainRun, 0
	}
	if wait := e.Begun.Add(unknownPatience).Sub(now); wait > 0 {
		return AgainWait, wait
	}
	if stored {
		return AgainRun, 0
	}
	return AgainGone, 0
}

// Outcome is what the record of a turn says after an attempt; empty = it was
// never sent, so that there is nothing to record.
func Outcome(e Evidence) store.TurnState {
	switch e.Last.Kind {
	case FactCompleted:
		return store.TurnCompleted
	case FactIncomplete:
		return store.TurnIncomplete
	case FactFault:
		return store.TurnFailed
	case FactClientGone:
		// Its client ended it. When the client sends it again, it wants it again.
		if e.Dispatched {
			return store.TurnFailed
		}
		return ""
	case FactDialFailed, FactRefused, FactNotSent:
		return ""
	default:
	}
	switch {
	case !e.Dispatched:
		return ""
	case e.Life:
		return store.TurnAcknowledged
	}
	return store.TurnUnknown
}

// earlierTurns are the recorded turns of a session, the newest last.
type earlierTurns struct{ turns []Earlier }

// maxEarlier bounds them, as the store does.
const maxEarlier = store.MaxTurns

func (t *earlierTurns) find(fingerprint string) *Earlier {
	for i := range t.turns {
		if t.turns[i].Fingerprint == fingerprint {
			return &t.turns[i]
		}
	}
	return nil
}

func (t *earlierTurns) put(e Earlier) {
	if old := t.find(e.Fingerprint); old != nil {
		*old = e
		return
	}
	t.turns = append(t.turns, e)
	if len(t.turns) > maxEarlier {
		t.turns = t.turns[1:]
	}
}

func (t *earlierTurns) drop(fingerprint string) {
	for i := range t.turns {
		if t.turns[i].Fingerprint == fingerprint {
			t.turns = append(t.turns[:i], t.turns[i+1:]...)
			return
		}
	}
}

// load takes over what another process left: what it had not finished will never
// end.
func (t *earlierTurns) load(turns []store.Turn, now time.Time) {
	for _, stored := range turns {
		if stored.State == store.TurnSubmitted {
			stored.State = store.TurnUnknown
		}
		t.put(Earlier{Turn: stored, Begun: now.Add(-stored.Age)})
	}
}

// answeredBefore deals with a turn that was sent before; false = it is to be run.
func (a *actor) answeredBefore(f *flight) bool {
	if f.turn.Keyed {
		return a.journaled(f)
	}
	e := a.earlier.find(f.turn.Fingerprint)
	if e == nil || f.turn.Fingerprint == "" {
		return false
	}
	answer, wait := JudgeAgain(*e, a.running(f.turn.Fingerprint), f.turn.Owner.Stored, a.now())
	switch answer {
	case AgainReplay:
		a.recall(f)
	case AgainWait:
		a.refuse(f, unknownOutcome(wait))
	case AgainGone:
		a.earlier.drop(f.turn.Fingerprint)
		a.dropTurn(f.turn.Fingerprint, e.Attempt)
		a.refuse(f, anchorGone("abandoned"))
	case AgainRun:
		return false
	}
	return true
}

// sentMeanwhile refuses a turn whose like was sent while it waited: when it was
// admitted neither had been. Sent again later, it gets the answer of that one.
func (a *actor) sentMeanwhile(f *flight) *failure.Failure {
	e := a.earlier.find(f.turn.Fingerprint)
	if f.dispatches > 0 || f.turn.Keyed || e == nil || f.turn.Fingerprint == "" {
		return nil
	}
	switch answer, wait := JudgeAgain(*e, a.running(f.turn.Fingerprint), f.turn.Owner.Stored, a.now()); answer {
	case AgainRun:
		return nil
	case AgainGone:
		return anchorGone("abandoned")
	case AgainReplay, AgainWait:
		return unknownOutcome(max(wait, time.Second))
	}
	return nil
}

func unknownOutcome(wait time.Duration) *failure.Failure {
	return failure.New(failure.OutcomeUnknown,
		"The same request was sent before and its outcome is not known yet; it is not sent twice.",
		failure.Reason("outcome_unknown"), failure.After(wait))
}

func (a *actor) running(fingerprint string) bool {
	for _, f := range a.flights {
		if f.turn.Fingerprint == fingerprint && f.recorded > 0 {
			return true
		}
	}
	return false
}

// recordTurn begins the record of a turn that is sent now.
func (a *actor) recordTurn(f *flight) {
	if !a.own.valid() || f.plan.Whole && !f.turn.Keyed || f.turn.Fingerprint == "" {
		return
	}
	f.recorded = 1
	if e := a.earlier.find(f.turn.Fingerprint); e != nil {
		f.recorded = e.Attempt + 1
	}
	f.spool = spool{}
	f.turn.recorded.Store(true)
	a.putTurn(f, store.Turn{State: store.TurnSubmitted}, f.sent)
}

// recordOutcome notes how an attempt of a recorded turn ended.
func (a *actor) recordOutcome(f *flight, e Evidence) {
	if f.recorded == 0 {
		return
	}
	state := Outcome(e)
	if f.turn.Keyed {
		state = keyedOutcome(e)
	}
	if state == "" {
		a.earlier.drop(f.turn.Fingerprint)
		a.dropTurn(f.turn.Fingerprint, f.recorded)
		return
	}
	complete := f.spool.flush(a, f) && (state == store.TurnCompleted || state == store.TurnIncomplete)
	a.putTurn(f, store.Turn{State: state, ResponseID: f.responseID, Complete: complete}, f.sent)
}

func (a *actor) putTurn(f *flight, t store.Turn, begun time.Time) {
	t.Fingerprint, t.ID, t.Attempt = f.turn.Fingerprint, f.turn.ID, f.recorded
	if f.turn.Keyed {
		t.Body = f.turn.BodyDigest
	}
	a.earlier.put(Earlier{Turn: t, Begun: begun})
	if a.own.valid() {
		a.services.Writer.PutTurn(a.own.held, t, f.turn.recordLife())
	}
}

// recordLife is how long the turn's record and its transcript are kept.
func (t *Turn) recordLife() time.Duration {
	if t.Keyed {
		return journalLife
	}
	return turnLife
}

func (a *actor) dropTurn(fingerprint string, attempt int) {
	if a.own.valid() {
		a.services.Writer.DropTurn(a.own.held, fingerprint, attempt)
	}
}

// turnLife is how long a turn record and its transcript are kept: a client that
// lost its connection comes back within minutes.
const turnLife = time.Hour

// delivered: the client got the whole answer, so that nothing is kept for it.
func (a *actor) delivered(t *Turn) {
	e := a.earlier.find(t.Fingerprint)
	if t.Keyed || e == nil || e.ID != t.ID || !e.State.Final() {
		return
	}
	a.dropTurn(t.Fingerprint, e.Attempt)
	a.earlier.drop(t.Fingerprint)
}
