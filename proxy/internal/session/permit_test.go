package session

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

type noMetrics struct{}

func (noMetrics) RouteChanged(string, string) {}
func (noMetrics) RouteRefused(string)         {}
func (noMetrics) RouteInconclusive(string)    {}

// quickBreaker opens after two failures, for ten seconds.
var quickBreaker = bundle.Breaker{Scope: "Route", ConsecutiveFailures: 2, WindowSeconds: 60, MinSamples: 1000, FailurePercent: 100,
	MinDistinctAccounts: 1, MinDistinctCallers: 1, OpenSeconds: 10, MaxOpenSeconds: 10, HalfOpenMaxCalls: 1, SuccessThreshold: 1, ProbeVerdictSeconds: 5,
	CountedFailures: []string{"ConnectFailure", "TLSFailure", "Status5xx", "FirstEventTimeout", "ProtocolError"}}

// inRoutes is a bench with a circuit of the route.
func inRoutes(t *testing.T, f func(b *bench, routes *circuit.Routes)) {
	t.Helper()
	inRoutesHearing(t, nil, f)
}

// inRoutesHearing is inRoutes with someone who hears what accounts are told.
func inRoutesHearing(t *testing.T, heard *listening, f func(b *bench, routes *circuit.Routes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		routes := circuit.New(circuit.Options{Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler), Metrics: noMetrics{}})
		routes.Update(quickBreaker, 1)
		o := setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a"}, firstEvent: 120, services: func(s *Services) {
			s.Routes = routes
			if heard != nil {
				heard.Registry = s.Accounts.(*account.Registry)
				s.Accounts = heard
			}
		}}
		b := newBenchOf(t, o)
		defer b.end()
		f(b, routes)
	})
}

func (b *bench) cut(thread string) {
	a := b.ask(thread, body)
	b.in(errReset)
	a.take()
}

func state(r *circuit.Routes) string {
	for _, s := range r.States() {
		return s.State.String()
	}
	return "none"
}

// T01: the next turn is refused at once, without a dispatch, and with a hint.
func TestT01_AnOpenRouteTakesNoTurn(t *testing.T) {
	inRoutes(t, func(b *bench, routes *circuit.Routes) {
		b.cut("one")
		b.cut("two")
		before := b.sent()
		a := b.ask("three", body)
		batch := a.Out.Take(nil)
		if f := batch.Failure; f == nil || f.Code != failure.RouteOpen || f.Status != http.StatusServiceUnavailable || f.RetryAfter <= 0 || f.RetryAfter > 12*time.Second {
			t.Fatalf("%+v", batch.Failure)
		}
		if b.sent() != before || b.inflight() != 0 || b.registry.Counts().Active != 0 || b.counts.of("suppressed route_open") != 1 {
			t.Fatalf("%d requests, %v", b.sent()-before, b.counts.rows)
		}
		if d := b.detail("three"); d.Strikes != 0 {
			t.Fatalf("the session is blamed: %+v", d)
		}
	})
}

// T06, T07: one probe at a time, and its first event decides.
func TestT07_TheFirstEventOfAProbeCloses(t *testing.T) {
	inRoutes(t, func(b *bench, routes *circuit.Routes) {
		b.cut("one")
		b.cut("two")
		pass(15 * time.Second)
		probe := b.ask("three", body)
		conn := b.newest()
		if other := b.ask("four", body).code(); other != failure.RouteOpen {
			t.Fatalf("T06: beside the probe: %q", other)
		}
		conn.play(created("r1"))
		synctest.Wait()
		if got := state(routes); got != "closed" {
			t.Fatalf("%s after the probe's first event", got)
		}
		conn.play(completed("r1"))
		synctest.Wait()
		expect(t, probe, "created completed", true, "")
	})
}

// T09: a probe whose client leaves gives its place to the next.
func TestT09_AProbesClientLeaves(t *testing.T) {
	inRoutes(t, func(b *bench, routes *circuit.Routes) {
		b.cut("one")
		b.cut("two")
		pass(15 * time.Second)
		b.ask("three", body).detach()
		pass(2 * time.Second)
		before := b.sent()
		b.ask("four", body)
		if b.sent() != before+1 {
			t.Fatalf("the next turn is not let through; the route is %s", state(routes))
		}
	})
}

// What breaks while the route is known to be broken says nothing about an account,
// neither a probe nor what began before.
func TestABrokenRouteBlamesNoAccount(t *testing.T) {
	heard := &listening{}
	inRoutesHearing(t, heard, func(b *bench, routes *circuit.Routes) {
		early := b.ask("early", body)
		other := b.newest()
		b.cut("one")
		b.cut("two")
		told := len(heard.told)
		if told != 2 {
			t.Fatalf("told %q, want the two cuts that opened the route", heard.told)
		}
		other.in <- errReset
		early.take()
		pass(15 * time.Second)
		b.cut("probe")
		if got := state(routes); got != "open" || len(heard.told) != told {
			t.Fatalf("route %s, then told %q", got, heard.told[told:])
		}
	})
}

