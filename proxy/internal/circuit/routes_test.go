package circuit

import (
	"fmt"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/outcome"
)

func TestHintOfASibling(t *testing.T) {
	sibling := newRig(t, defaults(), 3)
	sibling.opens()
	hint := sibling.routes.Snapshot()
	t.Run("one failure is enough", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.routes.Hint(hint)
		r.is(Closed)
		r.ends(outcome.CallerError)
		r.is(Closed)
		r.ends(outcome.OK)
		r.is(Closed)
		r.ends(outcome.ServerError)
		r.is(Open)
	})
	t.Run("for half a minute", func(t *testing.T) {
		b := defaults()
		b.OpenSeconds = 100
		long := newRig(t, b, 3)
		long.opens()
		r := newRig(t, b, 3)
		r.routes.Hint(long.routes.Snapshot())
		r.clock.step(30 * time.Second)
		r.ends(outcome.ServerError)
		r.is(Closed)
	})
	t.Run("a failure of before does not open by itself", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.ends(outcome.ServerError)
		r.routes.Hint(hint)
		r.ends(outcome.AuthRejected)
		r.permit("x").Done(outcome.RateLimited, "a")
		r.is(Closed)
	})
	t.Run("not of one that is half-open, or is over", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.routes.Hint([]Entry{{Key: route.String(), State: "half_open", Until: r.clock.Now().Add(time.Minute)}})
		r.clock.step(time.Minute)
		r.routes.Hint(hint)
		r.ends(outcome.ServerError)
		r.is(Closed)
	})
	t.Run("does not change one that is not closed", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		r.routes.Hint([]Entry{{Key: route.String(), State: "open", Until: r.clock.Now().Add(time.Minute)}})
		r.permit("x").Event()
		r.permit("x").Event()
		r.ends(outcome.ServerError)
		r.is(Closed)
	})
}

func TestCountedFailures(t *testing.T) {
	for name, of := range map[string][]outcome.Kind{
		"ConnectFailure":    {outcome.DNSFailed, outcome.ConnectFailed, outcome.ProxyFailed},
		"TLSFailure":        {outcome.TLSFailed},
		"Status5xx":         {outcome.ServerError, outcome.Overloaded, outcome.Unavailable, outcome.EdgeLimited, outcome.ResponseFailed, outcome.UpgradeFailed},
		"FirstEventTimeout": {outcome.FirstEventTimeout, outcome.HeaderTimeout},
		"ProtocolError": {outcome.Garbage, outcome.Truncated, outcome.CutEventless, outcome.WriteCut, outcome.CleanClose,
			outcome.LivenessLost, outcome.IdleTimeout},
	} {
		for only, others := range map[bool][]string{true: {name}, false: allBut(name)} {
			for _, k := range of {
				b := defaults()
				b.CountedFailures = others
				r := newRig(t, b, 3)
				for range 5 {
					r.ends(k)
				}
				if open := r.status().State == Open; open != only {
					t.Errorf("%v, counted %v: open %v", k, others, open)
				}
			}
		}
	}
	t.Run("what does not count decides nothing about a probe", func(t *testing.T) {
		b := defaults()
		b.CountedFailures = []string{"Status5xx"}
		r := newRig(t, b, 3)
		r.opens()
		r.halfOpens()
		r.permit("x").Done(outcome.ConnectFailed, "")
		r.is(HalfOpen)
	})
	for _, k := range outcome.Kinds() { // a kind that counts has a class of its own choice
		if r := k.Effect().Route; r == outcome.RouteCounted && classOf(k) >= classes {
			t.Errorf("%v has no class", k)
		}
	}
}

func allBut(name string) []string {
	var out []string
	for _, n := range classNames {
		if n != name {
			out = append(out, n)
		}
	}
	return out
}

func TestScopes(t *testing.T) {
	other := route
	other.Transport = "websocket"
	t.Run("Route", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		if _, refusal := r.routes.Permit(other, "x"); refusal != nil {
			t.Errorf("another transport is refused: %v", refusal)
		}
	})
	t.Run("Provider", func(t *testing.T) {
		b := defaults()
		b.Scope = "Provider"
		r := newRig(t, b, 3)
		for i := range 5 {
			r.permit(fmt.Sprint(i)).Done(outcome.ServerError, fmt.Sprint(i))
		}
		if _, refusal := r.routes.Permit(other, "x"); refusal == nil {
			t.Error("another transport of the same host is let through")
		}
		if s := r.routes.States(); len(s) != 1 || s[0].Key != "chatgpt.com" {
			t.Errorf("%+v", s)
		}
	})
}

