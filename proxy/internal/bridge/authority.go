package bridge

import (
	"context"
	"net/http"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/activation"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// Authority says whether this replica may admit new turns; activation.Gate does.
// It is safe for concurrent use.
type Authority interface {
	session.Authority
	Verdict() activation.Verdict
	// Changed is closed when Verdict may give another answer.
	Changed() <-chan struct{}
	// Enter takes a place to wait in.
	Enter(size int) (leave func(), ok bool)
}

// relayRetry is how soon a turn is offered again to a slot that did not take it.
const relayRetry = 200 * time.Millisecond

// byAuthority deals with a turn of a client that this replica may not serve: it
// waits until it may, or until a replica of the other slot has taken the turn. true
// = it was answered; otherwise it is to be served here.
func (b *Bridge) byAuthority(w http.ResponseWriter, r *http.Request, req *Request, t *session.Turn) bool {
	if b.authority == nil || req.Forwarded != nil {
		return false
	}
	if b.authority.Verdict().Mode == activation.Serve {
		return b.back(w, r, req, t)
	}
	// What builds on a response may live on a socket of this slot; it is served there
	// as long as the socket is.
	if b.sessions.Knows(t.Key, t.Client, req.Tail) {
		t.Stay = true
		return false
	}
	if req.Tail != "" && b.forward(w, r, req, t, b.owner(t)) {
		return true
	}
	began := time.Now()
	outcome, refusal, waited := b.await(w, r, req, t)
	b.metrics.TurnHeld(outcome, waited)
	switch outcome {
	case telemetry.HeldServed:
		return b.back(w, r, req, t)
	case telemetry.HeldRelayed:
		b.sessions.Yield(t.Key) // the conversation is the other slot's now
		return true             // which counts it
	case telemetry.HeldLate, telemetry.HeldFull, telemetry.HeldGone:
	}
	ended := telemetry.OutcomeCallerGone
	if refusal != nil {
		ended = telemetry.OutcomeRefused
		w.Header().Set("X-Request-Id", req.ID)
		refusal.WriteHTTP(w)
	}
	b.metrics.RequestDone(routeOf(req.Route), clientTransport(req), ended, time.Since(began))
	return true
}

// back offers a turn that builds on a response which nobody here knows to the
// replica of the other slot that may: without a store in common it is known there
// alone, and only while that slot drains. Who does not know it takes nothing.
func (b *Bridge) back(w http.ResponseWriter, r *http.Request, req *Request, t *session.Turn) bool {
	if req.Tail == "" || t.Owner.Known || !t.Key.Kind.Hard() || b.router == nil {
		return false
	}
	return b.router.Relay(w, r, req, t.Key)
}

// await waits for authority, here or there. waited does not count the time in which
// the other slot served the turn.
func (b *Bridge) await(w http.ResponseWriter, r *http.Request, req *Request, t *session.Turn) (
	outcome telemetry.Held, refusal *failure.Failure, waited time.Duration) {
	began := time.Now()
	end := time.NewTimer(patience(req))
	defer end.Stop()
	var leave func() // the place to wait in; nil = none is taken
	for {
		waited = time.Since(began)
		changed := b.authority.Changed()
		mode := b.authority.Verdict().Mode
		switch {
		case mode == activation.Serve:
			return telemetry.HeldServed, nil, waited
		case mode == activation.Relay && b.router != nil && b.router.Relay(w, r, req, t.Key):
			return telemetry.HeldRelayed, nil, waited
		}
		if leave == nil {
			var ok bool
			if leave, ok = b.authority.Enter(len(req.Body)); !ok {
				return telemetry.HeldFull, failure.New(failure.HoldFull,
					"Too many requests wait for the end of an upgrade.", failure.Dispatched(failure.DispatchNone)), waited
			}
			defer leave()
		}
		switch over := pause(r.Context(), changed, end.C); {
		case r.Context().Err() != nil:
			return telemetry.HeldGone, nil, waited
		case over:
			return telemetry.HeldLate, late(mode), waited
		}
	}
}

// late is what a client is told that has waited for too long.
func late(mode activation.Mode) *failure.Failure {
	if mode == activation.Relay {
		return failure.New(failure.SlotUnavailable,
			"The proxies that take new requests cannot be reached from here.", failure.Dispatched(failure.DispatchNone))
	}
	return failure.New(failure.HoldTimeout,
		"An upgrade took longer than requests may wait for it.", failure.Dispatched(failure.DispatchNone))
}

// pause returns true when the time is over, false when it is worth to look again.
func pause(ctx context.Context, changed <-chan struct{}, end <-chan time.Time) (over bool) {
	again := time.NewTimer(relayRetry)
	defer again.Stop()
	select {
	case <-end:
		return true
	case <-changed:
	case <-again.C:
	case <-ctx.Done():
	}
	return false
}

// patience is how long a turn waits for a hand-over.
func patience(req *Request) time.Duration {
	var hold time.Duration
	if a := req.Runtime.Bundle.Activation; a != nil {
		hold = time.Duration(a.HoldSeconds) * time.Second
	}
	if left, bounded := req.Budget.Remaining(time.Now()); bounded {
		hold = min(hold, left)
	}
	return hold
}

// Admits says whether this replica takes a turn of another one: it has authority,
// or it knows the response that the turn builds on (tail). Otherwise the session is
// given up as soon as it has no turn, so that whoever has authority can go on with it.
func (b *Bridge) Admits(key affinity.Key, client, tail string) bool {
	if b.authority == nil || b.authority.Verdict().Mode == activation.Serve || b.sessions.Knows(key, client, tail) {
		return true
	}
	if tail == "" {
		b.sessions.Yield(key)
	}
	return false
}
