package server

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// Paths with a meaning of their own; every other path under platformPrefix is
// passed through.
const (
	platformPrefix    = "/v1"
	platformResponses = "/v1/responses"
	platformModels    = "/v1/models"
	codexResponses    = "/backend-api/codex/responses"
	codexModels       = "/backend-api/codex/models"
)

// call is one request on its way through the server.
type call struct {
	w     *answer
	r     *http.Request
	rt    *config.Runtime
	id    string
	start time.Time
	// label is the route as metrics and logs name it.
	label telemetry.Route
	// client is the name of the client's key.
	client string
	// account is the name of the account that served it; empty = none.
	account string
}

// route is one row of the table of paths.
type route struct {
	label   telemetry.Route
	methods []string
	serve   func(*Server, *call)
	// socket serves a WebSocket; nil = there is none here.
	socket func(*Server, *call)
}

// routeOf finds the route of a decoded path. A final slash means nothing.
func routeOf(path string) (route, bool) {
	switch strings.TrimSuffix(path, "/") {
	case platformResponses:
		return route{telemetry.RouteResponses, []string{http.MethodPost}, (*Server).platformTurn, (*Server).platformSocket}, true
	case codexResponses:
		return route{telemetry.RouteCodexResponses, []string{http.MethodPost}, (*Server).codexTurn, (*Server).codexSocket}, true
	case platformModels:
		return route{telemetry.RouteModels, []string{http.MethodGet}, (*Server).models, nil}, true
	case codexModels:
		return route{telemetry.RouteCodexModels, []string{http.MethodGet}, (*Server).models, nil}, true
	case platformPrefix:
		return route{}, false
	}
	if strings.HasPrefix(path, platformPrefix+"/") && !climbs(path) {
		return route{telemetry.RoutePassThrough, passedMethods, (*Server).passThrough, (*Server).refuseSocket}, true
	}
	return route{}, false
}

// passedMethods leaves out TRACE, whose answer would show the account's
// credential, and CONNECT, which opens a tunnel.
var passedMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// climbs says whether a path could leave the endpoint's own when the upstream
// resolves it: the account's credential must not be sent elsewhere.
func climbs(path string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '\\' }),
		func(segment string) bool { return segment == "." || segment == ".." })
}

// ServeHTTP serves the data port.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	upgrade := r.Method == http.MethodGet && r.ProtoMajor == 1 && isWebSocket(r.Header)
	if !upgrade { // of a WebSocket, its turns count
		defer s.live.Begin()()
	}
	c := &call{w: newAnswer(w, s.stallTime), r: r, rt: s.runtime.Load(), id: requestID(r.Header), start: time.Now()}
	defer c.w.stall.finish()
	defer s.recovered(c)
	if s.Draining() || s.leaving != nil && s.leaving() {
		c.w.Header().Set("Connection", "close")
	}
	c.w.Header().Set(requestIDHeader, c.id)
	stripPeerHeaders(r.Header)
	found, ok := routeOf(r.URL.Path)
	c.label = found.label
	switch {
	case !ok:
		s.refuse(c, failure.New(failure.NotFound, "This proxy does not serve the requested path."))
	case upgrade && found.socket != nil:
		found.socket(s, c)
	case !slices.Contains(found.methods, r.Method):
		c.w.Header().Set("Allow", strings.Join(found.methods, ", "))
		s.refuse(c, failure.New(failure.MethodNotAllowed, "This path is served for "+strings.Join(found.methods, ", ")+" only."))
	case !s.authenticate(c):
		s.unauthorized(c)
	default:
		found.serve(s, c)
	}
}

const unknownKey = "The client key is missing or unknown: send one that the BridgePolicy lists, as Authorization: Bearer <key>."

// refuse answers a request whose body has not been read.
func (s *Server) refuse(c *call, f *failure.Failure) {
	s.intake.Discard(c.w, c.r)
	f.WriteHTTP(c.w)
}

