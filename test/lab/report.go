package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
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
	loadBefore, loadAfter string
	sections              []section
}

// section is the outcome of one experiment.
type section struct {
	// title says what was done, in one line or two.
	title   string
	figures []figure
	notes   []string
}

func (s *section) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// figure is one line of a table. Values that do not exist are NaN.
type figure struct {
	name, unit string
	// reference is what it is compared with: the same without the fault, or what
	// chance would give.
	reference, measured float64
	// times is the budget as a multiple of the reference; most is the budget as a
	// value; least likewise. NaN or 0 = none.
	times, most, least float64
	// never is a budget of 0.
	never  bool
	digits int
}

func none() float64 { return math.NaN() }

func (f figure) ratio() float64 {
	if !(f.reference > 0) {
		return none()
	}
	return f.measured / f.reference
}

func (f figure) budget() string {
	switch {
	case f.never:
		return "0"
	case f.times != 0:
		return fmt.Sprintf("≤ %g ×", f.times)
	case f.most != 0:
		return fmt.Sprintf("≤ %g", f.most)
	case f.least != 0:
		return fmt.Sprintf("≥ %g", f.least)
	}
	return ""
}

// met says whether the budget is kept; empty = there is none. What did not happen
// keeps none.
func (f figure) met() string {
	var ok bool
	switch {
	case f.never:
		ok = f.measured == 0
	case f.times != 0:
		ok = f.ratio() <= f.times
	case f.most != 0:
		ok = f.measured <= f.most
	case f.least != 0:
		ok = f.measured >= f.least
	default:
		return ""
	}
	if ok {
		return "yes"
	}
	return "no"
}

// quantile of values; NaN when there are none.
func quantile(values []time.Duration, q float64) float64 {
	if len(values) == 0 {
		return none()
	}
	sorted := slices.Sorted(slices.Values(values))
	return milliseconds(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// variation is the coefficient of variation; NaN for less than two values.
func variation(values []time.Duration) float64 {
	if len(values) < 2 {
		return none()
	}
	var sum, squares float64
	for _, v := range values {
		sum += v.Seconds()
	}
	mean := sum / float64(len(values))
	for _, v := range values {
		squares += (v.Seconds() - mean) * (v.Seconds() - mean)
	}
	return math.Sqrt(squares/float64(len(values)-1)) / mean
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return none()
	}
	return 100 * float64(part) / float64(whole)
}

func number(v float64, digits int) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.*f", digits, v)
}

func (r *report) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "\n%d CPUs; load average %s before and %s after\n", runtime.NumCPU(), r.loadBefore, r.loadAfter)
	for _, s := range r.sections {
		_, _ = fmt.Fprintf(w, "\n%s\n\n", s.title)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "\t\treference\tmeasured\tratio\tbudget\tmet")
		for _, f := range s.figures {
			_, _ = fmt.Fprintln(t, strings.Join([]string{f.name, f.unit, number(f.reference, f.digits), number(f.measured, f.digits),
				number(f.ratio(), 2), f.budget(), f.met()}, "\t"))
		}
		_ = t.Flush()
		for _, n := range s.notes {
			_, _ = fmt.Fprintln(w, n)
		}
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
	err = e.Encode(map[string]any{"kind": "run", "begun": r.begun.UTC().Format(time.RFC3339), "cpus": runtime.NumCPU(), "loadBefore": r.loadBefore,
		"loadAfter": r.loadAfter, "seconds": r.settings.seconds, "rounds": r.settings.rounds, "factor": r.settings.factor, "seed": r.settings.seed})
	for _, s := range r.sections {
		for _, v := range s.figures {
			if err == nil {
				err = e.Encode(map[string]any{"kind": "figure", "experiment": s.title, "name": strings.TrimSpace(v.name), "unit": v.unit,
					"reference": value(v.reference), "measured": value(v.measured), "ratio": value(v.ratio()), "budget": v.budget(), "met": v.met()})
			}
		}
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// loadAverage is that of the machine; empty where there is none.
func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(raw)); err == nil && len(fields) > 0 {
		return fields[0]
	}
	return "unknown"
}
