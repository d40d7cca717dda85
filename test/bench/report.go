package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the outcome of a run.
type report struct {
	settings              settings
	begun                 time.Time
	took                  time.Duration
	loadBefore, loadAfter string
	nginxVersion          string
	windows               usage
	paths                 map[string]*measured
}

// figure is one line of the table. Values that do not exist are NaN.
type figure struct {
	name, unit              string
	direct, nginx, causeway float64
	// times is the budget as a multiple of nginx; most is the budget as a value;
	// least likewise. 0 = none.
	times, most, least float64
	digits             int
}

func none() float64 { return math.NaN() }

func (f figure) ratio() float64 {
	if f.nginx <= 0 || f.causeway < 0 {
		return none()
	}
	return f.causeway / f.nginx
}

func (f figure) budget() string {
	switch {
	case f.times == 1:
		return "≤ nginx"
	case f.times != 0:
		return fmt.Sprintf("≤ %g × nginx", f.times)
	case f.most != 0:
		return fmt.Sprintf("≤ %g", f.most)
	case f.least != 0:
		return fmt.Sprintf("≥ %g", f.least)
	}
	return ""
}

// met says whether the budget is kept; empty = there is none or no value.
func (f figure) met() string {
	var ok bool
	switch {
	case math.IsNaN(f.causeway), f.times != 0 && !(f.nginx > 0): // a difference lost in noise is no yardstick
		return ""
	case f.times != 0:
		ok = f.causeway <= f.times*f.nginx
	case f.most != 0:
		ok = f.causeway <= f.most
	case f.least != 0:
		ok = f.causeway >= f.least
	default:
		return ""
	}
	if ok {
		return "yes"
	}
	return "no"
}

