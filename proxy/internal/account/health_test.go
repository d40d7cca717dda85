package account

import (
	"testing"
	"time"
)

func TestHealth(t *testing.T) {
	const fail, good, trial = "fail", "good", "trial"
	type step struct {
		after time.Duration // since the step before
		what  string
		tier  Tier
		due   bool
	}
	second := time.Second
	for name, steps := range map[string][]step{
		"one error says nothing":          {{0, fail, Healthy, false}},
		"two within a minute":             {{0, fail, Healthy, false}, {59 * second, fail, Sick, false}},
		"two, a minute apart":             {{0, fail, Healthy, false}, {60 * second, fail, Healthy, false}},
		"the last two count":              {{0, fail, Healthy, false}, {60 * second, fail, Healthy, false}, {30 * second, fail, Sick, false}},
		"a success forgets":               {{0, fail, Healthy, false}, {0, good, Healthy, false}, {0, fail, Healthy, false}},
		"quiet for less than a minute":    {{0, fail, Healthy, false}, {0, fail, Sick, false}, {59 * second, "", Sick, false}},
		"probing after a minute of quiet": {{0, fail, Healthy, false}, {0, fail, Sick, false}, {60 * second, "", Probing, true}},
		"one trial a minute": {
			{0, fail, Healthy, false}, {0, fail, Sick, false}, {60 * second, trial, Probing, false},
			{59 * second, "", Probing, false}, {second, "", Probing, true},
		},
		"three successes heal": {
			{0, fail, Healthy, false}, {0, fail, Sick, false}, {60 * second, good, Probing, true},
			{0, good, Probing, true}, {0, good, Healthy, false},
		},
		"successes while sick count too": {
			{0, fail, Healthy, false}, {0, fail, Sick, false}, {second, good, Probing, false}, {0, good, Probing, false}, {0, good, Healthy, false},
		},
		"a relapse": {
			{0, fail, Healthy, false}, {0, fail, Sick, false}, {60 * second, good, Probing, true}, {0, good, Probing, true},
			{0, fail, Sick, false}, {60 * second, good, Probing, true}, {0, good, Probing, true}, {0, good, Healthy, false},
		},
		"healed, it bears one error again": {
			{0, fail, Healthy, false}, {0, fail, Sick, false}, {60 * second, good, Probing, true}, {0, good, Probing, true}, {0, good, Healthy, false},
			{0, fail, Healthy, false}, {0, fail, Sick, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var h health
			now := noon
			for i, s := range steps {
				now = now.Add(s.after)
				switch s.what {
				case fail:
					h.fail(now)
				case good:
					h.succeed()
				case trial:
					h.tried = now
				}
				if got := h.tier(now); got != s.tier || h.due(now) != s.due {
					t.Fatalf("step %d (%s): %s, due = %v; want %s, %v", i+1, s.what, got, h.due(now), s.tier, s.due)
				}
			}
		})
	}
}

func TestHealthPressure(t *testing.T) {
	var h health
	for i, c := range []struct {
		short, long float64
		want        bool
	}{
		{-1, -1, false},
		{84.9, 89.9, false},
		{85, -1, true},
		{81, -1, true}, // wanders around the mark
		{79.9, -1, false},
		{-1, 90, true},
		{-1, 85, true},
		{-1, 84.9, false},
		{100, 0, true},
		{-1, -1, false}, // the window began anew
	} {
		if h.press(load{short: c.short, long: c.long}); h.pressed != c.want {
			t.Errorf("%d: short %g, long %g: pressed = %v", i, c.short, c.long, h.pressed)
		}
	}
}

func TestHealthForgives(t *testing.T) {
	var h health
	h.fail(noon)
	h.blame(noon.Add(2 * time.Minute))
	if h.tier(noon.Add(2*time.Minute)) != Sick {
		t.Fatal("blame does not make it sick")
	}
	h.forgive()
	if h.tier(noon.Add(2*time.Minute)) != Healthy || h.errors[0] != noon {
		t.Errorf("after forgiving: %+v", h)
	}
	h.forgive() // again, and with nothing to forgive
	h.fail(noon)
	h.fail(noon)
	h.forgive()
	if h.tier(noon) != Sick {
		t.Error("errors of its own were forgiven")
	}
}

func TestEventlessWindow(t *testing.T) {
	var e eventless
	if e.recent(noon) {
		t.Error("without any")
	}
	at := func(d time.Duration) bool { return e.note(noon.Add(d)) }
	if at(0) || at(200*time.Second) || at(300*time.Second) {
		t.Error("the third came 300 s after the first")
	}
	if !at(499 * time.Second) {
		t.Error("three within 300 s")
	}
	e.clear()
	if at(499 * time.Second) {
		t.Error("the window was not empty")
	}
	if !e.recent(noon.Add(798*time.Second)) || e.recent(noon.Add(799*time.Second)) {
		t.Error("recent is 300 s")
	}
}