func TestUpdateKeepsStateAndCutsTimes(t *testing.T) {
	r := newRig(t, defaults(), 3)
	r.opens()
	b := defaults()
	b.MaxOpenSeconds, b.OpenSeconds = 5, 5
	r.routes.Update(b, 3)
	if s := r.status(); s.State != Open || r.remaining() > 5*time.Second {
		t.Errorf("%+v", s)
	}
	t.Run("before the first", func(t *testing.T) {
		r.routes = New(r.routes.options)
		for range 10 {
			p := r.permit("x")
			p.Event()
			p.Done(outcome.ServerError, "a")
		}
		if s := r.routes.States(); len(s) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestKeysAreBounded(t *testing.T) {
	r := newRig(t, defaults(), 1)
	for i := range 1000 {
		p, refusal := r.routes.Permit(Key{Host: fmt.Sprint("h", i), Family: "f", Transport: "http"}, "x")
		if refusal == nil {
			p.Done(outcome.ServerError, "a") // none of them is idle
		}
	}
	if n := len(r.routes.States()); n > maxRoutes+1 {
		t.Errorf("%d circuits", n)
	}
	if r.routes.States()[0].Key != "h0/f/http" {
		t.Error("one that has failed was forgotten")
	}
	r = newRig(t, defaults(), 1)
	for i := range 1000 {
		p, _ := r.routes.Permit(Key{Host: fmt.Sprint("h", i)}, "x")
		p.Done(outcome.OK, "a")
	}
	if n := len(r.routes.States()); n != maxRoutes {
		t.Errorf("%d circuits of which none has failed", n)
	}
}

func TestKeys(t *testing.T) {
	for _, k := range []Key{route, {Host: "h:8443"}, {"h", "f", ""}} {
		if got, ok := ParseKey(k.String()); !ok || got != k {
			t.Errorf("%v became %v", k, got)
		}
	}
	for _, s := range []string{"", "/", "//", "a/b", "a/b/c/d", "/f/http"} {
		if k, ok := ParseKey(s); ok {
			t.Errorf("%q is %v", s, k)
		}
	}
}

func TestOpenTimesGrowAndDiffer(t *testing.T) {
	p := PolicyOf(defaults(), 3)
	for salt := range uint64(500) {
		for n := 1; n <= maxOpened; n++ {
			nominal := min(15*time.Second<<min(n-1, 10), p.MaxOpen)
			d := p.openFor(n, salt*0x1234567)
			if d < nominal*8/10 || d > nominal*12/10 || d > p.MaxOpen {
				t.Fatalf("opening %d: %v, nominal %v", n, d, nominal)
			}
			if d != p.openFor(n, salt*0x1234567) {
				t.Fatal("not a function of its arguments")
			}
		}
	}
}

func TestGrowthIsForgotten(t *testing.T) {
	t.Run("after a good while", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		r.permit("x").Event()
		r.permit("x").Event()
		r.clock.step(61 * time.Second)
		r.ends(outcome.OK)
		r.opens()
		if n := r.status().Opened; n != 1 {
			t.Errorf("opened %d times in a row", n)
		}
	})
	t.Run("after a long time", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		r.permit("x").Event()
		r.permit("x").Event()
		r.clock.step(10 * time.Minute)
		r.opens()
		if n := r.status().Opened; n != 1 {
			t.Errorf("opened %d times in a row", n)
		}
	})
	t.Run("not by one good answer", func(t *testing.T) {
		r := newRig(t, defaults(), 3)
		r.opens()
		r.halfOpens()
		r.permit("x").Event()
		r.permit("x").Event()
		r.ends(outcome.OK)
		r.opens()
		if n := r.status().Opened; n != 2 {
			t.Errorf("opened %d times in a row", n)
		}
	})
}

func TestNewestSamplesOfABusyRoute(t *testing.T) {
	r := newRig(t, defaults(), 3)
	good := func() {
		p := r.permit(fmt.Sprint("caller", r.n%2))
		p.Event()
		p.Done(outcome.OK, "account0")
	}
	for range 600 { // ten a second for a minute
		good()
		r.clock.step(100 * time.Millisecond)
	}
	failing := 0
	for r.status().State == Closed && failing < 1000 { // two of three fail, never five in a row
		for range 2 {
			if r.status().State == Closed {
				r.ends(outcome.ServerError)
				r.clock.step(100 * time.Millisecond)
			}
		}
		failing += 3
		if r.status().State == Closed {
			good()
			r.clock.step(100 * time.Millisecond)
		}
	}
	if failing > 120 {
		t.Errorf("opened after %d attempts, of which two in three failed", failing)
	}
}

func TestEvidenceIsBounded(t *testing.T) {
	var d distinct
	var l limits
	now := time.Unix(1_800_000_000, 0)
	for i := range uint64(10_000) {
		now = now.Add(time.Millisecond)
		d.see(i, now)
		l.hit(who{account: i, caller: i}, 2, now)
	}
	if len(d.seen) != maxDistinct || len(l.list) != maxLimits {
		t.Errorf("%d sightings, %d limits", len(d.seen), len(l.list))
	}
	if d.since(now.Add(-time.Millisecond*(maxDistinct-1))) != maxDistinct {
		t.Error("not the newest are kept")
	}
}

// Few samples are no evidence, however new they are.
func TestNewestSamplesOfAQuietRoute(t *testing.T) {
	b := defaults()
	b.ConsecutiveFailures = 100
	r := newRig(t, b, 3)
	for range 200 {
		r.ends(outcome.OK)
	}
	r.clock.step(30 * time.Second)
	for range 39 {
		r.ends(outcome.ServerError)
	}
	r.is(Closed)
	r.ends(outcome.ServerError)
	r.is(Open)
}
