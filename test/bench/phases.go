package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// warmUp is the time between the last stream's first event and the window.
	warmUp = 1500 * time.Millisecond
	// probing is how long turns are made beside the live streams.
	probing = 2 * time.Second
	// probePause keeps those turns from being a load of their own.
	probePause = 10 * time.Millisecond
	// fresh is how long a new process rests before its memory is read.
	fresh = 500 * time.Millisecond
	// writing is how long a profile may take to be written.
	writing = 2 * time.Second
	// idleWorkers make the turns of idle sessions.
	idleWorkers = 16
)

// bench is one run.
type bench struct {
	settings    settings
	dir         string
	certificate certificate
	origin      *originProcess
	profiles    int
	windows     usage
}

// usage is the machine's during the measured windows.
type usage struct{ busy, own, total time.Duration }

func newBench(ctx context.Context, s settings) (*bench, error) {
	for _, binary := range []struct{ name, hint string }{
		{s.nginx, "Debian: apt-get install nginx, or -nginx PATH"},
		{s.proxy, "make build, or -proxy PATH"},
	} {
		if _, err := exec.LookPath(binary.name); err != nil {
			return nil, fmt.Errorf("%w: %s", err, binary.hint)
		}
	}
	if s.profile != "" {
		if err := os.MkdirAll(s.profile, 0o750); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "causeway-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{settings: s, dir: dir}
	if b.certificate, err = newCertificate(dir); err == nil {
		b.origin, err = startOrigin(ctx, dir, b.certificate, s.rate)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() {
	if b.origin != nil {
		_ = b.origin.stdin.Close()
		b.origin.stop()
	}
	_ = os.RemoveAll(b.dir)
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (b *bench) run(ctx context.Context) (*report, error) {
	r := &report{settings: b.settings, begun: time.Now(), loadBefore: loadAverage(), nginxVersion: nginxVersion(ctx, b.settings.nginx),
		paths: map[string]*measured{direct: {}, nginx: {}, causeway: {}}}
	say("%d sessions of two turns each, one after the other", b.settings.sessions)
	for _, name := range []string{direct, nginx, causeway} {
		if err := b.turns(ctx, name, r.paths[name]); err != nil {
			return nil, fmt.Errorf("turns through %s: %w", name, err)
		}
	}
	say("Memory of %d idle sessions", b.settings.idle)
	if err := b.idle(ctx, r.paths[causeway]); err != nil {
		return nil, fmt.Errorf("idle sessions: %w", err)
	}
	for round := range b.settings.rounds {
		for _, name := range []string{direct, nginx, causeway} {
			say("Round %d of %d, %s: %d streams of %g events a second for %g s", round+1, b.settings.rounds, name, b.settings.streams, b.settings.rate, b.settings.seconds)
			if err := b.load(ctx, name, r.paths[name]); err != nil {
				return nil, fmt.Errorf("streams through %s: %w", name, err)
			}
		}
	}
	if b.settings.limit {
		for _, name := range []string{direct, nginx, causeway} {
			if err := b.limit(ctx, name, r.paths[name]); err != nil {
				return nil, fmt.Errorf("the limit of %s: %w", name, err)
			}
		}
	}
	r.windows, r.loadAfter, r.took = b.windows, loadAverage(), time.Since(r.begun)
	return r, nil
}

// measured is what is known of one path.
type measured struct {
	first, next []time.Duration // time to the first event without load

	idleEmpty, idleFull int64 // bytes
	idleSockets         int64

	latencies             []int64 // nanoseconds, of the windows
	events                int64
	due                   float64
	cpu                   time.Duration
	empty, full           []int64 // bytes, one a round
	loadFirst, loadNext   []time.Duration
	cut                   int
	cutBy                 error
	nextTurns, sameSocket int64
	limit                 float64 // events a second
}

// turns measures the time to the first event on an idle machine.
func (b *bench) turns(ctx context.Context, name string, m *measured) error {
	t, err := b.start(ctx, name)
	if err != nil {
		return err
	}
	defer t.close()
	if err := b.origin.reset(ctx); err != nil {
		return err
	}
	b.signal(ctx, t, beginProfile)
	defer b.signal(ctx, t, endProfile)
	for range b.settings.sessions {
		first, next, err := twoTurns(ctx, t)
		if err != nil {
			return t.failed(err)
		}
		m.first, m.next = append(m.first, first), append(m.next, next)
	}
	stats, err := b.origin.stats(ctx)
	m.nextTurns, m.sameSocket = int64(b.settings.sessions), stats.Anchored
	return err
}

func twoTurns(ctx context.Context, t *target) (first, next time.Duration, err error) {
	s := newSession(t)
	defer s.close()
	if first, err = s.turn(ctx); err != nil {
		return 0, 0, err
	}
	next, err = s.turn(ctx)
	return first, next, err
}

// idle measures what sessions cost that did one turn and keep their socket.
// Their clients' connections are few and gone: a client that thinks keeps none.
func (b *bench) idle(ctx context.Context, m *measured) error {
	t, err := b.start(ctx, causeway)
	if err != nil {
		return err
	}
	defer t.close()
	if err := pause(ctx, fresh); err != nil {
		return err
	}
	if m.idleEmpty, err = memoryOf(t.pid()); err != nil {
		return err
	}
	b.signal(ctx, t, beginProfile)
	var left atomic.Int64
	left.Store(int64(b.settings.idle))
	errs := make([]error, idleWorkers)
	var workers sync.WaitGroup
	for i := range errs {
		workers.Go(func() {
			for errs[i] == nil && left.Add(-1) >= 0 {
				s := newSession(t)
				_, errs[i] = s.turn(ctx)
				s.close()
			}
		})
	}
	workers.Wait()
	if err := errors.Join(errs...); err != nil {
		return t.failed(err)
	}
	if err := pause(ctx, b.settings.settle); err != nil {
		return err
	}
	stats, err := b.origin.stats(ctx)
	if err != nil {
		return err
	}
	m.idleSockets = stats.Sockets
	m.idleFull, err = memoryOf(t.pid())
	b.signal(ctx, t, endProfile)
	return err
}

// load measures live streams: latency, CPU and memory in a window, then turns
// beside them.
func (b *bench) load(ctx context.Context, name string, m *measured) error {
	t, err := b.start(ctx, name)
	if err != nil {
		return err
	}
	defer t.close()
	if err := pause(ctx, fresh); err != nil {
		return err
	}
	if t.process != nil {
		empty, err := memoryOf(t.pid())
		if err != nil {
			return err
		}
		m.empty = append(m.empty, empty)
	}
	f, err := b.openFleet(ctx, t)
	if err != nil {
		return err
	}
	defer f.end()
	if err := pause(ctx, warmUp); err != nil {
		return err
	}
	begun, ended, err := b.window(ctx, t, f, m)
	if err != nil {
		return err
	}
	for until := time.Now().Add(probing); time.Now().Before(until); {
		first, next, err := twoTurns(ctx, t)
		if err != nil {
			return t.failed(err)
		}
		m.loadFirst, m.loadNext = append(m.loadFirst, first), append(m.loadNext, next)
		if err := pause(ctx, probePause); err != nil {
			return err
		}
	}
	if err := f.finish(ctx, b.origin); err != nil {
		return t.failed(err)
	}
	for _, s := range f.sessions {
		for _, e := range s.samples {
			if e.sent >= begun && e.sent < ended {
				m.latencies = append(m.latencies, e.took)
			}
		}
	}
	if n, err := f.cutStreams(); n > 0 {
		m.cut, m.cutBy = m.cut+n, err
	}
	return nil
}

// counters are read at both ends of a window.
type counters struct {
	at       time.Time
	received int64
	cpu      time.Duration
	own      time.Duration // of everything that the run started, and of itself
	machine  machine
}

func (b *bench) count(t *target, f *fleet) (c counters, err error) {
	c.at, c.received = time.Now(), f.received.Load()
	if t.process != nil {
		if c.cpu, err = cpuOf(t.pid()); err != nil {
			return c, err
		}
	}
	if c.own, err = cpuOf(os.Getpid()); err != nil { // the others are its children
		return c, err
	}
	c.machine, err = readMachine()
	return c, err
}

func (b *bench) window(ctx context.Context, t *target, f *fleet, m *measured) (begun, ended int64, err error) {
	b.signal(ctx, t, beginProfile)
	before, err := b.count(t, f)
	if err != nil {
		return 0, 0, err
	}
	if err := pause(ctx, time.Duration(b.settings.seconds*float64(time.Second))); err != nil {
		return 0, 0, err
	}
	after, err := b.count(t, f)
	if err != nil {
		return 0, 0, err
	}
	if t.process != nil {
		full, err := memoryOf(t.pid())
		if err != nil {
			return 0, 0, err
		}
		m.full = append(m.full, full)
	}
	b.signal(ctx, t, endProfile)
	m.events += after.received - before.received
	m.due += float64(b.settings.streams) * b.settings.rate * after.at.Sub(before.at).Seconds()
	m.cpu += after.cpu - before.cpu
	b.windows.busy += after.machine.busy - before.machine.busy
	b.windows.total += after.machine.total - before.machine.total
	b.windows.own += after.own - before.own
	return before.at.UnixNano(), after.at.UnixNano(), nil
}

// signal tells a proxy that runs in this binary about its profile. At the end of
// one, the state is still the measured one while it is written.
func (b *bench) signal(ctx context.Context, t *target, s os.Signal) {
	if b.settings.profile == "" || t.name != causeway {
		return
	}
	_ = t.cmd.Process.Signal(s)
	if s == endProfile {
		_ = pause(ctx, writing)
	}
}

// Steps of the search for the limit.
const (
	stepSeconds = 3
	lateAfter   = 100 * time.Millisecond
	lateShare   = 0.1
	maxRate     = 200
)

// limit doubles the rate until a tenth of the events is late or missing. The
// last rate before that counts; the path without a proxy shows what client and
// origin can do.
func (b *bench) limit(ctx context.Context, name string, m *measured) error {
	t, err := b.start(ctx, name)
	if err != nil {
		return err
	}
	defer t.close()
	if err := b.origin.rate(ctx, b.settings.rate); err != nil {
		return err
	}
	f, err := b.openFleet(ctx, t)
	if err != nil {
		return err
	}
	type step struct {
		begun, ended int64
		got, due     float64
	}
	var steps []step
	for rate := b.settings.rate; rate <= maxRate; rate *= 1.5 {
		say("Limit of %s: %.0f events a second", name, rate*float64(b.settings.streams))
		if err := b.origin.rate(ctx, rate); err != nil {
			return err
		}
		if err := pause(ctx, time.Second/2); err != nil {
			return err
		}
		begun, before := time.Now(), f.received.Load()
		if err := pause(ctx, stepSeconds*time.Second); err != nil {
			return err
		}
		ended := time.Now()
		s := step{begun.UnixNano(), ended.UnixNano(), float64(f.received.Load() - before), rate * float64(b.settings.streams) * ended.Sub(begun).Seconds()}
		steps = append(steps, s)
		if s.got < (1-lateShare)*s.due {
			break
		}
	}
	if err := b.origin.rate(ctx, b.settings.rate); err != nil {
		return err
	}
	f.end() // what is still under way does not matter
	for _, s := range steps {
		late := 0
		for _, c := range f.sessions {
			for _, e := range c.samples {
				if e.sent >= s.begun && e.sent < s.ended && e.took > int64(lateAfter) {
					late++
				}
			}
		}
		if s.got < (1-lateShare)*s.due || float64(late) > lateShare*s.got {
			break
		}
		m.limit = s.got / (float64(s.ended-s.begun) / float64(time.Second))
	}
	return nil
}
