package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Roles of the binary: it starts itself for the parts whose CPU is counted apart.
const (
	roleOrigin = "origin"
	roleProxy  = "proxy"
)

// settings of a run.
type settings struct {
	streams  int
	rate     float64 // events a second of each stream
	seconds  float64 // measured, per round and target
	rounds   int
	idle     int // sessions of the memory measurement
	sessions int // sessions of the time to first event without load
	settle   time.Duration
	limit    bool
	proxy    string
	nginx    string
	json     string
	profile  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case roleOrigin:
			return runOrigin(ctx, args[1:])
		case roleProxy:
			return runProxy(ctx, args[1:])
		}
	}
	s, err := parse(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.bound(), errors.New("the run took far longer than it should"))
	defer cancel()
	b, err := newBench(ctx, s)
	if err != nil {
		return err
	}
	defer b.close()
	r, err := b.run(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		return err
	}
	r.print(os.Stdout)
	if s.json == "" {
		return nil
	}
	return r.save(s.json)
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&s.streams, "streams", 1000, "live streams")
	f.Float64Var(&s.rate, "rate", 5, "events a second of each stream")
	f.Float64Var(&s.seconds, "seconds", 6, "measured seconds of load, per round and target")
	f.IntVar(&s.rounds, "rounds", 2, "rounds of direct, nginx and causeway; all samples count")
	f.IntVar(&s.idle, "idle", 2000, "idle sessions for their memory")
	f.IntVar(&s.sessions, "sessions", 200, "sessions of two turns for the time to the first event without load")
	f.DurationVar(&s.settle, "settle", 5*time.Second, "wait before the memory of idle sessions is read")
	f.BoolVar(&s.limit, "limit", false, "also raise the rate until a tenth of the events is late or missing (takes a minute more)")
	f.StringVar(&s.proxy, "proxy", "bin/causeway-proxy", "proxy `binary`")
	f.StringVar(&s.nginx, "nginx", "nginx", "nginx `binary`")
	f.StringVar(&s.json, "json", "", "also write the figures as JSON lines to `file`")
	f.StringVar(&s.profile, "profile", "", "run the proxy inside this binary and write pprof profiles of the load to `folder`; its figures are not comparable")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	switch {
	case f.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q: all settings are flags, see -help", f.Arg(0))
	case s.streams < 1 || s.rate <= 0 || s.seconds <= 0 || s.rounds < 1 || s.idle < 1 || s.sessions < 1:
		return s, errors.New("all counts have to be positive")
	case s.rate > 200:
		return s, errors.New("-rate is at most 200: use more streams instead")
	}
	return s, s.affordable()
}

// affordable says whether the process limits allow the streams.
func (s settings) affordable() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	// A proxy holds two sockets a stream. Go raises the soft limit to the hard one
	// at the start of each process.
	const others = 300
	if need := max(2*s.streams, s.idle) + others; uint64(need) > limit.Max {
		return fmt.Errorf("this takes %d open files in one process and %d are allowed: ulimit -Hn, or fewer -streams and -idle", need, limit.Max)
	}
	return nil
}

// bound is when a run has hung.
func (s settings) bound() time.Duration {
	load := time.Duration(float64(s.rounds*3) * (s.seconds + 30) * float64(time.Second))
	if s.limit {
		load += 4 * time.Minute
	}
	return load + s.settle + time.Duration(s.idle+3*s.sessions)*50*time.Millisecond + time.Minute
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
