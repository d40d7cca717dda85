package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scripted is a probe that finds what it is told to.
type scripted struct {
	mu    sync.Mutex
	found Finding
	looks atomic.Int64
}

func (s *scripted) set(c Condition, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = Finding{c, reason}
}

func (s *scripted) look(context.Context) Finding {
	s.looks.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// healthy runs a Health within a bubble until the test ends.
func healthy(t *testing.T, pulse func(), probes ...Probe) *Health {
	t.Helper()
	h := NewHealth(quietLogger, pulse, probes...)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	synctest.Wait()
	return h
}

// elapse lets time go by.
func elapse(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func readyz(h *Health, query string) (int, string) {
	w := httptest.NewRecorder()
	Ops{Health: h, Metrics: http.NotFoundHandler(), Logger: quietLogger}.handler().
		ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/readyz"+query, nil))
	return w.Code, w.Body.String()
}

// T59: a thousand questions a second, and the looks are those of the cadence.
func TestT59_QuestionsDoNotAddLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probe := &scripted{found: Finding{Condition: OK}}
		h := healthy(t, func() {}, Probe{Name: "accounts", Look: probe.look})
		var asked int
		for second := range 31 {
			for range 1000 {
				asked++
				if status, text := readyz(h, ""); status != http.StatusOK {
					t.Fatal(second, status, text)
				}
			}
			_, checks := h.Report()
			if age := checks[0].AgeMS; age > lookEvery.Milliseconds() {
				t.Fatalf("after %d s the finding is %d ms old", second, age)
			}
			elapse(time.Second)
		}
		if n := probe.looks.Load(); n != 3 {
			t.Errorf("%d looks for %d questions", n, asked)
		}
	})
}

func TestReadinessHasHysteresis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probe := &scripted{found: Finding{Down, "none"}}
		h := healthy(t, func() {}, Probe{Name: "accounts", Look: probe.look})
		ready := func() bool { r, _ := h.Report(); return r }
		if ready() {
			t.Fatal("ready without ever having been so")
		}
		probe.set(OK, "")
		elapse(lookAgain) // sooner than the usual cadence
		if !ready() {
			t.Fatal("one success is enough")
		}
		probe.set(Down, "none")
		elapse(lookEvery)
		_, checks := h.Report()
		if !ready() || checks[0].State != Degraded || checks[0].Reason != "none" || checks[0].OK {
			t.Fatalf("one failure is not: %+v", checks)
		}
		elapse(lookAgain)
		if status, text := readyz(h, ""); status != http.StatusServiceUnavailable || !strings.Contains(text, "accounts") {
			t.Fatalf("two are: %d %s", status, text)
		}
		probe.set(Degraded, "some")
		elapse(lookAgain)
		if _, checks := h.Report(); !ready() || checks[0].State != Degraded {
			t.Fatalf("degraded serves: %+v", checks)
		}
		probe.set(Down, "none") // the count has begun anew
		elapse(lookEvery)
		if !ready() {
			t.Fatal("an old failure was counted")
		}
	})
}

func TestAdvisoryProbesOnlyShow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &scripted{found: Finding{Down, "no answer"}}
		h := healthy(t, func() {}, Probe{Name: "store", Advisory: true, Look: store.look})
		elapse(time.Minute)
		status, text := readyz(h, "?verbose")
		var shown struct {
			Ready  bool
			Checks []Check
		}
		if err := json.Unmarshal([]byte(text), &shown); err != nil {
			t.Fatal(err)
		}
		if status != http.StatusOK || !shown.Ready || len(shown.Checks) != 1 {
			t.Fatalf("%d %s", status, text)
		}
		if c := shown.Checks[0]; c.State != Down || c.OK || c.Severity != "advisory" || c.Reason != "no answer" {
			t.Errorf("%+v", c)
		}
	})
}

// What is known of this process itself counts at once.
func TestInstantProbesCountAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draining := &scripted{found: Finding{Condition: OK}}
		h := healthy(t, func() {}, Probe{Name: "draining", Instant: true, Look: draining.look})
		draining.set(Down, "stopping")
		if status, _ := readyz(h, ""); status != http.StatusServiceUnavailable {
			t.Error(status)
		}
		draining.set(OK, "")
		if status, _ := readyz(h, ""); status != http.StatusOK {
			t.Error(status)
		}
	})
}

// A finding that nobody renews must not go on saying that all is well.
func TestStaleFindingsCountNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		var looks atomic.Int64
		h := healthy(t, func() {}, Probe{Name: "accounts", Look: func(context.Context) Finding {
			if looks.Add(1) > 1 {
				<-stuck
			}
			return Finding{Condition: OK}
		}})
		defer close(stuck)
		elapse(stale)
		if ready, checks := h.Report(); !ready {
			t.Fatalf("%+v", checks)
		}
		elapse(time.Second)
		if ready, checks := h.Report(); ready || checks[0].State != Down || !strings.Contains(checks[0].Reason, "46s") {
			t.Fatalf("%+v", checks)
		}
	})
}

func TestALookIsBoundedAndMayFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h := healthy(t, func() {},
			Probe{Name: "slow", Look: func(ctx context.Context) Finding {
				<-ctx.Done()
				return Finding{Down, time.Since(began).String()}
			}},
			Probe{Name: "broken", Look: func(context.Context) Finding { panic("CANARY") }})
		elapse(lookTime)
		_, checks := h.Report()
		if checks[0].Reason != lookTime.String() || checks[1].State != Down || strings.Contains(checks[1].Reason, "CANARY") {
			t.Errorf("%+v", checks)
		}
	})
}

// /livez knows nothing of dependencies; it fails when turns cannot get on.
func TestLivezIsAboutThisProcessOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := &scripted{found: Finding{Down, "all"}}
		lock := make(chan struct{}, 1)
		h := healthy(t, func() {
			lock <- struct{}{}
			<-lock
		}, Probe{Name: "everything", Look: down.look})
		livez := func() int {
			w := httptest.NewRecorder()
			Ops{Health: h, Metrics: http.NotFoundHandler(), Logger: quietLogger}.handler().
				ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/livez", nil))
			return w.Code
		}
		elapse(10 * time.Minute)
		if got := livez(); got != http.StatusOK {
			t.Fatal("a dependency counts:", got)
		}
		lock <- struct{}{} // and is not given back
		elapse(stuckAfter - pulseEvery)
		if got := livez(); got != http.StatusOK {
			t.Fatal("too early:", got)
		}
		elapse(2 * pulseEvery)
		if got := livez(); got != http.StatusServiceUnavailable {
			t.Fatal("a deadlock is not seen:", got)
		}
		<-lock
		elapse(pulseEvery)
		if got := livez(); got != http.StatusOK {
			t.Fatal("it is over:", got)
		}
	})
}

func TestAliveBeforeTheFirstPulse(t *testing.T) {
	if h := NewHealth(quietLogger, func() {}, Probe{Name: "accounts"}); !h.Alive() {
		t.Error("a process that starts is restarted")
	} else if ready, checks := h.Report(); ready || checks[0].Reason != "not known yet" {
		t.Errorf("%+v", checks)
	}
}
