package config

import (
	"context"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long a folder must rest before it is read: one change of many
	// files is many events. settle bounds the wait.
	quiet  = 100 * time.Millisecond
	settle = time.Second
	// checkInterval is how often the folder is read though nothing was heard;
	// events can be lost. blindInterval is used where the system has no more
	// file watches to give, which happens on crowded nodes.
	checkInterval = time.Minute
	blindInterval = 5 * time.Second
	// A refused configuration is read again after firstRetry, doubled up to
	// lastRetry: a write that was seen half is whole by then.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Watch follows dir until ctx ends and calls onChange with each configuration
// that differs from the one before; the first it reads is reported too, so that
// nothing is lost between a Load and a Watch. A configuration that cannot be used
// is told to onReject (with a *Rejected), once per cause, and changes nothing.
// Both are called from Watch's own goroutine. It returns nil.
func Watch(ctx context.Context, dir string, logger *slog.Logger, onChange func(*Runtime), onReject func(error)) error {
	f := &follower{load: func() (*Runtime, error) { return Load(dir) }, logger: logger, onChange: onChange, onReject: onReject}
	events := openEvents(dir, logger)
	defer events.close()
	var first time.Time // of a burst of events
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events.changes():
			if e.Op == fsnotify.Chmod {
				continue
			}
			now := time.Now()
			if first.IsZero() {
				first = now
			}
			timer.Reset(max(0, min(quiet, first.Add(settle).Sub(now))))
		case err := <-events.lost():
			logger.Debug("Reading the configuration folder, because events may have been lost", "cause", err)
			timer.Reset(quiet)
		case <-timer.C:
			first = time.Time{}
			events.renew(dir)
			wait := f.read()
			if !events.works() {
				wait = min(wait, blindInterval)
			}
			timer.Reset(wait)
		}
	}
}

// fileEvents are the events of one folder, or none.
type fileEvents struct{ watcher *fsnotify.Watcher }

func openEvents(dir string, logger *slog.Logger) fileEvents {
	w, err := fsnotify.NewWatcher()
	if err == nil {
		// The folder and not the files: the kubelet replaces a link in it.
		if err = w.Add(dir); err == nil {
			return fileEvents{w}
		}
		_ = w.Close()
	}
	logger.Warn("Watching the configuration folder fails; it is read at intervals", "error", err, "interval", blindInterval.String())
	return fileEvents{}
}

func (e fileEvents) works() bool { return e.watcher != nil }

func (e fileEvents) changes() <-chan fsnotify.Event {
	if e.watcher == nil {
		return nil
	}
	return e.watcher.Events
}

func (e fileEvents) lost() <-chan error {
	if e.watcher == nil {
		return nil
	}
	return e.watcher.Errors
}

// renew watches the folder that has the name now: it may have been replaced.
func (e fileEvents) renew(dir string) {
	if e.watcher != nil {
		_ = e.watcher.Add(dir) // a folder that is gone is what reading it reports
	}
}

func (e fileEvents) close() {
	if e.watcher != nil {
		_ = e.watcher.Close()
	}
}

// follower tells changes from repetitions.
type follower struct {
	load     func() (*Runtime, error)
	logger   *slog.Logger
	onChange func(*Runtime)
	onReject func(error)

	hash     string // of the configuration in use
	rejected string // cause of the last rejection
	failures int
}

// read loads once and returns when to load again at the latest.
func (f *follower) read() time.Duration {
	rt, err := f.load()
	if err != nil {
		f.failures++
		if cause := err.Error(); cause != f.rejected {
			f.rejected = cause
			f.logger.Error("Configuration rejected; the one before stays in use", "error", err)
			f.onReject(err)
		}
		return retryAfter(f.failures)
	}
	f.failures = 0
	// A rejection is over when the files are right again, also if they are again
	// what is in use: whoever reported the rejection has to hear of that.
	if rt.Hash == f.hash && f.rejected == "" {
		return checkInterval
	}
	f.hash, f.rejected = rt.Hash, ""
	f.logger.Info("Configuration applied", "generation", rt.Bundle.Generation, "hash", rt.Hash)
	for _, w := range rt.Warnings {
		f.logger.Warn("Configuration has a part that does not work", "warning", w)
	}
	f.onChange(rt)
	return checkInterval
}

func retryAfter(failures int) time.Duration {
	const doublings = 6 // 500 ms * 2^6 = 32 s
	return min(firstRetry<<min(failures-1, doublings), lastRetry)
}
