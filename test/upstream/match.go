package upstream

import (
	"bytes"
	"fmt"
	"sync"
)

// Transports as the ledger and a script name them.
const (
	TransportHTTP = "http"
	TransportWS   = "ws"
)

// Routes as a script names them.
const (
	RouteResponses = "responses"
	RouteUpgrade   = "upgrade"
	RouteModels    = "models"
	RouteUsage     = "usage"
	RouteOAuth     = "oauth"
	RouteOther     = "other"
)

// facts are what a rule can look at.
type facts struct {
	account, route, path, transport, model, session, anchor string
	turn                                                    int
	body                                                    []byte
	anchored, prewarm                                       bool
}

func (m Match) fits(f facts, atUpgrade bool) bool {
	route := m.Route
	if route == "" {
		route = RouteResponses
		if atUpgrade {
			route = RouteUpgrade
		}
	}
	return (route == f.route || route == f.path) &&
		same(m.Account, f.account) && same(m.Transport, f.transport) && same(m.Model, f.model) && same(m.Session, f.session) && same(m.Anchor, f.anchor) &&
		(m.Turn == 0 || m.Turn == f.turn) &&
		(m.Anchored == nil || *m.Anchored == f.anchored) &&
		(m.Prewarm == nil || *m.Prewarm == f.prewarm) &&
		(m.InputContains == "" || bytes.Contains(f.body, []byte(m.InputContains)))
}

func same(want, got string) bool { return want == "" || want == got }

// director holds the script in force and how far its rules are used up.
type director struct {
	mu     sync.Mutex
	script Script
	seen   []int // matches per rule, for nth
	used   []int // answers per rule, for repeat
}

func (d *director) set(s Script) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.script, d.seen, d.used = s, make([]int, len(s.Rules)), make([]int, len(s.Rules))
}

func (d *director) get() Script {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.script
}

// pick finds the rule for a request and uses up one of its repeats; refund
// gives that back if the rule came to nothing.
func (d *director) pick(f facts) (rule *Rule, refund func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.script.Rules {
		r := &d.script.Rules[i]
		if !r.Match.fits(f, r.Fault != nil && r.Fault.At == AtUpgrade) {
			continue
		}
		d.seen[i]++
		if (r.Match.Nth != 0 && r.Match.Nth != d.seen[i]) || (r.Repeat > 0 && d.used[i] >= r.Repeat) {
			continue
		}
		d.used[i]++
		found := *r
		if found.Name == "" {
			found.Name = fmt.Sprintf("rule %d", i+1)
		}
		used := d.used
		return &found, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			used[i]--
		}
	}
	return nil, func() {}
}