// T15: sockets that end while nothing runs are nobody's failure.
func TestT15_IdleClosesAreNoSamples(t *testing.T) {
	inRoutes(t, func(b *bench, routes *circuit.Routes) {
		for i := range 5 {
			b.anchored(string(rune('a' + i)))
			b.in(errReset)
		}
		if got := state(routes); got != "closed" {
			t.Fatal(got)
		}
		b.cut("one")
		if got := state(routes); got != "closed" {
			t.Fatalf("one failure: %s", got)
		}
	})
}

// A plan that is refused at the last moment leaves the route as it was.
func TestARefusalAtTheLastMomentIsNeutral(t *testing.T) {
	inRoutes(t, func(b *bench, routes *circuit.Routes) {
		b.cut("one")
		b.cut("two")
		pass(15 * time.Second)
		// A delta on nothing that is known goes as it is; make it one that is refused:
		// its circuit of the key is open.
		b.cutTurn("k", body) // the probe fails: the route opens again
		pass(15 * time.Second)
		before := b.sent()
		b.ask("five", body)
		if b.sent() != before+1 {
			t.Fatal("no probe was let through")
		}
	})
}

// T03: what ends by the caller's own deadline says nothing about anybody.
func TestT03_ACallersDeadlineIsNeutral(t *testing.T) {
	inRoutes(t, func(b *bench, routes *circuit.Routes) {
		limits := deadline.For(b.runtime.Bundle.Circuit.Deadlines, 30*time.Second, deadline.Text, true)
		header := http.Header{deadline.TimeoutHeader: {"50"}}
		for range 10 {
			budget, err := deadline.NewBudget(header.Get, true, limits, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			a := b.askFor("slow", body, budget)
			pass(time.Second)
			batch := a.Out.Take(nil)
			if f := batch.Failure; f == nil || f.DeadlineKind != string(deadline.FirstEvent) || f.DeadlineSource != string(deadline.Caller) || f.RetryAfter != 0 {
				t.Fatalf("%+v", f)
			}
			a.detach()
		}
		if got, d := state(routes), b.detail("slow"); got != "closed" || d.Strikes != 0 {
			t.Fatalf("route %s, %+v", got, d)
		}
		if s := b.accounts.States()[0]; s.State != account.Usable {
			t.Fatalf("%+v", s)
		}
	})
}

// The operator's own limit of a whole turn says whose it was, too.
func TestARequestTimeoutNamesItsDeadline(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		limits := deadline.For(bundle.Deadlines{RequestSeconds: 7, FirstEventSeconds: 120, IdleSeconds: 300}, time.Second, deadline.Text, true)
		budget, _ := deadline.NewBudget(http.Header{}.Get, true, limits, time.Now())
		a := b.askFor("t", body, budget)
		b.in(created("r1"), text)
		pass(8 * time.Second)
		batch := a.Out.Take(nil)
		if f := batch.Failure; f == nil || f.DeadlineKind != string(deadline.Total) || f.DeadlineSource != string(deadline.Operator) {
			t.Fatalf("%+v", f)
		}
	})
}

// T32: a turn keeps its place in the lane until its client has the last byte.
func TestT32_AStreamKeepsItsPlaceUntilTheLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenchOf(t, ofAll("a", "b"))
		defer b.end()
		places := func() int {
			for _, l := range b.accounts.Lanes() {
				if l.Lane == bulkhead.HTTP {
					return l.Inflight
				}
			}
			return -1
		}
		a := b.ask("t", body)
		b.in(created("r1"), text, completed("r1"))
		if places() != 1 || b.inflight() != 0 {
			t.Fatalf("%d places, %d accounts: the upstream has ended, the client reads", places(), b.inflight())
		}
		a.take()
		a.detach()
		if places() != 0 {
			t.Fatal("the client has its last byte, and the place is not free")
		}
		a.detach() // as often as anybody likes
		gone := b.ask("u", body)
		gone.detach()
		pass(2 * time.Second)
		if places() != 0 || b.inflight() != 0 {
			t.Fatalf("a client that left: %d places, %d accounts", places(), b.inflight())
		}
		other := b.ask("v", body) // to another account, with the place that it has
		b.in(`{"type":"error","status":429,"error":{"code":"rate_limit_exceeded","message":"x"}}`)
		if places() != 1 || b.inflight() != 1 {
			t.Fatalf("after a change of the account: %d places, %d accounts", places(), b.inflight())
		}
		other.detach()
	})
}

// A client that leaves while its turn waits for an account leaves no place taken.
func TestAPlaceThatComesTooLateIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenchOf(t, ofAll("a"))
		defer b.end()
		lease, err := b.accounts.Acquire(context.Background(), account.Want{})
		if err != nil {
			t.Fatal(err)
		}
		var p lanePlace
		p.leave()
		p.take(lease.Permit())
		lease.Release()
		for _, l := range b.accounts.Lanes() {
			if l.Inflight != 0 {
				t.Fatalf("%+v", l)
			}
		}
	})
}
