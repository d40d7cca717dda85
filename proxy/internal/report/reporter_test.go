package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// desk is a proxy, an API server and the reporter between them.
type desk struct {
	mu       sync.Mutex
	state    Snapshot
	fault    error
	reports  []v1alpha1.BridgeReplicaStatus
	times    []time.Time
	tries    int
	reporter *Reporter
	log      bytes.Buffer
}

func (d *desk) Patch(_ context.Context, s v1alpha1.BridgeReplicaStatus) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries++
	if d.fault != nil {
		return d.fault
	}
	d.reports, d.times = append(d.reports, s), append(d.times, time.Now())
	return nil
}

func (d *desk) source() Snapshot {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.state
	s.Accounts = append([]Account(nil), s.Accounts...)
	return s
}

func (d *desk) change(edit func(*Snapshot)) {
	d.mu.Lock()
	edit(&d.state)
	d.mu.Unlock()
	d.reporter.Changed()
	synctest.Wait()
}

func (d *desk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = err
}

func (d *desk) counts() (written, tries int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.reports), d.tries
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// open runs a reporter for the length of a test, in fake time.
func open(t *testing.T, fault error, test func(d *desk)) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{state: snapshot(), fault: fault}
		d.reporter = New(Options{Sink: d, Source: d.source, Logger: slog.New(slog.NewTextHandler(&d.log, nil))})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			d.reporter.Run(ctx)
			close(done)
		}()
		synctest.Wait()
		test(d)
		cancel()
		<-done
	})
}

func wantWritten(t *testing.T, d *desk, what string, want int) {
	t.Helper()
	if got, _ := d.counts(); got != want {
		t.Fatalf("%s: %d reports, want %d", what, got, want)
	}
}

func TestReporterWritesAtOnceThenSeldom(t *testing.T) {
	open(t, nil, func(d *desk) {
		wantWritten(t, d, "at the start", 1)
		if r := d.reports[0]; r.ReportSequence != 1 || r.ReportedAt == nil || r.ReportedAt.Nanosecond() != 0 {
			t.Errorf("first report: %+v", r)
		}
		d.change(func(s *Snapshot) { s.Config.Hash = "new" })
		wantWritten(t, d, "after a new configuration", 2)
		pass(7 * time.Minute)
		wantWritten(t, d, "idle", 2)
		pass(6 * time.Minute)
		wantWritten(t, d, "keeping fresh", 3)
		if got := d.reports[2].ReportSequence; got != 3 {
			t.Errorf("sequence %d, want 3", got)
		}
	})
}

func TestReporterBoundsItsRate(t *testing.T) {
	open(t, nil, func(d *desk) {
		for i := range 600 { // an account that flaps each second
			d.change(func(s *Snapshot) {
				s.Accounts[0].State = []string{"Usable", "CoolingDown"}[i%2]
				s.Sessions.Active = i * 100
			})
			pass(time.Second)
		}
		n, _ := d.counts()
		if most := burst + 600/int(DefaultMinInterval/time.Second); n > most || n < 25 {
			t.Errorf("%d reports in 10 minutes, want 25 to %d", n, most)
		}
	})
}

func TestB95_AThousandTurnsASecondAreFewReports(t *testing.T) {
	open(t, nil, func(d *desk) {
		for second := range 120 {
			for turn := range 1000 {
				d.change(func(s *Snapshot) { s.Sessions.Active = (second*1000 + turn) % 5000 })
			}
			pass(time.Second)
		}
		if n, _ := d.counts(); n > 4 {
			t.Errorf("%d reports in two minutes, want one a minute", n)
		}
	})
}

func TestReporterWritesCountersOnceAMinute(t *testing.T) {
	open(t, nil, func(d *desk) {
		for i := range 600 {
			d.change(func(s *Snapshot) { s.Sessions.Active = i * 100 })
			pass(time.Second)
		}
		if n, _ := d.counts(); n < 8 || n > 14 {
			t.Errorf("%d reports in 10 minutes, want about 10", n)
		}
	})
}

func TestReporterSeesWhatNobodyAnnounced(t *testing.T) {
	open(t, nil, func(d *desk) {
		d.mu.Lock()
		d.state.Accounts[0].State = "CoolingDown"
		d.mu.Unlock()
		pass(pollInterval)
		wantWritten(t, d, "after the poll", 2)
	})
}

func TestReporterRepeatsWithBackoff(t *testing.T) {
	open(t, fmt.Errorf("looking: %w", ErrNotYet), func(d *desk) {
		for range 100 { // nudges do not bypass the wait
			d.reporter.Changed()
			synctest.Wait()
		}
		if _, tries := d.counts(); tries != 1 {
			t.Fatalf("%d tries at once, want 1", tries)
		}
		pass(10 * time.Minute)
		_, tries := d.counts()
		if tries < 18 || tries > 30 {
			t.Errorf("%d tries in 10 minutes, want about 20", tries)
		}
		d.fail(errors.New("server is down"))
		pass(time.Minute)
		d.fail(nil)
		pass(40 * time.Second)
		wantWritten(t, d, "after the outage", 1)
		if n := strings.Count(d.log.String(), "\n"); n != 2 {
			t.Errorf("%d log lines, want one for the outage and one for its end:\n%s", n, d.log.String())
		}
	})
}

func TestReporterEndsInTheMiddleOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := New(Options{Sink: stuck{}, Source: func() Snapshot { return snapshot() }, Logger: slog.New(slog.DiscardHandler)})
		done := make(chan struct{})
		go func() {
			r.Run(ctx)
			close(done)
		}()
		synctest.Wait()
		cancel()
		<-done
	})
}

type stuck struct{}

func (stuck) Patch(ctx context.Context, _ v1alpha1.BridgeReplicaStatus) error {
	<-ctx.Done()
	return ctx.Err()
}