// quantile of sorted values; NaN when there are none.
func quantile[T ~int64](sorted []T, q float64) float64 {
	if len(sorted) == 0 {
		return none()
	}
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

func milliseconds[T ~int64](values []T, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return quantile(sorted, q) / float64(time.Millisecond)
}

func mean(values []int64) float64 {
	if len(values) == 0 {
		return none()
	}
	var sum int64
	for _, v := range values {
		sum += v
	}
	return float64(sum) / float64(len(values))
}

func perMillion(m *measured) float64 {
	if m.events == 0 || m.cpu == 0 {
		return none()
	}
	return m.cpu.Seconds() / float64(m.events) * 1e6
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// figures are those of the architecture's budgets and what they come from.
func (r *report) figures() []figure {
	d, n, c := r.paths[direct], r.paths[nginx], r.paths[causeway]
	of := func(f figure, value func(*measured) float64) figure {
		f.direct, f.nginx, f.causeway = value(d), value(n), value(c)
		return f
	}
	event := func(q float64) func(*measured) float64 {
		return func(m *measured) float64 { return milliseconds(m.latencies, q) }
	}
	added := func(f figure, q float64) figure {
		f = of(f, event(q))
		f.direct, f.nginx, f.causeway = none(), f.nginx-f.direct, f.causeway-f.direct
		return f
	}
	streams := float64(r.settings.streams)
	figures := []figure{
		of(figure{name: "latency of an event, p50", unit: "ms", digits: 3}, event(0.5)),
		of(figure{name: "latency of an event, p99", unit: "ms", digits: 3}, event(0.99)),
		added(figure{name: "added latency of an event, p50", unit: "ms", times: 1.5, digits: 3}, 0.5),
		added(figure{name: "added latency of an event, p99", unit: "ms", times: 1, digits: 3}, 0.99),
		of(figure{name: "CPU per million events", unit: "s", times: 1.5, digits: 1}, perMillion),
		of(figure{name: "events received of those due", unit: "%", digits: 2}, func(m *measured) float64 { return 100 * float64(m.events) / m.due }),
		of(figure{name: "streams cut", digits: 0}, func(m *measured) float64 { return float64(m.cut) }),
		of(figure{name: "first event, new session, p50", unit: "ms", times: 3, digits: 2}, func(m *measured) float64 { return milliseconds(m.first, 0.5) }),
		of(figure{name: "first event, next turn, p50", unit: "ms", times: 1.5, digits: 2}, func(m *measured) float64 { return milliseconds(m.next, 0.5) }),
		of(figure{name: "  new session beside the streams, p50", unit: "ms", times: 3, digits: 2}, func(m *measured) float64 { return milliseconds(m.loadFirst, 0.5) }),
		of(figure{name: "  next turn beside the streams, p50", unit: "ms", times: 1.5, digits: 2}, func(m *measured) float64 { return milliseconds(m.loadNext, 0.5) }),
		of(figure{name: "memory, empty process", unit: "MiB", digits: 1}, func(m *measured) float64 { return mean(m.empty) / mib }),
		of(figure{name: "memory, all streams live", unit: "MiB", digits: 1}, func(m *measured) float64 { return mean(m.full) / mib }),
		of(figure{name: "memory per live stream", unit: "KiB", most: 64, digits: 1}, func(m *measured) float64 { return (mean(m.full) - mean(m.empty)) / streams / kib }),
		{name: "memory per idle session", unit: "KiB", direct: none(), nginx: none(), most: 40, digits: 1,
			causeway: float64(c.idleFull-c.idleEmpty) / float64(r.settings.idle) / kib},
		{name: "idle sessions that keep their socket", unit: "%", direct: none(), nginx: none(), least: 99, digits: 1,
			causeway: 100 * float64(c.idleSockets) / float64(r.settings.idle)},
		{name: "next turns anchored on the same socket", unit: "%", direct: none(), nginx: none(), least: 99, digits: 1,
			causeway: 100 * float64(c.sameSocket) / float64(c.nextTurns)},
	}
	if r.settings.limit {
		figures = append(figures, of(figure{name: "events a second before a tenth is late", digits: 0}, func(m *measured) float64 { return m.limit }))
	}
	return figures
}

// others is the share of the machine that programs outside this run used.
func (r *report) others() float64 {
	return 100 * float64(r.windows.busy-r.windows.own) / float64(r.windows.total)
}

func number(v float64, digits int) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.*f", digits, v)
}

func (r *report) print(w io.Writer) {
	s := r.settings
	_, _ = fmt.Fprintf(w, "\n%d streams of %g events a second, %d rounds of %g s; %d CPUs, %s %s; TLS to the origin on every path;\n"+
		"HTTP/SSE through nginx and direct, WebSocket in and SSE out through causeway\n", s.streams, s.rate, s.rounds, s.seconds, runtime.NumCPU(), nginx, r.nginxVersion)
	_, _ = fmt.Fprintf(w, "load average %s before and %s after; while it was measured, other programs used %.0f %% of the machine\n\n", r.loadBefore, r.loadAfter, r.others())
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\t\tdirect\tnginx\tcauseway\tratio\tbudget\tmet")
	for _, f := range r.figures() {
		_, _ = fmt.Fprintln(t, strings.Join([]string{f.name, f.unit, number(f.direct, f.digits), number(f.nginx, f.digits), number(f.causeway, f.digits),
			number(f.ratio(), 2), f.budget(), f.met()}, "\t"))
	}
	_ = t.Flush()
	for _, name := range []string{direct, nginx, causeway} {
		if m := r.paths[name]; m.cut > 0 {
			_, _ = fmt.Fprintf(w, "\n%s: %d streams cut, the last one by: %v\n", name, m.cut, m.cutBy)
		}
	}
	if s.profile != "" {
		_, _ = fmt.Fprintf(w, "\nThe proxy was profiled, which costs CPU. Profiles are in %s\n", s.profile)
	}
}

// value is how JSON has a number or its absence.
func value(v float64) any {
	if math.IsNaN(v) {
		return nil
	}
	return v
}

// save writes one line about the run and one for each figure.
func (r *report) save(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	e := json.NewEncoder(f)
	e.SetEscapeHTML(false)
	err = e.Encode(map[string]any{
		"kind": "run", "begun": r.begun.UTC().Format(time.RFC3339), "seconds": r.took.Seconds(), "cpus": runtime.NumCPU(), "nginx": r.nginxVersion,
		"streams": r.settings.streams, "rate": r.settings.rate, "rounds": r.settings.rounds, "window": r.settings.seconds,
		"loadBefore": r.loadBefore, "loadAfter": r.loadAfter, "othersPercent": r.others(),
	})
	for _, v := range r.figures() {
		if err == nil {
			err = e.Encode(map[string]any{"kind": "figure", "name": strings.TrimSpace(v.name), "unit": v.unit, direct: value(v.direct), nginx: value(v.nginx),
				causeway: value(v.causeway), "ratio": value(v.ratio()), "budget": v.budget(), "met": v.met()})
		}
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func nginxVersion(ctx context.Context, binary string) string {
	text, err := exec.CommandContext(ctx, binary, "-v").CombinedOutput()
	if err != nil {
		return "of unknown version"
	}
	_, version, _ := strings.Cut(strings.TrimSpace(string(text)), "/")
	return version
}
