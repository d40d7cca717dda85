package report

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

const (
	// pollInterval is how soon a change is seen that nobody announced, such as
	// the end of a cool-down.
	pollInterval = 5 * time.Second
	// Failed writes are repeated after firstRetry, doubled up to lastRetry. The
	// object is created by the operator and may come later than the pod.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// writeTimeout bounds one write.
	writeTimeout = 10 * time.Second
)

// Sink takes reports. Errors that wrap ErrNotYet are expected.
type Sink interface {
	Patch(ctx context.Context, status v1alpha1.BridgeReplicaStatus) error
}

// ErrNotYet says that the object to write to does not exist yet.
var ErrNotYet = errors.New("the BridgeReplica does not exist yet")

// Clock is the time the reporter lives by; clock.RealClock is one.
type Clock interface {
	Now() time.Time
	NewTimer(d time.Duration) clock.Timer
}

// Options of a Reporter.
type Options struct {
	// Sink to write to; see NewAPISink.
	Sink Sink
	// Source returns the present state. It must not block.
	Source func() Snapshot
	// Clock; nil = the real one.
	Clock  Clock
	Logger *slog.Logger
	// Written is told of each write; nil = nobody.
	Written func(err error)
}

// Reporter writes this pod's report when there is something to say.
type Reporter struct {
	options Options
	nudge   chan struct{}

	// Owned by Run.
	last     written
	budget   budget
	sequence int64
	failures int
	dates    dates
}

// New returns a reporter that does nothing before Run.
func New(o Options) *Reporter {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Written == nil {
		o.Written = func(error) {}
	}
	return &Reporter{options: o, nudge: make(chan struct{}, 1), dates: dates{}}
}

// Changed says that the state has changed. It never blocks.
func (r *Reporter) Changed() {
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// Run reports until ctx ends. Failures of the API server are logged once per
// outage and cost nothing else.
func (r *Reporter) Run(ctx context.Context) {
	r.budget = newBudget(r.options.Clock.Now(), r.options.Source().MinInterval, rand.Float64)
	for {
		timer := r.options.Clock.NewTimer(r.step(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-r.nudge:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// step writes if it is time to and returns how long to sleep.
func (r *Reporter) step(ctx context.Context) time.Duration {
	snapshot := r.options.Source()
	now := r.options.Clock.Now()
	snapshot.Accounts = r.dates.date(snapshot.Accounts, now)
	status := statusOf(snapshot)
	write, wait := next(now, r.last, status, r.budget)
	if !write {
		return min(wait, pollInterval)
	}
	sent := status
	sent.ReportSequence = r.sequence + 1
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	sent.ReportedAt = &at
	bounded, cancel := context.WithTimeout(ctx, writeTimeout)
	err := r.options.Sink.Patch(bounded, sent)
	cancel()
	if ctx.Err() != nil {
		return pollInterval
	}
	r.options.Written(err)
	if err != nil {
		return r.failed(ctx, err)
	}
	if r.failures > 0 {
		r.options.Logger.Info("Reporting works again", "failures", r.failures)
	}
	r.failures, r.sequence, r.last = 0, r.sequence+1, written{status: status, at: now}
	r.budget = r.budget.spent(now).paced(snapshot.MinInterval, rand.Float64)
	return 0
}

// failed notes the failure and returns the time until the next try.
func (r *Reporter) failed(ctx context.Context, err error) time.Duration {
	if r.failures++; r.failures == 1 {
		level := slog.LevelWarn
		if errors.Is(err, ErrNotYet) {
			level = slog.LevelInfo
		}
		r.options.Logger.Log(ctx, level, "Reporting fails and is repeated; traffic is not affected", "error", err)
	}
	delay := lastRetry
	if doublings := r.failures - 1; doublings < 5 {
		delay = min(firstRetry<<doublings, lastRetry)
	}
	delay += time.Duration(rand.Float64() * float64(delay) / 5) //nolint:gosec // spreads load, guards nothing
	r.budget.notBefore = r.options.Clock.Now().Add(delay)
	return min(delay, pollInterval)
}
