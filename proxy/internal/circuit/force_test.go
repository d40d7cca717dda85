package circuit

import (
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// force asks for one state of a route; no other wish is left.
func (r *rig) force(key Key, to State, d time.Duration) {
	r.routes.SetForces([]Force{{Route: key, To: to, Until: r.clock.Now().Add(d).Round(0)}}, "alice")
}

func TestT16_ForcedOpen(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.force(route, Open, time.Minute)
	if hint := r.refuse("route_open").RetryAfter; hint != time.Minute {
		t.Errorf("hint %v", hint)
	}
	if s := r.status(); s.State != Open || !s.Forced || s.Reason != byForce {
		t.Errorf("%+v", s)
	}
	if s := r.log.String(); !strings.Contains(s, "audit=true") || !strings.Contains(s, "by=alice") {
		t.Errorf("no audit record: %s", s)
	}
	if s := r.routes.Snapshot(); len(s) != 0 {
		t.Errorf("a wish for this process went to others: %+v", s)
	}
	r.clock.step(30 * time.Second)
	r.force(route, Open, 30*time.Second) // the same end, read again
	if n := strings.Count(r.log.String(), "audit=true"); n != 1 {
		t.Errorf("%d audit records of one wish", n)
	}
	r.clock.step(30 * time.Second)
	r.ends(outcome.OK)
	r.is(Closed)
}

func TestT16_ForcedClosed(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.opens()
	r.force(route, Closed, 10*time.Second)
	for range 20 {
		r.ends(outcome.ServerError)
	}
	r.is(Closed)
	r.clock.step(10 * time.Second)
	r.is(Open) // still its first
	if s := r.status(); s.Opened != 1 || s.Forced || s.Reason != byRun {
		t.Errorf("%+v", s)
	}
}

func TestT16_WhatRunsWhileForcedCountsNowhere(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.ends(outcome.OK)
	r.force(route, Closed, 10*time.Second)
	for range 20 {
		r.ends(outcome.ConnectFailed)
	}
	r.clock.step(10 * time.Second)
	r.ends(outcome.ConnectFailed)
	r.is(Closed)
}

func TestT16_AWishThatIsTakenBackEnds(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.force(route, Open, time.Hour)
	r.refuse("route_open")
	r.routes.Reset("bob") // no wish against that one
	r.refuse("route_open")
	r.routes.SetForces(nil, "alice")
	r.ends(outcome.OK)
	r.is(Closed)
}

func TestT16_AHostMeansAllItsRoutes(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.ends(outcome.OK)
	r.force(Key{Host: route.Host}, Open, time.Hour)
	r.refuse("route_open")
	other := Key{Host: route.Host, Family: "codex-responses", Transport: "websocket"} // of which nothing is known yet
	if _, refusal := r.routes.Permit(other, "x"); refusal == nil {
		t.Error("another route of the host is open to turns")
	}
	if p, refusal := r.routes.Permit(Key{Host: "api.openai.com", Family: "responses", Transport: "http"}, "x"); refusal != nil {
		t.Error("another host is refused")
	} else {
		p.Neutral()
	}
	b := defaults()
	b.Scope = scopeProvider
	r = newRig(t, b, 3)
	r.force(route, Open, time.Hour)
	r.refuse("route_open") // the one circuit of its host
}

func TestT16_NoForceIsWithoutAnEnd(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for _, d := range []time.Duration{0, -time.Hour} {
		r.force(route, Open, d)
		r.ends(outcome.OK)
	}
	far := r.clock.Now().AddDate(10, 0, 0)
	for range 5 { // read again and again, as configurations change
		r.routes.SetForces([]Force{{Route: route, To: Open, Until: far}}, "alice")
		r.refuse("route_open")
		r.clock.step(MaxForce / 5)
	}
	r.ends(outcome.OK)
}

func TestT16_Reset(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.opens()
	r.routes.Reset("bob")
	r.is(Closed)
	if s := r.log.String(); !strings.Contains(s, "audit=true") || !strings.Contains(s, "by=bob") {
		t.Errorf("no audit record: %s", s)
	}
	r.opens()
	if n := r.status().Opened; n != 1 {
		t.Errorf("opened %d times in a row after a reset", n)
	}
}

func TestARouteThatIsNotClosedIsSeenByWhoRuns(t *testing.T) {
	r := newRig(t, defaults(), 3)
	early := r.permit("early")
	if !early.RouteClosed() {
		t.Error("a closed route is not")
	}
	r.opens()
	if early.RouteClosed() {
		t.Error("an open route is closed to who began before")
	}
	r.halfOpens()
	probe := r.permit("probe")
	if probe.RouteClosed() {
		t.Error("the route of a probe is closed")
	}
	probe.Done(outcome.OK, "a")
	r.ends(outcome.OK)
	r.is(Closed)
	if p := r.permit("late"); !p.RouteClosed() {
		t.Error("a route that has closed is not")
	}
}
