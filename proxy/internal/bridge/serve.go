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
	t := b.turn(req)
	detach := b.sessions.Submit(t)
	defer detach()
	// The session alone keeps the body, and only as long as it may send it again.
	req.Body = nil
	s := &serving{bridge: b, req: req, turn: t, start: start, route: routeOf(req.Route)}
	var outcome telemetry.Outcome
	if req.Stream {
		s.transport = telemetry.TransportSSE
		outcome = s.stream(r.Context(), w)
	} else {
		s.transport = telemetry.TransportJSON
		outcome = s.collect(r.Context(), w)
	}
	b.metrics.RequestDone(s.route, s.transport, outcome, time.Since(start))
}

func routeOf(r Route) telemetry.Route {
	if r == RouteCodex {
		return telemetry.RouteCodexResponses
	}
	return telemetry.RouteResponses
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
		s.bridge.metrics.FirstEvent(s.route, s.transport, time.Since(s.start))
	}
}

// stream relays the turn as server-sent events.
func (s *serving) stream(ctx context.Context, w http.ResponseWriter) telemetry.Outcome {
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
				return telemetry.OutcomeCallerGone
			}
			if batch.Ended {
				return s.endStream(w, out, batch.Failure)
			}
		case <-hold.C:
			if out.open() != nil {
				return telemetry.OutcomeCallerGone
			}
		case <-keepalive.C:
			wait, err := out.keepalive(every)
			if err != nil {
				return telemetry.OutcomeCallerGone
			}
			keepalive.Reset(wait)
		case <-ctx.Done():
			return telemetry.OutcomeCallerGone
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
func (s *serving) collect(ctx context.Context, w http.ResponseWriter) telemetry.Outcome {
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
			if batch.Ended {
				return s.answer(w, &c, batch.Failure)
			}
		case <-ctx.Done():
			return telemetry.OutcomeCallerGone
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
	case failure.QueueTimeout, failure.NoAccounts, failure.OwnerUnavailable, failure.Draining:
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
