package bridge

import (
	"context"
	"net/http"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// ServeTurn serves one turn and writes the whole response. When it returns, the
// session knows whether the client is still there.
func (b *Bridge) ServeTurn(w http.ResponseWriter, r *http.Request, req *Request) {
	start := time.Now()
	b.metrics.ClientBytes(telemetry.Received, len(req.Body))
	s := &serving{bridge: b, req: req, start: start, route: routeOf(req.Route), transport: clientTransport(req)}
	t, refusal := b.turn(r.Context(), req)
	if refusal != nil {
		w.Header().Set("X-Request-Id", req.ID)
		refusal.WriteHTTP(w)
		b.metrics.RequestDone(s.route, s.transport, outcomeOf(refusal), time.Since(start))
		return
	}
	if b.byAuthority(w, r, req, t) {
		return
	}
	if b.handOver(w, r, req, t) {
		b.sessions.Yield(t.Key)
		return // the owner counts it
	}
	if req.Return {
		defer b.sessions.Yield(t.Key)
	}
	outcome, elsewhere := s.serve(r.Context(), w, t)
	if elsewhere != "" {
		if b.forward(w, r, req, t, elsewhere) {
			return
		}
		// The owner does not take it, and nothing was done for it: it is served
		// here as far as that is possible without the session's record.
		stay := b.again(t, req)
		outcome, _ = s.serve(r.Context(), w, stay)
	}
	b.metrics.RequestDone(s.route, s.transport, outcome, time.Since(start))
}

// owner is the peer address of the replica that should hold the session of t;
// empty = this one. Of a replica that leaves, others take every turn.
func (b *Bridge) owner(t *session.Turn) string {
	if b.router == nil || t.Stay || !t.Key.Kind.Hard() && !b.leaving() {
		return ""
	}
	return b.router.Owner(t.Key)
}

// handOver sends a turn to the replica that should hold its session; if it is not
// there, to the next in line, where other replicas send the conversation's next
// turns. false = it is to be served here.
func (b *Bridge) handOver(w http.ResponseWriter, r *http.Request, req *Request, t *session.Turn) bool {
	if b.leaving() && b.sessions.Knows(t.Key, t.Client, req.Tail) {
		return false // what it builds on goes with this replica
	}
	first := b.owner(t)
	if b.forward(w, r, req, t, first) {
		return true
	}
	next := b.owner(t)
	return next != first && b.forward(w, r, req, t, next)
}

// forward sends a turn to a peer; false = it is to be served here.
func (b *Bridge) forward(w http.ResponseWriter, r *http.Request, req *Request, t *session.Turn, address string) bool {
	return address != "" && b.router != nil && b.router.Forward(w, r, req, t.Key, address)
}

// again is a turn that was answered with the address of another replica, to be
// served here after all.
func (b *Bridge) again(t *session.Turn, req *Request) *session.Turn {
	return &session.Turn{ID: t.ID, Client: t.Client, Key: t.Key, Header: t.Header, Body: req.Body, Facts: t.Facts, Runtime: t.Runtime,
		Owner: t.Owner, Pin: t.Pin, TurnState: t.TurnState, Echoed: t.Echoed, Transport: t.Transport,
		Fingerprint: t.Fingerprint, Keyed: t.Keyed, BodyDigest: t.BodyDigest,
		Stay: true, Lane: t.Lane, Limits: t.Limits, Budget: t.Budget, Out: session.NewOutbox()}
}

// serve hands the turn to its session and relays the answer, unless another
// replica has the session.
func (s *serving) serve(ctx context.Context, w http.ResponseWriter, t *session.Turn) (outcome telemetry.Outcome, elsewhere string) {
	s.turn = t
	detach := s.bridge.sessions.Submit(t)
	defer detach()
	if s.req.Stream {
		outcome, elsewhere = s.stream(ctx, w)
	} else {
		outcome, elsewhere = s.collect(ctx, w)
	}
	if outcome == telemetry.OutcomeOK && elsewhere == "" {
		s.bridge.sessions.Delivered(t)
	}
	return outcome, elsewhere
}

func routeOf(r Route) telemetry.Route {
	if r == RouteCodex {
		return telemetry.RouteCodexResponses
	}
	return telemetry.RouteResponses
}

func clientTransport(req *Request) telemetry.Transport {
	switch {
	case req.Socket != "":
		return telemetry.TransportWebSocket
	case req.Stream:
		return telemetry.TransportSSE
	}
	return telemetry.TransportJSON
}

// serving is one turn in its handler.
type serving struct {
	bridge    *Bridge
	req       *Request
	turn      *session.Turn
	start     time.Time
	route     telemetry.Route
	transport telemetry.Transport
	seenFirst bool
}

// firstEvent notes the time of the first event of the response.
func (s *serving) firstEvent() {
	if !s.seenFirst {
		s.seenFirst = true
		s.req.Body = nil // the session alone keeps it, and only as long as it may send it again
		s.bridge.metrics.FirstEvent(s.route, s.transport, time.Since(s.start))
	}
}

// stream relays the turn as server-sent events.
func (s *serving) stream(ctx context.Context, w http.ResponseWriter) (outcome telemetry.Outcome, elsewhere string) {
	out := newEventStream(w, isCodex(s.req))
	out.commit = func(h http.Header) { responseHeader(h, s.req, s.turn) }
	defer func() { s.bridge.metrics.ClientBytes(telemetry.Sent, out.bytes) }()
	hold := time.NewTimer(s.bridge.hold)
	defer hold.Stop()
	every := s.turn.Runtime.Deadlines.Keepalive
	keepalive := time.NewTimer(max(every, time.Second))
	defer keepalive.Stop()
	s.bridge.metrics.StreamOpened()
	defer s.bridge.metrics.StreamClosed()
	var spent []upstream.Event
	for {
		select {
		case <-s.turn.Out.Ready():
			batch := s.turn.Out.Take(spent)
			if len(batch.Events) > 0 {
				s.firstEvent()
			}
			err := out.events(batch.Events)
			spent = batch.Events
			if err != nil {
				return telemetry.OutcomeCallerGone, ""
			}
			if batch.Ended && batch.Elsewhere != "" && !out.committed {
				return telemetry.OutcomeRefused, batch.Elsewhere
			}
			if batch.Ended {
				return s.endStream(w, out, batch.Failure), ""
			}
		case <-hold.C:
			if out.open() != nil {
				return telemetry.OutcomeCallerGone, ""
			}
		case <-keepalive.C:
			wait, err := out.keepalive(every)
			if err != nil {
				return telemetry.OutcomeCallerGone, ""
			}
			keepalive.Reset(wait)
		case <-ctx.Done():
			return telemetry.OutcomeCallerGone, ""
		}
	}
}

// endStream writes the one terminal event that is still missing, or nothing.
func (s *serving) endStream(w http.ResponseWriter, out *eventStream, f *failure.Failure) telemetry.Outcome {
	if f == nil {
		return telemetry.OutcomeOK
	}
	if !out.committed {
		responseHeader(w.Header(), s.req, s.turn)
		f.WriteHTTP(w)
		return outcomeOf(f)
	}
	if out.failed(f, s.req.ID, time.Now()) != nil {
		return telemetry.OutcomeCallerGone
	}
	return outcomeOf(f)
}

// collect waits for the end and answers with one JSON body. Nothing is sent
// before, so that every failure keeps its status.
func (s *serving) collect(ctx context.Context, w http.ResponseWriter) (outcome telemetry.Outcome, elsewhere string) {
	c := collector{}
	var spent []upstream.Event
	for {
		select {
		case <-s.turn.Out.Ready():
			batch := s.turn.Out.Take(spent)
			if len(batch.Events) > 0 {
				s.firstEvent()
			}
			for i := range batch.Events {
				c.add(&batch.Events[i])
			}
			spent = batch.Events
			if batch.Ended && batch.Elsewhere != "" {
				return telemetry.OutcomeRefused, batch.Elsewhere
			}
			if batch.Ended {
				return s.answer(w, &c, batch.Failure), ""
			}
		case <-ctx.Done():
			return telemetry.OutcomeCallerGone, ""
		}
	}
}

func (s *serving) answer(w http.ResponseWriter, c *collector, f *failure.Failure) telemetry.Outcome {
	responseHeader(w.Header(), s.req, s.turn)
	if f != nil {
		f.WriteHTTP(w)
		return outcomeOf(f)
	}
	body := c.response()
	if body == nil {
		f := failure.New(failure.StreamIncomplete, "The upstream ended the response without its result.")
		f.WriteHTTP(w)
		return outcomeOf(f)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	n, err := w.Write(body)
	s.bridge.metrics.ClientBytes(telemetry.Sent, n)
	if err != nil {
		return telemetry.OutcomeCallerGone
	}
	if gjson.GetBytes(body, "status").Str == "failed" {
		return telemetry.OutcomeUpstreamError
	}
	return telemetry.OutcomeOK
}

// outcomeOf counts a failure.
func outcomeOf(f *failure.Failure) telemetry.Outcome {
	switch f.Code {
	case failure.QueueTimeout, failure.BulkheadFull, failure.NoAccounts, failure.OwnerUnavailable, failure.Draining,
		failure.CircuitOpen, failure.OutcomeUnknown, failure.InstanceMismatch, failure.StoreUnavailable:
		return telemetry.OutcomeRefused
	case failure.EventlessTimeout, failure.StreamIdleTimeout:
		return telemetry.OutcomeTimeout
	case failure.StreamIncomplete, failure.UpstreamProtocol:
		return telemetry.OutcomeTruncated
	case failure.UpstreamConnect:
		return telemetry.OutcomeConnect
	case failure.InternalError:
		return telemetry.OutcomeInternal
	}
	switch {
	case f.Status == http.StatusTooManyRequests:
		return telemetry.OutcomeLimited
	case f.Status < http.StatusInternalServerError:
		return telemetry.OutcomeCallerError
	}
	return telemetry.OutcomeUpstreamError
}