// refuseSocket comes before authentication: the key is judged with the request that
// follows over HTTP.
func (s *Server) refuseSocket(c *call) {
	s.refuse(c, failure.New(failure.UpgradeRequired, "WebSocket is not served on this path: send requests over HTTP."))
}

func (s *Server) platformSocket(c *call) { s.serveSocket(c, bridge.RouteV1) }

func (s *Server) codexSocket(c *call) { s.serveSocket(c, bridge.RouteCodex) }

// unauthorized refuses a request without a known key.
func (s *Server) unauthorized(c *call) {
	c.w.Header().Set("WWW-Authenticate", "Bearer")
	s.refuse(c, failure.New(failure.InvalidAPIKey, unknownKey))
	s.done(c, telemetry.OutcomeUnauthorized)
}

func (s *Server) platformTurn(c *call) {
	s.turn(c, bridge.RouteV1, intake.Form{})
}

func (s *Server) codexTurn(c *call) {
	s.turn(c, bridge.RouteCodex, intake.Form{StreamOnly: true})
}

func (s *Server) turn(c *call, family bridge.Route, form intake.Form) {
	body, err := s.intake.Read(c.w, c.r)
	var shape intake.Shape
	if err == nil {
		shape, err = intake.Check(body, form)
	}
	var budget deadline.Budget
	if err == nil {
		budget, err = c.budget(shape.Stream)
	}
	if err != nil {
		failure.From(err).WriteHTTP(c.w)
		s.done(c, telemetry.OutcomeCallerError)
		return
	}
	// Header and body agree from here on.
	c.r.Header.Del("Content-Encoding")
	s.turns.ServeTurn(c.w, c.r, &bridge.Request{
		ID: c.id, Route: family, Client: c.client, Header: c.r.Header, Body: body, Stream: shape.Stream, Runtime: c.rt,
		Budget: budget,
	})
}

// budget is the time that the turn has in all, from its arrival, and tells the
// client if that is less than it asked for.
func (c *call) budget(stream bool) (deadline.Budget, error) {
	limits := deadline.For(c.rt.Bundle.Circuit.Deadlines, 0, deadline.Text, stream)
	budget, err := deadline.NewBudget(c.r.Header.Get, stream, limits, c.start)
	if err != nil {
		return budget, failure.New(failure.InvalidRequest, "The deadline makes no sense: "+err.Error()+".",
			failure.Param(strings.ToLower(deadline.TimeoutHeader)))
	}
	if budget.Clamped {
		c.w.Header().Set(deadline.ClampedHeader, "1")
	}
	return budget, nil
}

// done counts and logs a request that the server itself has answered.
func (s *Server) done(c *call, outcome telemetry.Outcome) {
	took := time.Since(c.start)
	s.metrics.RequestDone(c.label, telemetry.TransportHTTP, outcome, took)
	s.log.Debug("Served request", "route", c.label.String(), "status", c.w.status, "outcome", outcome.String(),
		"client", c.client, "account", c.account, "request", c.id, "took", took)
}

// recovered turns a panic into an honest end of this request alone: an error if
// nothing was sent, a last event if a stream was between two events, a broken
// connection otherwise. The panic's value may quote anything and is not logged; its
// type and place are.
func (s *Server) recovered(c *call) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v) // net/http's own way to break a connection
	}
	s.log.Error("Recovered from a panic", "request", c.id, "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
	s.metrics.RequestDone(c.label, telemetry.TransportHTTP, telemetry.OutcomeInternal, time.Since(c.start))
	f := failure.New(failure.InternalError, "The proxy failed to serve this request.", failure.Reason("panic"))
	switch {
	case c.w.status == 0:
		c.w.Header().Set("Connection", "close")
		f.WriteHTTP(c.w)
	case c.w.betweenEvents():
		_, _ = fmt.Fprintf(c.w, "event: response.failed\ndata: %s\n\n", f.Event(c.id, -1, time.Now()))
		c.w.Flush()
	default:
		panic(http.ErrAbortHandler)
	}
}
