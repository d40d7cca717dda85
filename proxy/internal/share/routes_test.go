package share

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

var route = circuit.Key{Host: "chatgpt.com", Family: "codex-responses", Transport: "http"}

type noMetrics struct{}

func (noMetrics) RouteChanged(string, string) {}
func (noMetrics) RouteRefused(string)         {}
func (noMetrics) RouteInconclusive(string)    {}

// proxy is a process with its circuits.
type proxy struct {
	*world
	t      *testing.T
	routes *circuit.Routes
	e      *Exchanger
}

func (w *world) proxy(t *testing.T, name string) *proxy {
	r := circuit.New(circuit.Options{Clock: fixed{w}, Log: slog.New(slog.DiscardHandler), Metrics: noMetrics{}})
	r.Update(bundle.Breaker{
		ConsecutiveFailures: 5, WindowSeconds: 60, MinSamples: 20, FailurePercent: 50, OpenSeconds: 100, MaxOpenSeconds: 300,
		HalfOpenMaxCalls: 1, SuccessThreshold: 1, ProbeVerdictSeconds: 10, CountedFailures: []string{"ConnectFailure"},
	}, 1)
	e := New(Options{Board: w.board, Sources: []Source{NewRoutes(r, name, w.now)}, Clock: fixed{w}})
	return &proxy{w, t, r, e}
}

