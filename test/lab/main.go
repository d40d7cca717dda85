package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// settings of a run.
type settings struct {
	only    string
	seconds float64 // measured, per round of stall and fairness
	rounds  int
	factor  float64 // how much faster than in life the flap goes
	seed    uint64
	proxy   string
	json    string
}

// experiment is one load with its fault.
type experiment struct {
	name string
	// bound is when it has hung.
	bound func(settings) time.Duration
	run   func(context.Context, *bed, settings) (section, error)
}

var experiments = []experiment{
	{"stall", func(s settings) time.Duration { return s.measured(2) + time.Minute }, runStall},
	{"fairness", func(s settings) time.Duration { return s.measured(2) + time.Minute }, runFairness},
	{"flap", func(s settings) time.Duration { return flapTime(s.factor) + time.Minute }, runFlap},
}

// measured is how long all rounds of some phases take.
func (s settings) measured(phases int) time.Duration {
	return time.Duration(float64(s.rounds*phases) * s.seconds * float64(time.Second))
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetOutput(io.Discard) // net/http tells it of each connection that a proxy gives up
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	r := report{settings: s, begun: time.Now(), loadBefore: loadAverage()}
	var failed []error
	for _, e := range experiments {
		if !s.wants(e.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "lab:", e.name)
		part, err := try(ctx, e, s)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", e.name, err))
		}
		if part.title != "" {
			r.sections = append(r.sections, part)
		}
	}
	r.loadAfter = loadAverage()
	r.print(os.Stdout)
	if s.json != "" {
		failed = append(failed, r.save(s.json))
	}
	return errors.Join(failed...)
}

// try runs one experiment in a bed of its own.
func try(ctx context.Context, e experiment, s settings) (section, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, e.bound(s), errors.New("it took far longer than it should"))
	defer cancel()
	b, err := newBed(s.proxy)
	if err != nil {
		return section{}, err
	}
	defer b.close()
	part, err := e.run(ctx, b, s)
	if err != nil && ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return part, err
}

func (s settings) wants(name string) bool {
	return s.only == "" || slices.Contains(strings.Split(s.only, ","), name)
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("lab", flag.ContinueOnError)
	f.StringVar(&s.only, "only", "", "`experiments`, separated by commas: stall, fairness, flap (default: all)")
	f.Float64Var(&s.seconds, "seconds", 10, "measured seconds of each round of stall and fairness")
	f.IntVar(&s.rounds, "rounds", 3, "rounds of stall and fairness, alone and with the fault; all samples count")
	f.Float64Var(&s.factor, "factor", 10, "how much faster than in life the flap goes, 1 to 15")
	f.Uint64Var(&s.seed, "seed", 1, "of what is drawn: which turns the upstream fails")
	f.StringVar(&s.proxy, "proxy", "bin/causeway-proxy", "proxy `binary`")
	f.StringVar(&s.json, "json", "", "also write the figures as JSON lines to `file`")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q: all settings are flags, see -help", f.Arg(0))
	case s.seconds <= 0 || s.rounds < 1:
		return s, errors.New("-seconds and -rounds have to be positive")
	case s.factor < 1 || s.factor > 15:
		return s, errors.New("-factor is 1 to 15: a policy has no time below a second")
	}
	for name := range strings.SplitSeq(s.only, ",") {
		if name != "" && !slices.ContainsFunc(experiments, func(e experiment) bool { return e.name == name }) {
			return s, fmt.Errorf("-only %s: there is no such experiment", name)
		}
	}
	return s, nil
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitTrue polls until done says so.
func awaitTrue(ctx context.Context, what string, limit time.Duration, done func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New(what+" did not come about in time"))
	defer cancel()
	for !done() {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
