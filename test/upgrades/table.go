package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// entry is one thing that was done.
type entry struct {
	act, what    string
	began, ended time.Time
}

// table is what came of a run.
type table struct {
	load    *load
	began   time.Time
	entries []entry
}

func (t *table) note(act, what string, began, ended time.Time) {
	t.entries = append(t.entries, entry{act, what, began, ended})
	turns, streams, failed := t.within(began, ended)
	fmt.Printf("%s: %s, %s; %d turns, %d streams ended, %d failed %s\n", act, ended.Sub(began).Round(time.Second), what,
		len(turns), streams, failed, t.example(began, ended))
}

// within sorts what began in a span: how long turns took until the head of their
// answer, how many streams ended, and how much failed.
func (t *table) within(began, ended time.Time) (waits []time.Duration, streams, failed int) {
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	for _, o := range t.load.done {
		at := o.began
		if o.stream {
			at = o.ended
		}
		if at.Before(began) || at.After(ended) {
			continue
		}
		switch {
		case o.failure != "":
			failed++
		case o.stream:
			streams++
		default:
			waits = append(waits, o.first.Sub(o.began))
		}
	}
	slices.Sort(waits)
	return waits, streams, failed
}

// example is one failure of a span.
func (t *table) example(began, ended time.Time) string {
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	for _, o := range t.load.done {
		if o.failure != "" && o.ended.After(began) && !o.began.After(ended) {
			return o.failure
		}
	}
	return ""
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// usual is what a turn takes while nothing happens.
func (t *table) usual() time.Duration {
	waits, _, _ := t.within(t.entries[0].began, t.entries[0].ended)
	return quantile(waits, 0.5)
}

func (t *table) print(duplicates int) {
	usual := t.usual()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nwhat\ttook\tturns\tstreams ended\tfailed\tadded wait p50\tp99\tmost\tsteps")
	for _, e := range t.entries {
		waits, streams, failed := t.within(e.began, e.ended)
		added := func(q float64) time.Duration { return max(quantile(waits, q)-usual, 0).Round(time.Millisecond) }
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", e.act, e.ended.Sub(e.began).Round(time.Second), len(waits), streams, failed,
			added(0.5), added(0.99), added(1), e.what)
	}
	_ = w.Flush()
	waits, streams, failed := t.within(t.began.Add(-time.Hour), time.Now())
	fmt.Printf("\nall: %d turns, %d streams, %d failed, %d sent twice; added wait p99 %s\n", len(waits), streams, failed, duplicates,
		max(quantile(waits, 0.99)-usual, 0).Round(time.Millisecond))
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	shown := 0
	for _, o := range t.load.done {
		if o.failure != "" && shown < 20 {
			shown++
			fmt.Printf("failed after %s: %s\n", o.ended.Sub(o.began).Round(time.Millisecond), o.failure)
		}
	}
}

// verdict says what was promised and not held. Turns that a Service sends to a process
// that stands still wait for it, whatever anybody else does.
func (t *table) verdict(duplicates int) (err error) {
	_, _, failed := t.within(t.began.Add(-time.Hour), time.Now())
	if failed > 0 {
		err = fmt.Errorf("%d turns failed or streams were cut", failed)
	}
	if duplicates > 0 {
		err = errors.Join(err, fmt.Errorf("%d turns were sent twice", duplicates))
	}
	for _, e := range t.entries {
		waits, _, _ := t.within(e.began, e.ended)
		if added, most := quantile(waits, 0.99)-t.usual(), t.load.maxAdded; most > 0 && added > most && e.act != "freeze" {
			err = errors.Join(err, fmt.Errorf("%s: p99 of the added wait is %s, more than %s", e.act, added, most))
		}
	}
	return err
}
