package activation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/causeway-dev/causeway/api/bundle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("connection refused")

// world is an API server with one Lease, and the pods of both slots. All of it
// lives in one bubble of synctest.
type world struct {
	t     *testing.T
	began time.Time

	mu      sync.Mutex // guards all below
	exists  bool
	lease   Sight
	version int
	down    bool // for everybody
	pods    []*pod
	nonces  int
	// epochs are those under which somebody became captain, in order.
	epochs []int64
}

// pod is one process with its keeper.
type pod struct {
	*Keeper
	w     *world
	name  string
	slot  string
	ended chan struct{}
	kill  context.CancelFunc

	mu       sync.Mutex // guards all below
	cut      bool       // from the API server
	going    bool
	suspend  time.Duration // by which the machine's clock ran on while it slept
	thawed   chan struct{} // open while the process stands still; nil = it runs
	watching func(Sight)
}

func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, began: time.Now(), exists: true, version: 1, lease: Sight{Next: "blue", Version: "1"}}
		defer func() {
			for _, p := range w.pods {
				p.thaw()
				p.end()
			}
		}()
		f(w)
	})
}

func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// start runs a process in a pod.
func (w *world) start(slot string, n int) *pod {
	w.mu.Lock()
	w.nonces++
	nonce := strconv.Itoa(w.nonces)
	w.mu.Unlock()
	p := &pod{w: w, slot: slot, name: fmt.Sprintf("%s-%d", slot, n), ended: make(chan struct{})}
	p.Keeper = NewKeeper(Options{
		Leases: p, Me: bundle.Holder{Slot: slot, Pod: p.name, UID: "uid", Nonce: nonce}, Terms: p.terms, Eligible: p.stays,
		Now: p.now, Wall: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	p.kill = cancel
	go func() {
		defer close(p.ended)
		p.Run(ctx)
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = append(w.pods, p)
	return p
}

// terms also holds the process still: everything that a keeper does begins here.
func (p *pod) terms() (Terms, bool) {
	p.mu.Lock()
	thawed := p.thawed
	p.mu.Unlock()
	if thawed != nil {
		<-thawed
	}
	return terms, true
}

func (p *pod) now() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.w.began) + p.suspend
}

func (p *pod) stays() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.going
}

// leave is SIGTERM: the process stays until end.
func (p *pod) leave() {
	p.mu.Lock()
	p.going = true
	p.mu.Unlock()
	p.Wake()
}

// end is SIGKILL.
func (p *pod) end() {
	p.kill()
	<-p.ended
}

func (p *pod) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thawed == nil {
		p.thawed = make(chan struct{})
	}
}

func (p *pod) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thawed != nil {
		close(p.thawed)
		p.thawed = nil
	}
}

func (p *pod) frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thawed != nil
}

func (p *pod) partition(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

func (p *pod) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

func (p *pod) Read(context.Context) (Sight, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.down || p.isCut():
		return Sight{}, errDown
	case !w.exists:
		return Sight{}, ErrNoLease
	}
	return w.lease, nil
}

func (p *pod) Write(_ context.Context, s Sight) (Sight, error) {
	w := p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.down || p.isCut():
		return Sight{}, errDown
	case !w.exists:
		return Sight{}, ErrNoLease
	case s.Version != w.lease.Version:
		return Sight{}, ErrConflict
	}
	if s.Holder.Pod != "" && s.Holder != w.lease.Holder {
		w.epochs = append(w.epochs, s.Epoch)
	}
	return w.put(s), nil
}

// put is called under mu.
func (w *world) put(s Sight) Sight {
	w.version++
	s.Version = strconv.Itoa(w.version)
	w.lease = s
	for _, p := range w.pods {
		p.mu.Lock()
		seen := p.watching
		if p.cut || w.down || p.thawed != nil {
			seen = nil // a watch may miss something
		}
		p.mu.Unlock()
		if seen != nil {
			go seen(s)
		}
	}
	return s
}

func (p *pod) Watch(ctx context.Context, seen func(Sight)) {
	p.mu.Lock()
	p.watching = seen
	p.mu.Unlock()
	if s, err := p.Read(ctx); err == nil {
		seen(s) // a watch begins with a list
	}
	<-ctx.Done()
	p.mu.Lock()
	p.watching = nil
	p.mu.Unlock()
}

// edit changes the Lease as somebody with kubectl, or the operator, would.
func (w *world) edit(change func(*Sight)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.exists {
		return
	}
	s := w.lease
	change(&s)
	w.put(s)
}

// ask is what the operator does for a hand-over.
func (w *world) ask(slot string) { w.edit(func(s *Sight) { s.Next = slot }) }

func (w *world) remove() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exists = false
}

// remake is what the operator does about a Lease that is gone.
func (w *world) remake(next string, epoch int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.exists {
		w.exists = true
		w.put(Sight{Next: next, Epoch: epoch})
	}
}

func (w *world) outage(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
}

func (w *world) seen() Sight {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lease
}

// expect checks the modes of pods and returns their epoch.
func expect(t *testing.T, what string, want Mode, pods ...*pod) int64 {
	t.Helper()
	var epoch int64
	for _, p := range pods {
		v := p.Verdict()
		if v.Mode != want {
			t.Fatalf("%s: %s has %v, want %v", what, p.name, v.Mode, want)
		}
		epoch = max(epoch, v.Epoch)
	}
	return epoch
}
