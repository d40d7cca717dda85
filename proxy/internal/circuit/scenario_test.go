package circuit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

func TestT01_OpensAndRefuses(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for range 4 {
		r.ends(outcome.ServerError)
		r.is(Closed)
	}
	r.ends(outcome.Truncated)
	hint := r.refuse("route_open").RetryAfter
	if hint < 12*time.Second || hint > 18*time.Second {
		t.Errorf("hint %v is not openSeconds with its jitter", hint)
	}
	r.clock.step(10 * time.Second)
	if later := r.refuse("route_open").RetryAfter; hint-later != 10*time.Second {
		t.Errorf("hint %v, and %v ten seconds later", hint, later)
	}
	if r.metrics.refused != 2 || r.metrics.changes["open"] != 1 {
		t.Errorf("%+v", r.metrics)
	}
}

func TestT02_SlowSuccessIsSuccess(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for range 4 {
		r.ends(outcome.ServerError)
	}
	p := r.permit("slow")
	r.clock.step(8 * time.Minute)
	p.Done(outcome.OK, "account0")
	for range 4 {
		r.ends(outcome.ServerError)
	}
	r.is(Closed)
}

func TestT03_CallersOwnDeadlineIsNoEvidence(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for range 100 {
		r.ends(outcome.CallerDeadline)
	}
	r.is(Closed)
}

func TestT04_LimitOfOneAccountLeavesTheRouteAlone(t *testing.T) {
	r := newRig(t, defaults(), 3)
	for i := range 10 {
		r.permit(fmt.Sprint("caller", i)).Done(outcome.QuotaExhausted, "a")
	}
	r.is(Closed)
	r.permit("x").Done(outcome.OK, "b")
}

func TestT05_LimitsOfAllAccountsOpen(t *testing.T) {
	limit := func(r *rig, account string, n int) {
		for i := range n {
			if p, refusal := r.routes.Permit(route, fmt.Sprint("caller", i%3)); refusal == nil {
				p.Done(outcome.RateLimited, account)
			}
		}
	}
	t.Run("of several at once", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		limit(r, "a", 4)
		r.is(Closed)
		limit(r, "b", 1)
		r.is(Open)
	})
	t.Run("each counts once", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 5 { // the first counts with the second
			r.is(Closed)
			limit(r, fmt.Sprint("account", i%3), 1)
		}
		r.is(Open)
	})
	t.Run("of one only", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		limit(r, "a", 40)
		r.is(Closed)
	})
	t.Run("of the only one there is", func(t *testing.T) {
		r := newRig(t, defaults(), 1)
		limit(r, "a", 40)
		r.is(Closed)
	})
	t.Run("not at once", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 20 {
			limit(r, fmt.Sprint("account", i%3), 1)
			r.clock.step(31 * time.Second)
		}
		r.is(Closed)
	})
	t.Run("with a success between", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		for i := range 20 {
			limit(r, fmt.Sprint("account", i%3), 1)
			r.ends(outcome.OK)
		}
		r.is(Closed)
	})
}

func TestT06_OneProbeAndTruthfulHints(t *testing.T) {
	for _, most := range []int{1, 3} {
		b := defaults()
		b.HalfOpenMaxCalls = most
		r := newRig(t, b, 3)
		r.opens()
		r.halfOpens()
		admitted := 0
		for range 50 {
			p, refusal := r.routes.Permit(route, "x")
			if refusal == nil {
				admitted++
				defer p.Neutral()
				continue
			}
			if refusal.Reason != "probe_running" || refusal.RetryAfter < 1 || refusal.RetryAfter > 30*time.Second {
				t.Errorf("%v after %v", refusal, refusal.RetryAfter)
			}
		}
		if admitted != most {
			t.Errorf("%d probes, want %d", admitted, most)
		}
	}
}

func TestT07_VerdictAtTheFirstEvent(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.opens()
	r.halfOpens()
	first := r.permit("x")
	first.Event()
	r.is(HalfOpen)
	second := r.permit("y") // the first still streams, and holds no slot
	second.Event()
	r.is(Closed)
	r.clock.step(40 * time.Minute)
	first.Done(outcome.OK, "a")
	second.Done(outcome.OK, "a")
	r.is(Closed)
	first.Event()
	second.Done(outcome.ServerError, "a")
	if n := r.metrics.changes["closed"]; n != 1 {
		t.Errorf("closed %d times", n)
	}
}

