package circuit

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

// defaults is the built-in profile.
func defaults() bundle.Breaker {
	return bundle.Breaker{
		Scope: "Route", ConsecutiveFailures: 5, WindowSeconds: 60, MinSamples: 20, FailurePercent: 50,
		MinDistinctAccounts: 2, MinDistinctCallers: 2, OpenSeconds: 15, MaxOpenSeconds: 300,
		HalfOpenMaxCalls: 1, SuccessThreshold: 2, ProbeVerdictSeconds: 30,
		CountedFailures: []string{"ConnectFailure", "TLSFailure", "Status5xx", "FirstEventTimeout", "ProtocolError"},
	}
}

type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type counts struct {
	mu                    sync.Mutex
	changes               map[string]int
	refused, inconclusive int
}

func (c *counts) RouteChanged(_, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes[to]++
}

func (c *counts) RouteRefused(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused++
}

func (c *counts) RouteInconclusive(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inconclusive++
}

// rig is a registry with one route in use.
type rig struct {
	*testing.T
	routes  *Routes
	clock   *fakeClock
	metrics *counts
	log     *bytes.Buffer
	n       int
}

var route = Key{Host: "chatgpt.com", Family: "codex-responses", Transport: "http"}

func newRig(t *testing.T, b bundle.Breaker, accounts int) *rig {
	r := &rig{T: t, clock: &fakeClock{now: time.Unix(1_800_000_000, 0)}, metrics: &counts{changes: map[string]int{}}, log: &bytes.Buffer{}}
	r.routes = New(Options{Clock: r.clock, Salt: 7, Log: slog.New(slog.NewTextHandler(r.log, nil)), Metrics: r.metrics})
	r.routes.Update(b, accounts)
	return r
}

func (r *rig) permit(caller string) *Permit {
	r.Helper()
	p, refusal := r.routes.Permit(route, caller)
	if refusal != nil {
		r.Fatalf("refused: %v", refusal)
	}
	return p
}

// refuse expects a refusal.
func (r *rig) refuse(reason string) *failure.Failure {
	r.Helper()
	p, refusal := r.routes.Permit(route, "x")
	if refusal == nil {
		p.Neutral()
		r.Fatal("not refused")
	}
	if refusal.Status != 503 || refusal.Code != failure.RouteOpen || refusal.Reason != reason {
		r.Fatalf("refused with %d %v, want reason %s", refusal.Status, refusal, reason)
	}
	return refusal
}

// ends lets one attempt of the next of two callers at the next of two accounts
// end.
func (r *rig) ends(k outcome.Kind) {
	r.Helper()
	r.n++
	r.permit(fmt.Sprint("caller", r.n%2)).Done(k, fmt.Sprint("account", r.n%2))
}

// opens lets the circuit open.
func (r *rig) opens() {
	r.Helper()
	for range 5 {
		r.ends(outcome.ServerError)
	}
	r.is(Open)
}

func (r *rig) status() Status {
	for _, s := range r.routes.States() {
		if s.Key == route.String() {
			return s
		}
	}
	return Status{}
}

func (r *rig) is(want State) {
	r.Helper()
	if got := r.status().State; got != want {
		r.Fatalf("circuit is %v, want %v", got, want)
	}
}

// remaining is how long an open circuit stays so.
func (r *rig) remaining() time.Duration { return r.status().Until.Sub(r.clock.Now()) }

// halfOpens waits until a probe is let through.
func (r *rig) halfOpens() {
	r.Helper()
	r.clock.step(r.remaining())
	r.is(HalfOpen)
}
