package proxy

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/activation"
	"github.com/causeway-dev/causeway/test/upstream"
)

// lease stands in for the API server: one Lease, and what each process sees of it.
type lease struct {
	mu       sync.Mutex // guards all below
	now      activation.Sight
	version  int
	watching map[*sight]func(activation.Sight)
}

// sight is one process' way to the lease.
type sight struct {
	*lease
	mu  sync.Mutex // guards old
	old *activation.Sight
}

func newLease() *lease {
	return &lease{now: activation.Sight{Version: "1"}, version: 1, watching: map[*sight]func(activation.Sight){}}
}

func (l *lease) change(do func(*activation.Sight)) {
	l.mu.Lock()
	version := l.now.Version
	l.mu.Unlock()
	if _, err := l.swap(version, do); err != nil {
		l.change(do) // somebody was quicker
	}
}

// swap changes a version of the lease.
func (l *lease) swap(version string, do func(*activation.Sight)) (activation.Sight, error) {
	l.mu.Lock()
	if l.now.Version != version {
		l.mu.Unlock()
		return activation.Sight{}, activation.ErrConflict
	}
	do(&l.now)
	l.version++
	l.now.Version = strconv.Itoa(l.version)
	now := l.now
	var tell []func(activation.Sight)
	for s, seen := range l.watching {
		if !s.blind() {
			tell = append(tell, seen)
		}
	}
	l.mu.Unlock()
	for _, seen := range tell {
		go seen(now)
	}
	return now, nil
}

// ask is what the operator does.
func (l *lease) ask(slot string) { l.change(func(s *activation.Sight) { s.Next = slot }) }

func (l *lease) seen() activation.Sight {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// stop lets the process see what there was until now, until look.
func (s *sight) stop() {
	now := s.seen()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old = &now
}

func (s *sight) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.old = nil
}

func (s *sight) blind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.old != nil
}

func (s *sight) Read(context.Context) (activation.Sight, error) {
	s.mu.Lock()
	old := s.old
	s.mu.Unlock()
	if old != nil {
		return *old, nil
	}
	return s.seen(), nil
}

func (s *sight) Write(_ context.Context, to activation.Sight) (activation.Sight, error) {
	if s.blind() {
		return activation.Sight{}, activation.ErrConflict
	}
	return s.swap(to.Version, func(now *activation.Sight) { *now = to })
}

func (s *sight) Watch(ctx context.Context, seen func(activation.Sight)) {
	s.lease.mu.Lock()
	s.watching[s] = seen
	now := s.now
	s.lease.mu.Unlock()
	seen(now)
	<-ctx.Done()
	s.lease.mu.Lock()
	defer s.lease.mu.Unlock()
	delete(s.watching, s)
}

// slots is a bridge with two pods in each of its slots, of which blue begins.
type slots struct {
	*testing.T
	up    *upstream.Server
	lease *lease
	fleet map[string]*fleet
	pods  map[string]*proxied
	sight map[string]*sight
	hold  int
}

func newSlots(t *testing.T, script upstream.Script) *slots {
	t.Helper()
	s := &slots{T: t, lease: newLease(), fleet: map[string]*fleet{"blue": newFleet(), "green": newFleet()}, pods: map[string]*proxied{},
		sight: map[string]*sight{}, hold: 30, up: upstream.Start(t, upstream.Options{Accounts: map[string]string{secretKey: "first"}, Script: script})}
	s.lease.ask("blue")
	for _, name := range []string{"blue-0", "blue-1", "green-0", "green-1"} {
		s.launch(name)
	}
	s.await("blue")
	return s
}

// inPod says to a proxy that Kubernetes sends it its clients.
var inPod = map[string]string{"KUBERNETES_SERVICE_HOST": "127.0.0.1"}

func (s *slots) launch(name string) {
	s.Helper()
	slot, _, _ := strings.Cut(name, "-")
	other := map[string]string{"blue": "green", "green": "blue"}[slot]
	s.sight[name] = &sight{lease: s.lease}
	p := launchWith(s.T, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60, SoftSeconds: 600}, inPod, func(o *Options) {
		o.PeerListen, o.Replicas = "127.0.0.1:0", s.fleet[slot].replicas(name)
		o.Slots = &Slots{Slot: slot, Leases: s.sight[name], Other: s.fleet[other].follow(name)}
	})
	s.pods[name] = p
	p.peerKeys = []string{peerKey}
	p.configure(s.T, s.up.URL+"/v1", bundle.Drain{PodGraceSeconds: 60, SoftSeconds: 600, EndpointLagSeconds: 2}, firstKey)
	p.awaitConfiguration(s.T)
	p.edit(s.T, func(b *bundle.Bundle) {
		b.Activation = &bundle.Activation{Lease: "bridge-activation", HoldSeconds: s.hold, LeaseSeconds: 30, RenewSeconds: 20, RetrySeconds: 5}
	})
}

// await returns when a slot serves and the other one relays.
func (s *slots) await(slot string) {
	s.Helper()
	for name, p := range s.pods {
		mode := `causeway_proxy_authority{state="relay"}`
		if strings.HasPrefix(name, slot) {
			mode = `causeway_proxy_authority{state="serve"}`
		}
		if s.sight[name].blind() {
			continue
		}
		p.until(s.T, name+" knows that "+slot+" has authority", func() bool { return p.metric(s.T, mode) == "1" })
	}
}

// post sends a turn of a thread to a pod.
func (s *slots) post(ctx context.Context, pod, thread, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.pods[pod].data+"/v1/responses", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + firstKey, "Thread-Id": thread, "Session-Id": thread} {
		req.Header.Set(name, value)
	}
	return s.pods[pod].client.Do(req)
}

// turn is a turn that must go well; it returns the answer's head.
func (s *slots) turn(pod, thread string, c *talk, text string) http.Header {
	s.Helper()
	header, err := s.tryTurn(pod, thread, c, text)
	if err != nil {
		s.Fatal(err)
	}
	return header
}

func (s *slots) tryTurn(pod, thread string, c *talk, text string) (http.Header, error) {
	res, err := s.post(s.Context(), pod, thread, c.next(text))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var b strings.Builder
	if _, err = bufio.NewReader(res.Body).WriteTo(&b); err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK || strings.Count(b.String(), "event: response.completed\n") != 1 {
		return nil, fmt.Errorf("%s at %s: %d %.300q", thread, pod, res.StatusCode, b.String())
	}
	c.heard(b.String())
	return res.Header, nil
}

func (s *slots) dispatches() int { return len(s.up.Ledger().Dispatches()) }

func (s *slots) once() {
	s.Helper()
	if d := s.up.Ledger().Duplicates(); len(d) > 0 {
		s.Errorf("%d turns were dispatched twice", len(d))
	}
}
