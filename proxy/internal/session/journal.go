package session

import (
	"context"
	"errors"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// A client that sends an Idempotency-Key asks for more than a turn of a session
// gets by itself: however often the request comes, and to whichever replica, it is
// dispatched once. Its record is written before the first byte goes upstream and is
// kept for a day; what is not known to have ended is never run again.

// journalLife is how long the record of a keyed turn is kept.
const journalLife = 24 * time.Hour

// journalPatience is how long a keyed turn waits for its record to be written.
const journalPatience = 5 * time.Second

// errUnrecorded: the turn was not sent, because its record could not be written.
var errUnrecorded = errors.New("the turn's record cannot be written")

// Journaled is what happens to a keyed turn that came before.
type Journaled uint8

// Answers to a keyed turn.
const (
	JournalRun      Journaled = iota // it has failed by the upstream's own word
	JournalReplay                    // answer from the transcript
	JournalRunning                   // it runs now
	JournalUnknown                   // it may have run; nobody will know
	JournalConflict                  // the key belongs to another request
	JournalGone                      // it has ended, and the answer is not kept
)

// JudgeKeyed decides on a keyed turn with a body of this digest; live says that the
// earlier one still runs here.
func JudgeKeyed(e Earlier, body string, live bool) Journaled {
	switch {
	case e.Body != body:
		return JournalConflict
	case live:
		return JournalRunning
	case e.State == store.TurnCompleted, e.State == store.TurnIncomplete:
		if e.Complete {
			return JournalReplay
		}
		return JournalGone
	case e.State == store.TurnFailed:
		return JournalRun
	}
	return JournalUnknown
}

// journaled deals with a keyed turn that came before; false = it is to be run.
func (a *actor) journaled(f *flight) bool {
	e := a.earlier.find(f.turn.Fingerprint)
	running := a.sameKey(f)
	if running != nil {
		e = &Earlier{Turn: store.Turn{Body: running.turn.BodyDigest}}
	}
	if e == nil {
		return false
	}
	switch JudgeKeyed(*e, f.turn.BodyDigest, running != nil) {
	case JournalRun:
		return false
	case JournalReplay:
		a.recall(f)
	case JournalRunning:
		a.refuse(f, failure.New(failure.JournalInProgress, "A request with this Idempotency-Key is running; send it again later for its answer."))
	case JournalConflict:
		a.refuse(f, failure.New(failure.JournalConflict, "This Idempotency-Key was used for another request: use a new one.",
			failure.Param("idempotency-key")))
	case JournalUnknown:
		a.refuse(f, failure.New(failure.JournalUnknown,
			"The request with this Idempotency-Key was sent and its outcome will not be known; it is not sent twice. To run it again use a new key.",
			failure.Dispatched(failure.DispatchSent)))
	case JournalGone:
		a.refuse(f, failure.New(failure.JournalUnknown,
			"The request with this Idempotency-Key has ended and its answer was too large to keep. To run it again use a new key.",
			failure.Dispatched(failure.DispatchAcked)))
	}
	return true
}

// sameKey is the flight that has the same key, or nil.
func (a *actor) sameKey(f *flight) *flight {
	for _, other := range a.flights {
		if other != f && other.turn.Keyed && other.turn.Fingerprint == f.turn.Fingerprint && other.stage != stageRecalling {
			return other
		}
	}
	return nil
}

// keyedOutcome is Outcome for a keyed turn: a client that left does not make an
// answer unwanted that may have been paid for.
func keyedOutcome(e Evidence) store.TurnState {
	state := Outcome(e)
	switch {
	case e.Last.Kind == FactClientGone && e.Life:
		return store.TurnAcknowledged
	case e.Last.Kind == FactClientGone && e.Dispatched:
		return store.TurnUnknown
	case state == store.TurnFailed && e.Work:
		return store.TurnAcknowledged // it ran, and failed on the way
	}
	return state
}

// journal returns what has to be done before a turn is written: the record of a
// keyed one has to be in the store first. It may wait.
func (a *actor) journal(f *flight) func() error {
	if !f.turn.Keyed || a.services.Local {
		return func() error { return nil }
	}
	ctx, writer, key, lease := a.ctx, a.services.Writer, store.Key(a.key.Name()), a.own.lease
	return func() error {
		ctx, cancel := context.WithTimeout(ctx, journalPatience)
		defer cancel()
		if writer.Await(ctx, key) != nil || !writer.Healthy() || lease == nil || !lease.Valid() {
			return errUnrecorded
		}
		return nil
	}
}

// unrecorded ends a turn whose record could not be written; it was not sent.
func (a *actor) unrecorded(f *flight) {
	l := f.link
	l.remove(f)
	a.earlier.drop(f.turn.Fingerprint)
	a.dropTurn(f.turn.Fingerprint, f.recorded)
	a.settle(f, storeUnavailable())
	a.tidy(l)
}
