package proxy

import (
	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/report"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// reported is what a report says of sessions. Turns that others serve for clients of
// this replica count as well: its end would cut them.
func reported(o session.Overview, relayed int) report.Sessions {
	s := report.Sessions{
		Active: o.Active, Draining: o.Draining + relayed, Quarantined: o.Quarantined, OldestTurn: o.OldestTurn, NotClosed: o.Open + o.HalfOpen,
	}
	for _, c := range o.Circuits {
		s.Circuits = append(s.Circuits, report.Circuit{Key: c.Key, HalfOpen: c.HalfOpen, Reason: c.Reason, Until: c.Until})
	}
	for _, q := range o.Quarantines {
		s.Quarantines = append(s.Quarantines, report.Quarantine{Key: q.Key, Reason: q.Reason, Until: q.Until})
	}
	return s
}

// reportedAccounts is what a report says of accounts.
func reportedAccounts(states []account.State) []report.Account {
	out := make([]report.Account, len(states))
	for i, a := range states {
		out[i] = report.Account{
			Name: a.Name, State: a.State, Reason: a.Reason, Since: a.Since, Until: a.Until, NextProbe: a.NextProbe,
			Inflight: a.Inflight, Generation: a.Generation,
		}
		for _, w := range a.Usage {
			out[i].Usage = append(out[i].Usage, report.Window{Name: w.Name, Length: w.Length, UsedPercent: w.Used, ResetsAt: w.ResetsAt})
		}
	}
	return out
}

// reportedLanes is what a report says of lanes.
func reportedLanes(states []bulkhead.State) []report.Lane {
	out := make([]report.Lane, len(states))
	for i, l := range states {
		out[i] = report.Lane{Lane: l.Lane.String(), Inflight: l.Inflight, Queued: l.Queued, Limit: l.Limits.MaxConcurrent}
	}
	return out
}

// watchSessions shows sessions in metrics.
func (p *process) watchSessions() {
	p.metrics.WatchSessions(func() telemetry.Sessions {
		o := p.bridge.Overview()
		return telemetry.Sessions{Active: o.Active, Draining: o.Draining, Quarantined: o.Quarantined}
	})
	p.metrics.WatchCircuits(func() (open, halfOpen int) {
		o := p.bridge.Overview()
		return o.Open, o.HalfOpen
	})
	p.metrics.WatchStore(p.bridge.StoreState)
}

// resetCircuits follows the user's wish to close all circuits, once for each
// value. Taking the value away and setting it again is no new wish. Records know
// which wish they have followed; a reload need not wake every session for that.
func (p *process) resetCircuits(rt *config.Runtime) {
	token := rt.Bundle.ResetCircuits
	if token == "" || token == p.reset {
		return
	}
	p.reset = token
	p.bridge.ResetCircuits(token)
	p.routes.Reset("annotation " + v1alpha1.AnnotationResetCircuits)
}

// forceCircuits follows the user's wishes of circuits that stay open or closed for
// a while.
func (p *process) forceCircuits(rt *config.Runtime) {
	var forces []circuit.Force
	states := map[string]circuit.State{bundle.CircuitOpen: circuit.Open, bundle.CircuitClosed: circuit.Closed}
	for _, f := range rt.Bundle.ForceCircuits {
		state, known := states[f.State]
		route, valid := circuit.ParseKey(f.Route)
		if !known || !valid {
			p.log.Error("Ignoring a forced circuit: it has no valid route or state", "route", f.Route, "state", f.State)
			continue
		}
		forces = append(forces, circuit.Force{Route: route, To: state, Until: f.Until})
	}
	p.routes.SetForces(forces, "annotation "+v1alpha1.AnnotationForceCircuits)
}