func TestT08_ProbeWithoutVerdict(t *testing.T) {
	lapse := func(t *testing.T) (*rig, *Permit) {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		p := r.permit("x")
		r.clock.step(29 * time.Second)
		r.is(HalfOpen)
		r.clock.step(time.Second)
		r.is(Open)
		if d := r.remaining(); d < 24*time.Second || d > 36*time.Second {
			t.Errorf("open for %v, want twice openSeconds with its jitter", d)
		}
		return r, p
	}
	t.Run("its late failure is no second one", func(t *testing.T) {
		r, p := lapse(t)
		until := r.status().Until
		p.Done(outcome.FirstEventTimeout, "a")
		if s := r.status(); s.State != Open || !s.Until.Equal(until) || s.Opened != 2 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("its late success closes", func(t *testing.T) {
		r, p := lapse(t)
		p.Event()
		r.is(Closed)
		p.Done(outcome.OK, "a")
		r.is(Closed)
	})
	t.Run("its late success closes a half-open circuit, and ends its probe", func(t *testing.T) {
		r, p := lapse(t)
		r.halfOpens()
		other := r.permit("y")
		p.Done(outcome.OK, "a")
		r.is(Closed)
		other.Done(outcome.ServerError, "b")
		r.is(Closed)
	})
	t.Run("its late success is old news after a newer failure", func(t *testing.T) {
		r, p := lapse(t)
		r.halfOpens()
		r.permit("y").Done(outcome.ConnectFailed, "")
		p.Event()
		r.is(Open)
	})
	t.Run("its late success is old news after a reset", func(t *testing.T) {
		r, p := lapse(t)
		r.routes.Reset("me")
		r.opens()
		p.Event()
		r.is(Open)
	})
	t.Run("nobody asks for a long time", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		r.permit("x")
		r.clock.step(time.Hour) // it was given up, and the open time is over, too
		r.permit("y").Event()
	})
}

func TestT09_NeutralProbesFreeTheirSlot(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.opens()
	r.halfOpens()
	for i := range 12 {
		p := r.permit("x")
		r.refuse("probe_running")
		if i%2 == 0 {
			p.Done(outcome.CallerGone, "a")
		} else {
			p.Neutral()
		}
		r.is(HalfOpen)
	}
	if r.metrics.inconclusive != 2 || strings.Count(r.log.String(), "reason=ProbeInconclusive") != 2 {
		t.Errorf("%d alarms after 12 neutral probes, want 2", r.metrics.inconclusive)
	}
	ended := r.permit("x")
	ended.Neutral()
	ended.Event() // too late to be a verdict
	for range 3 {
		r.permit("x").Neutral()
	}
	r.permit("x").Event() // a verdict: the row is broken
	for range 4 {
		r.permit("x").Neutral()
	}
	if r.metrics.inconclusive != 3 {
		t.Errorf("%d alarms, want 3", r.metrics.inconclusive)
	}
	r.is(HalfOpen)
}

func TestT10_RefusalOfTheRequestIsLife(t *testing.T) {
	for _, k := range []outcome.Kind{outcome.PolicyRefusal, outcome.CallerError, outcome.AnchorDenied} {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		r.permit("x").Done(k, "a")
		r.permit("x").Done(k, "a")
		r.is(Closed)
	}
}

func TestT11_ResultsOfAnEarlierPeriodAreIgnored(t *testing.T) {
	r := newRig(t, defaults(), 3)
	var old []*Permit
	for i := range 10 {
		old = append(old, r.permit(fmt.Sprint("caller", i)))
	}
	r.opens()
	old[0].Done(outcome.OK, "a")
	r.is(Open)
	r.halfOpens()
	old[1].Event()
	old[1].Done(outcome.OK, "a")
	old[2].Done(outcome.ServerError, "a")
	r.is(HalfOpen)
	r.permit("x").Event()
	r.permit("x").Event()
	r.is(Closed)
	for i, p := range old[3:] {
		p.Done(outcome.ServerError, fmt.Sprint("account", i))
	}
	r.is(Closed)
	for range 4 {
		r.ends(outcome.ServerError)
	}
	r.is(Closed)
}
