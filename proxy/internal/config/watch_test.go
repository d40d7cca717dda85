package config

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// patience is how long a test waits for what has to come; it fails, not passes,
// when it ends.
const patience = 20 * time.Second

// seen is what a Watch reported.
type seen struct {
	t       *testing.T
	changes chan *Runtime
	rejects chan error
	log     lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func watch(t *testing.T, dir string) *seen {
	t.Helper()
	s := &seen{t: t, changes: make(chan *Runtime, 100), rejects: make(chan error, 100)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	logger := slog.New(slog.NewJSONHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	go func() {
		done <- Watch(ctx, dir, logger, func(rt *Runtime) { s.changes <- rt }, func(err error) { s.rejects <- err })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch: %v", err)
		}
		if strings.Contains(s.log.String(), canary) {
			t.Errorf("a secret was logged: %s", s.log.String())
		}
	})
	return s
}

func (s *seen) change() *Runtime {
	s.t.Helper()
	select {
	case rt := <-s.changes:
		return rt
	case err := <-s.rejects:
		s.t.Fatalf("rejected: %v", err)
	case <-time.After(patience):
		s.t.Fatal("no change seen")
	}
	return nil
}

func (s *seen) reject() error {
	s.t.Helper()
	select {
	case rt := <-s.changes:
		s.t.Fatalf("changed to %s", rt.Hash)
	case err := <-s.rejects:
		return err
	case <-time.After(patience):
		s.t.Fatal("no rejection seen")
	}
	return nil
}

func accounts(rt *Runtime) string {
	var names []string
	for _, a := range rt.Bundle.Pool.Accounts {
		names = append(names, a.Name)
	}
	return strings.Join(names, ",")
}

func TestWatchFollowsTheKubelet(t *testing.T) {
	v := newVolume(t, bundleFiles(t, 1, "a"))
	s := watch(t, v.dir)
	if got := accounts(s.change()); got != "a" {
		t.Fatalf("at first %s", got)
	}
	v.swap(bundleFiles(t, 2, "a", "b"))
	if got := accounts(s.change()); got != "a,b" {
		t.Fatalf("after a swap %s", got)
	}
	// Only the generation differs: same hash, nothing to do.
	v.swap(bundleFiles(t, 3, "a", "b"))
	v.swap(bundleFiles(t, 4, "a", "b", "c"))
	if got := accounts(s.change()); got != "a,b,c" {
		t.Fatalf("after a swap without change and one with: %s", got)
	}
}

func TestB60_WatchKeepsServingAndLogsNoSecret(t *testing.T) {
	v := newVolume(t, bundleFiles(t, 1, "a"))
	s := watch(t, v.dir)
	inUse := s.change()
	broken := bundleFiles(t, 2, "a", "b")
	broken[bundle.CredentialsFileName] = broken[bundle.CredentialsFileName][:80]
	v.swap(broken)
	var r *Rejected
	if err := s.reject(); !errors.As(err, &r) || r.Generation != 2 {
		t.Fatalf("rejected with %v", err)
	}
	v.swap(bundleFiles(t, 1, "a"))
	if got := s.change(); got.Hash != inUse.Hash {
		t.Fatal("the end of a rejection is not reported")
	}
	v.swap(bundleFiles(t, 3, "a", "b"))
	if got := accounts(s.change()); got != "a,b" {
		t.Fatalf("after the repair %s", got)
	}
}

func TestWatchReadsAFolderThatIsEditedByHand(t *testing.T) {
	dir := folder(t, bundleFiles(t, 1, "a"))
	s := watch(t, dir)
	s.change()
	for name, text := range bundleFiles(t, 2, "a", "b") { // as editors do: write aside, rename
		aside := filepath.Join(dir, ".tmp")
		check(t, os.WriteFile(aside, []byte(text), 0o600))
		check(t, os.Rename(aside, filepath.Join(dir, name)))
	}
	if got := accounts(s.change()); got != "a,b" {
		t.Fatalf("after both files %s", got)
	}
}

func TestWatchSurvivesTheLossOfItsFolder(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "config")
	write := func(files map[string]string) {
		t.Helper()
		check(t, os.Mkdir(dir, 0o700))
		for name, text := range files {
			check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	write(bundleFiles(t, 1, "a"))
	s := watch(t, dir)
	s.change()
	check(t, os.RemoveAll(dir))
	s.reject()
	for len(s.rejects) > 0 {
		<-s.rejects
	}
	write(bundleFiles(t, 2, "b"))
	for {
		select {
		case <-s.rejects: // seen half
			continue
		case rt := <-s.changes:
			if got := accounts(rt); got != "b" {
				t.Fatalf("after it came back %s", got)
			}
		case <-time.After(patience):
			t.Fatal("the new folder is not seen")
		}
		return
	}
}

func TestFollowerTellsChangesFromRepetitions(t *testing.T) {
	good := func(hash string) func() (*Runtime, error) {
		return func() (*Runtime, error) { return &Runtime{Hash: hash, Warnings: []string{"w-" + hash}}, nil }
	}
	bad := func(cause string) func() (*Runtime, error) {
		return func() (*Runtime, error) { return nil, errors.New(cause) }
	}
	var log bytes.Buffer
	var got []string
	f := &follower{
		logger:   slog.New(slog.NewTextHandler(&log, nil)),
		onChange: func(rt *Runtime) { got = append(got, rt.Hash) },
		onReject: func(err error) { got = append(got, err.Error()) },
	}
	steps := []struct {
		load func() (*Runtime, error)
		want string
		wait time.Duration
	}{
		{good("1"), "1", checkInterval},
		{good("1"), "", checkInterval},
		{bad("x"), "x", 500 * time.Millisecond},
		{bad("x"), "", time.Second},
		{bad("y"), "y", 2 * time.Second},
		{bad("y"), "", 4 * time.Second},
		{bad("y"), "", 8 * time.Second},
		{bad("y"), "", 16 * time.Second},
		{bad("y"), "", 30 * time.Second},
		{bad("y"), "", 30 * time.Second},
		{good("1"), "1", checkInterval},
		{bad("x"), "x", 500 * time.Millisecond},
		{good("2"), "2", checkInterval},
	}
	for i, step := range steps {
		got, f.load = nil, step.load
		if wait := f.read(); wait != step.wait || strings.Join(got, ",") != step.want {
			t.Errorf("step %d: reported %q, wait %s; want %q, %s", i, got, wait, step.want, step.wait)
		}
	}
	if n := strings.Count(log.String(), "w-1"); n != 2 {
		t.Errorf("warnings logged %d times, want once for each change", n)
	}
}