func (p *proxy) exchange() {
	p.t.Helper()
	if err := p.e.exchange(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
}

// fail lets n attempts fail as they do if nothing can be reached.
func (p *proxy) fail(n int) {
	p.t.Helper()
	for i := range n {
		permit, refusal := p.routes.Permit(route, fmt.Sprint("client", i))
		if refusal != nil {
			p.t.Fatal(refusal)
		}
		permit.Done(outcome.ConnectFailed, fmt.Sprint("account", i))
	}
}

func (p *proxy) is(state circuit.State, left time.Duration) {
	p.t.Helper()
	for _, s := range p.routes.States() {
		if s.Key == route.String() {
			if got := s.Until.Sub(p.now); s.State != state || left > 0 && (got < left-time.Second || got > left+time.Second) {
				p.t.Fatalf("%s for %s, want %s for %s", s.State, got, state, left)
			}
			return
		}
	}
	if state != circuit.Closed {
		p.t.Fatalf("closed, want %s", state)
	}
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func TestScenarioT13_ANewProcessStartsWithWhatWasOpen(t *testing.T) {
	t.Run("for the time that is left", func(t *testing.T) {
		w := newWorld(0)
		old := w.proxy(t, "old")
		old.exchange()
		old.fail(5)
		left := old.routes.Snapshot()[0].Until.Sub(w.now)
		old.exchange()
		w.pass(20 * time.Second)
		fresh := w.proxy(t, "new")
		fresh.exchange()
		fresh.is(circuit.Open, left-20*time.Second)
		if _, refusal := fresh.routes.Permit(route, "c"); refusal == nil {
			t.Fatal("a turn goes to an upstream that is known to be dead")
		}
		w.pass(left - 20*time.Second)
		fresh.is(circuit.HalfOpen, 0)
	})
	t.Run("with another wall clock", func(t *testing.T) {
		w := newWorld(0)
		old := w.proxy(t, "old")
		old.fail(5)
		left := old.routes.Snapshot()[0].Until.Sub(w.now)
		old.exchange()
		ahead := newWorld(0) // a machine whose clock is an hour ahead of that of the store
		ahead.board.Board, ahead.now = w.board.Board, w.now.Add(time.Hour)
		fresh := ahead.proxy(t, "new")
		fresh.exchange()
		fresh.is(circuit.Open, left)
	})
	t.Run("never for longer than the policy allows", func(t *testing.T) {
		w := newWorld(0)
		put(t, w, `{"key":"chatgpt.com/codex-responses/http","state":"open","opened":1000000}`, 1000*time.Hour)
		fresh := w.proxy(t, "new")
		fresh.exchange()
		fresh.is(circuit.Open, 300*time.Second)
	})
	t.Run("of several the longest", func(t *testing.T) {
		w := newWorld(0)
		for name, open := range map[string]time.Duration{"p1": 100, "p2": 200, "p3": 50} {
			if err := w.board.Board.PutNote(t.Context(), "routes", route.String()+"@"+name,
				[]byte(`{"key":"chatgpt.com/codex-responses/http","state":"open","opened":1}`), open*time.Second+routeGrace); err != nil {
				t.Fatal(err)
			}
		}
		fresh := w.proxy(t, "new")
		fresh.exchange()
		fresh.is(circuit.Open, 200*time.Second)
	})
	t.Run("and a probe that is due is due", func(t *testing.T) {
		w := newWorld(0)
		old := w.proxy(t, "old")
		old.fail(5)
		w.pass(200 * time.Second)
		old.exchange() // half open
		fresh := w.proxy(t, "new")
		fresh.exchange()
		fresh.is(circuit.HalfOpen, 0)
	})
	t.Run("but not with what is closed again", func(t *testing.T) {
		w := newWorld(0)
		old := w.proxy(t, "old")
		old.fail(5)
		old.exchange()
		old.routes.Reset("test")
		old.exchange()
		fresh := w.proxy(t, "new")
		fresh.exchange()
		fresh.is(circuit.Closed, 0)
	})
}

func put(t *testing.T, w *world, value string, life time.Duration) {
	t.Helper()
	if err := w.board.Board.PutNote(t.Context(), "routes", route.String()+"@other", []byte(value), life); err != nil {
		t.Fatal(err)
	}
}

func TestAnOpenCircuitOfASiblingIsAHint(t *testing.T) {
	w := newWorld(0)
	one, two := w.proxy(t, "p1"), w.proxy(t, "p2")
	one.exchange()
	two.exchange()
	w.pass(time.Minute)
	one.fail(5)
	one.exchange()
	two.exchange()
	two.is(circuit.Closed, 0) // its own experience counts
	two.fail(1)
	two.is(circuit.Open, 0)
}

func TestAHintIsOneHint(t *testing.T) {
	w := newWorld(0)
	one, two := w.proxy(t, "p1"), w.proxy(t, "p2")
	two.exchange()
	one.fail(5)
	one.exchange()
	for range 40 {
		two.exchange()
		w.pass(time.Second)
	}
	two.fail(1)
	two.is(circuit.Closed, 0)
}

func TestAStoreThatComesLateOpensNothing(t *testing.T) {
	w := newWorld(0)
	one, two := w.proxy(t, "p1"), w.proxy(t, "p2")
	one.fail(5)
	one.exchange()
	w.pass(routeStart)
	two.exchange() // its first
	two.is(circuit.Closed, 0)
}

func TestACircuitIsWrittenWhenItChanges(t *testing.T) {
	w := newWorld(0)
	p := w.proxy(t, "p1")
	step := func(what string, writes int) {
		t.Helper()
		before := w.board.count()
		for range 10 {
			p.exchange()
			w.pass(time.Second)
		}
		if n := w.board.count() - before; n != writes {
			t.Fatalf("%s: %d writes, want %d", what, n, writes)
		}
	}
	step("closed", 0)
	p.fail(5)
	step("open", 1)
	w.pass(100 * time.Second)
	step("half open", 1)
	permit, refusal := p.routes.Permit(route, "c")
	if refusal != nil {
		t.Fatal(refusal)
	}
	permit.Event()
	permit.Done(outcome.OK, "a")
	step("closed again", 1)
	w.pass(10 * time.Minute)
	step("long closed", 0)
}

func TestForeignRouteNotesAreIgnored(t *testing.T) {
	for _, value := range []string{
		"", "null", "[]", `{"key":"","state":"open"}`, `{"key":"a/b","state":"open"}`, `{"key":"a/b/c","state":"ajar"}`, `{"key":"a","state":"open","opened":-1}`,
		`{"key":"a","state":"closed"}`,
	} {
		if e, ok := entryOf(Item{Value: []byte(value), Left: time.Hour}, epoch); ok {
			t.Errorf("%s is read as %+v", value, e)
		}
	}
}

func TestLongRoutesHaveNames(t *testing.T) {
	long := circuit.Key{Host: strings.Repeat("h", 250), Family: "f", Transport: "t"}
	one, two := routeName(long.String()+"1", "p1"), routeName(long.String()+"2", "p1")
	if len(one) > store.MaxNoteName || one == two || !strings.HasSuffix(one, "@p1") {
		t.Errorf("%s, %s", one, two)
	}
}
