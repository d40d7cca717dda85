package bulkhead

import (
	"math"
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/10 {
			t.Errorf("%s: %.3f a second, want %.3f", what, got, want)
		}
	}
	var m Meter
	if m.PerSecond(start) != 0 {
		t.Error("a meter that has seen nothing knows something")
	}
	m.Begin(start)
	if m.PerSecond(start.Add(20*time.Second)) != 0 {
		t.Error("20 s without an event are no rate yet")
	}
	now := start
	for range 30 {
		now = now.Add(500 * time.Millisecond)
		m.Add(now)
	}
	near("15 s after it began", m.PerSecond(now), 2)
	for range 600 {
		now = now.Add(500 * time.Millisecond)
		m.Add(now)
	}
	near("steady", m.PerSecond(now), 2)
	for range 600 {
		now = now.Add(5 * time.Second)
		m.Add(now)
	}
	near("slower", m.PerSecond(now), 0.2)
	quiet := m.PerSecond(now.Add(10 * time.Minute))
	if quiet <= 0 || quiet > 0.01 {
		t.Errorf("after ten silent minutes %.4f a second", quiet)
	}
	m.Begin(now.Add(10 * time.Minute))
	if m.PerSecond(now.Add(10*time.Minute)) != 0 {
		t.Error("silence while nothing could happen counts")
	}
	m = Meter{}
	m.Add(start)
	m.Begin(start.Add(time.Second))
	near("what has begun stays", m.PerSecond(start.Add(time.Second)), 1)
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		n         int
		perSecond float64
		want      time.Duration
	}{
		{10, 2, 5 * time.Second},
		{1, 100, MinWait},
		{0, 0.5, 2 * time.Second},
		{5, 0, 30 * time.Second},
		{1 << 40, 1e-9, time.Hour},
	} {
		if got := Wait(c.n, c.perSecond, 30*time.Second); got != c.want {
			t.Errorf("%d at %.2f a second: %s, want %s", c.n, c.perSecond, got, c.want)
		}
	}
	if got := Wait(1, 0, 0); got != MinWait {
		t.Errorf("a hint of %s", got)
	}
}

func TestWaitForALane(t *testing.T) {
	h := newHall(t, Limits{MaxConcurrent: 2, MaxQueued: 9, QueueTimeout: 30 * time.Second})
	now := start
	if got := h.WaitFor(HTTP, now); got != 30*time.Second {
		t.Errorf("unknown: %s", got)
	}
	for range 240 { // one a second
		p := h.Take(HTTP, now)
		now = now.Add(time.Second)
		p.Spend()
		h.Give(p, now)
	}
	for i := range 9 {
		h.enter("a", "x", i)
	}
	if got := h.WaitFor(HTTP, now).Round(time.Second); got != 10*time.Second {
		t.Errorf("nine before, one a second: %s", got)
	}
	now = now.Add(time.Hour)
	h.Take(HTTP, now)
	if got := h.WaitFor(HTTP, now); got != 30*time.Second {
		t.Errorf("the first turn after an hour, and the hour counts: %s", got)
	}
	if got := h.WaitFor(Media, now); got != 30*time.Second {
		t.Errorf("another lane: %s", got)
	}
}
