package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestFrameCarriesNumberAndTime(t *testing.T) {
	f := newFrame()
	const nanos = int64(1_790_000_000_123_456_789)
	for _, sequence := range []int64{firstSequence, 123456, lastSequence} {
		f.fill(sequence, nanos+sequence)
		var event struct {
			Type     string `json:"type"`
			Sequence int64  `json:"sequence_number"`
			Sent     int64  `json:"sent"`
		}
		if err := json.Unmarshal(f.payload(), &event); err != nil {
			t.Fatal(err)
		}
		if event.Type != eventDelta || event.Sequence != sequence || event.Sent != nanos+sequence {
			t.Errorf("%+v", event)
		}
		if want := "event: " + eventDelta + "\ndata: " + string(f.payload()) + "\n\n"; string(f.sse) != want {
			t.Errorf("%q", f.sse)
		}
		if got := stampOf(f.sse); got != nanos+sequence {
			t.Errorf("stamp %d", got)
		}
	}
}

func TestStreamCutAnywhereGivesEachEventOnce(t *testing.T) {
	f := newFrame()
	var text []byte
	for i := range int64(5) {
		f.fill(firstSequence+i, 1_790_000_000_000_000_000+i)
		text = append(text, f.sse...)
	}
	text = append(text, "event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n"...)
	for piece := 1; piece < len(text); piece += 7 {
		s := &session{}
		buf := make([]byte, 0, 4096)
		events, done := 0, false
		for rest := text; len(rest) > 0; {
			n := min(piece, len(rest), cap(buf)-len(buf))
			buf = append(buf, rest[:n]...)
			rest = rest[n:]
			var found int
			buf, found, done = s.take(buf, 1_790_000_000_000_000_100, done)
			events += found
		}
		if events != 5 || !done || len(s.samples) != 5 {
			t.Fatalf("pieces of %d: %d events, done %t", piece, events, done)
		}
		for i, e := range s.samples {
			if e.took != 100-int64(i) {
				t.Errorf("pieces of %d: event %d took %d", piece, i, e.took)
			}
		}
	}
}

func TestPacerSpreadsStreams(t *testing.T) {
	for _, rate := range []float64{1, 5, 7, 200} {
		p := newPacer(5)
		for range 1000 {
			p.add(&paced{done: make(chan struct{})})
		}
		p.setRate(rate)
		least, most, sum := math.MaxInt, 0, 0
		for i := range p.slots {
			n := len(p.slot(i))
			least, most, sum = min(least, n), max(most, n), sum+n
		}
		if sum != 1000 || most-least > 1 {
			t.Errorf("rate %g: %d streams, between %d and %d a slot", rate, sum, least, most)
		}
		p.all()
	}
}

func TestQuantile(t *testing.T) {
	var ms []time.Duration
	for i := range 100 {
		ms = append(ms, time.Duration(100-i)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 51, 0.99: 100, 1: 100} {
		if got := milliseconds(ms, q); got != want {
			t.Errorf("%g: %g, want %g", q, got, want)
		}
	}
	if !math.IsNaN(milliseconds[time.Duration](nil, 0.5)) {
		t.Error("a quantile of nothing")
	}
}

func TestFigureJudgesItsBudget(t *testing.T) {
	for _, tt := range []struct {
		f           figure
		budget, met string
	}{
		{figure{nginx: 2, causeway: 3, times: 1.5}, "≤ 1.5 × nginx", "yes"},
		{figure{nginx: 2, causeway: 3.1, times: 1.5}, "≤ 1.5 × nginx", "no"},
		{figure{nginx: 2, causeway: 2, times: 1}, "≤ nginx", "yes"},
		{figure{nginx: none(), causeway: 65, most: 64}, "≤ 64", "no"},
		{figure{nginx: none(), causeway: 99, least: 99}, "≥ 99", "yes"},
		{figure{nginx: none(), causeway: 1, times: 1}, "≤ nginx", ""},
		{figure{nginx: -1, causeway: -2, times: 1}, "≤ nginx", ""},
		{figure{nginx: 1, causeway: 1}, "", ""},
	} {
		if tt.f.budget() != tt.budget || tt.f.met() != tt.met {
			t.Errorf("%+v: %q %q", tt.f, tt.f.budget(), tt.f.met())
		}
	}
}

func TestReportHasEveryFigure(t *testing.T) {
	r := &report{settings: settings{streams: 1, idle: 1}, paths: map[string]*measured{direct: {}, nginx: {}, causeway: {}}}
	var b strings.Builder
	r.print(&b)
	for _, f := range r.figures() {
		if !strings.Contains(b.String(), f.name) {
			t.Errorf("%s is not in\n%s", f.name, &b)
		}
	}
}

func TestMemoryOfAProcess(t *testing.T) {
	n, err := kilobytes("00400000-7ffd rollup\nRss:    2048 kB\nPss:                1024 kB\nPss_Dirty: 5 kB\n", "Pss:")
	if err != nil || n != 1024 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := kilobytes("", "Pss:"); err == nil {
		t.Error("no error for a missing line")
	}
}
