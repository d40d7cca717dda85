package session

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// A panic is a fault of ours, and one session's: it ends with all of its turns, and
// the others go on. What the panic says may quote anything and is not logged; its
// type and place are.

// broken ends a session whose code broke beside its actor.
type broken struct{}

// survive turns a panic of the actor into the end of its session. It is deferred
// by whoever runs the actor.
func (a *actor) survive() {
	if v := recover(); v != nil {
		a.logPanic(v)
		a.fail()
	}
}

func (a *actor) logPanic(v any) {
	a.log().Error("Recovered from a panic; the session ends", "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
}

// fail ends all turns. Nothing is judged: what broke may be the judging. The key is
// free for a new session at once.
func (a *actor) fail() {
	a.lost = true
	a.registry.lose(a)
	for _, f := range slices.Concat(a.arriving, a.flights) {
		f.turn.Out.end(ownFault())
		f.stage = stageSettled
		if f.cancel != nil {
			f.cancel()
		}
		if f.permit != nil {
			f.permit.Neutral()
		}
		if f.lease != nil {
			f.lease.Release()
		}
	}
	a.arriving, a.flights = nil, nil
}

func ownFault() *failure.Failure {
	return failure.New(failure.InternalError, "The proxy failed to serve this request; its outcome is unknown.",
		failure.Dispatched(failure.DispatchSent))
}

// lose takes a session out of the table, whatever it was doing.
func (r *Registry) lose(a *actor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.sessions[a.key]; e != nil && e.actor == a {
		r.removeLocked(e)
	}
	delete(r.unwell, a)
}
