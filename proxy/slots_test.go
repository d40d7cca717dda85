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

	"github.com/tidwall/gjson"

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
		mode := `causeway_proxy_authority{mode="relay"}`
		if strings.HasPrefix(name, slot) {
			mode = `causeway_proxy_authority{mode="serve"}`
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

// Conversations go on at both slots while authority changes hands, again and again:
// no turn fails, none is sent twice, and the epoch counts the hand-overs.
func TestT34_TurnsGoOnThroughHandOvers(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	pods := []string{"blue-0", "blue-1", "green-0", "green-1"}
	ctx, stop := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	for n := range 8 {
		tasks.Go(func() {
			var c talk
			for turn := 0; ctx.Err() == nil; turn++ {
				if _, err := s.tryTurn(pods[(n+turn)%len(pods)], fmt.Sprint("thread-", n), &c, fmt.Sprint("turn ", turn)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	const handOvers = 6
	for i := range handOvers {
		slot := []string{"green", "blue"}[i%2]
		s.lease.ask(slot)
		s.await(slot)
	}
	stop()
	tasks.Wait()
	s.once()
	if epoch := s.lease.seen().Epoch; epoch != handOvers+1 {
		t.Errorf("epoch %d, want %d", epoch, handOvers+1)
	}
	if s.dispatches() < 8*handOvers {
		t.Errorf("%d turns only: nothing was proved", s.dispatches())
	}
}

// A stream that runs when its slot loses authority ends where it began, and well.
func TestT35_AStreamOutlivesItsSlotsAuthority(t *testing.T) {
	s := newSlots(t, upstream.Script{Rules: []upstream.Rule{{
		Match: upstream.Match{Session: "long"}, Fault: &upstream.Fault{At: upstream.AtAfterCreated, Action: upstream.ActHold}}}})
	var c talk
	res, err := s.post(t.Context(), "blue-0", "long", c.next("a long one"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	s.lease.ask("green")
	s.await("green")
	var other talk
	s.turn("blue-0", "short", &other, "while it runs")
	s.up.Release()
	var b strings.Builder
	if _, err := bufio.NewReader(res.Body).WriteTo(&b); err != nil || strings.Count(b.String(), "event: response.completed\n") != 1 {
		t.Fatalf("%v %.300q", err, b.String())
	}
	s.once()
}

// A turn that builds on a response of a socket which is still there goes to it,
// wherever its client comes; a whole one starts afresh with the slot that serves.
func TestT36_WhatBuildsOnASocketGoesToIt(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	ask := func(pod, previous string) string {
		t.Helper()
		body := fmt.Sprintf(`{"model":"gpt-5.5","input":"hello, %s","store":false}`, pod)
		if previous != "" {
			body = fmt.Sprintf(`{"model":"gpt-5.5","previous_response_id":%q,"input":[{"type":"message","role":"user","content":"go on"}],"store":false}`, previous)
		}
		res, err := s.post(t.Context(), pod, "chain", body)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var b strings.Builder
		_, _ = bufio.NewReader(res.Body).WriteTo(&b)
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", pod, res.StatusCode, b.String())
		}
		return gjson.Get(b.String(), "id").Str
	}
	first := ask("blue-0", "")
	second := ask("blue-1", first)
	s.lease.ask("green")
	s.await("green")
	third := ask("blue-0", second)  // a connection that was kept alive
	fourth := ask("green-1", third) // one that is new
	dispatches := s.up.Ledger().Dispatches()
	sockets := map[int64]bool{}
	for _, d := range dispatches {
		sockets[d.Connection] = true
	}
	if len(dispatches) != 4 || len(sockets) != 1 || fourth == "" {
		t.Fatalf("%d turns on %d sockets, want four on one", len(dispatches), len(sockets))
	}
	fifth := ask("green-0", "")
	if all := s.up.Ledger().Dispatches(); sockets[all[len(all)-1].Connection] {
		t.Error("a whole conversation went to the slot that drains")
	}
	// What builds on the new slot's answer is the new slot's, though the old one still
	// has a session of the same name.
	sixth := ask("green-1", fifth)
	seventh := ask("blue-1", sixth)
	ask("green-0", seventh)
	for _, d := range s.up.Ledger().Dispatches()[4:] {
		if sockets[d.Connection] {
			t.Errorf("turn %d went to a session of the old slot", d.Turn)
		}
	}
	s.once()
}

// A pod that knows of an old hand-over relays to a slot that has lost authority
// since: it is told so before the body is sent, looks again and serves by itself.
func TestT40_OldKnowledgeIsCorrected(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	s.lease.ask("green")
	s.await("green")
	s.sight["blue-0"].stop()
	s.lease.ask("blue")
	s.await("blue")
	before := s.pods["green-0"].metric(t, `causeway_proxy_client_bytes_total{direction="received"}`)
	done := make(chan error, 1)
	go func() {
		var c talk
		_, err := s.tryTurn("blue-0", "late", &c, "hello")
		done <- err
	}()
	s.pods["blue-0"].until(t, "a refusal", func() bool {
		return s.pods["blue-0"].metric(t, `causeway_proxy_peer_forwards_total{outcome="rejected"}`) > "0"
	})
	s.sight["blue-0"].look()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if after := s.pods["green-0"].metric(t, `causeway_proxy_client_bytes_total{direction="received"}`); after != before {
		t.Error("green took the body of a turn that it cannot serve")
	}
	if s.dispatches() != 1 {
		t.Errorf("%d dispatches", s.dispatches())
	}
}

// A slot whose proxies cannot be reached is waited for.
func TestT41_ASlotThatIsNotThereYetIsWaitedFor(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	s.lease.ask("green")
	s.await("green")
	s.fleet["green"].set("green-0", false)
	s.fleet["green"].set("green-1", false)
	done := make(chan error, 1)
	go func() {
		var c talk
		_, err := s.tryTurn("blue-0", "patient", &c, "hello")
		done <- err
	}()
	waits := func() bool { return s.pods["blue-0"].metric(t, "causeway_proxy_turns_held") == "1" }
	s.pods["blue-0"].until(t, "a turn that waits", waits)
	s.fleet["green"].set("green-1", true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s.dispatches() != 1 {
		t.Errorf("%d dispatches", s.dispatches())
	}
}

func TestT42_WaitingHasAnEnd(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	p := s.pods["blue-0"]
	p.edit(t, func(b *bundle.Bundle) { b.Activation.HoldSeconds = 1 })
	s.lease.change(func(now *activation.Sight) { now.Next = "nobody" }) // a hand-over that does not come to its end
	p.until(t, "no authority", func() bool { return p.metric(t, `causeway_proxy_authority{mode="hold"}`) == "1" })
	var c talk
	res, err := s.post(t.Context(), "blue-0", "impatient", c.next("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var b strings.Builder
	_, _ = bufio.NewReader(res.Body).WriteTo(&b)
	if res.StatusCode != http.StatusServiceUnavailable || gjson.Get(b.String(), "error.code").Str != "handoff_hold_timeout" || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", res.StatusCode, b.String(), res.Header)
	}
	if s.dispatches() != 0 {
		t.Error("it was sent")
	}
}

func TestT43_AClientThatLeavesWhileItWaitsIsForgotten(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	p := s.pods["blue-0"]
	s.lease.change(func(now *activation.Sight) { now.Next = "nobody" })
	p.until(t, "no authority", func() bool { return p.metric(t, `causeway_proxy_authority{mode="hold"}`) == "1" })
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		var c talk
		if res, err := s.post(ctx, "blue-0", "gone", c.next("hello")); err == nil {
			_ = res.Body.Close()
		}
	}()
	p.until(t, "a turn that waits", func() bool { return p.metric(t, "causeway_proxy_turns_held") == "1" })
	leave()
	<-done
	p.until(t, "nobody waits", func() bool { return p.metric(t, "causeway_proxy_turns_held") == "0" })
	s.lease.ask("blue")
	s.await("blue")
	var c talk
	s.turn("blue-0", "here", &c, "hello")
	if s.dispatches() != 1 {
		t.Errorf("%d dispatches, want that of the client that stayed", s.dispatches())
	}
}

// A client on a connection of the slot that drains is told to connect anew.
func TestADrainingSlotSendsItsClientsAway(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	var c talk
	if h := s.turn("blue-0", "moving", &c, "before"); strings.EqualFold(h.Get("Connection"), "close") {
		t.Error("connections end while nothing happens")
	}
	s.lease.ask("green")
	s.await("green")
	res, err := s.post(t.Context(), "blue-0", "moving", c.next("after"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if !res.Close {
		t.Error("the client stays on its connection")
	}
	_, _ = bufio.NewReader(res.Body).WriteTo(&strings.Builder{})
	s.once()
}

// A pod that is asked to end lets its siblings take new turns, ends the streams it
// has, and closes no connection on which a client is about to ask again.
func TestT54_APodThatEndsFailsNobody(t *testing.T) {
	s := newSlots(t, upstream.Script{Rules: []upstream.Rule{{
		Match: upstream.Match{Session: "long"}, Fault: &upstream.Fault{At: upstream.AtAfterCreated, Action: upstream.ActHold}}}})
	p := s.pods["blue-0"]
	var c talk
	res, err := s.post(t.Context(), "blue-0", "long", c.next("a long one"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	s.fleet["blue"].set("blue-0", false) // its readiness is off
	p.stop()
	p.until(t, "the end of readiness", func() bool { return p.status(t, p.ops+"/readyz", "") == http.StatusServiceUnavailable })
	served := func(pod string) string {
		return s.pods[pod].metric(t, `causeway_proxy_client_bytes_total{direction="received"}`)
	}
	before := served("blue-1")
	for n := range 3 {
		var other talk
		s.turn("blue-0", fmt.Sprint("new-", n), &other, "hello")
	}
	if served("blue-1") == before {
		t.Error("no sibling took a turn of the pod that ends")
	}
	s.up.Release()
	var b strings.Builder
	if _, err := bufio.NewReader(res.Body).WriteTo(&b); err != nil || strings.Count(b.String(), "event: response.completed\n") != 1 {
		t.Fatalf("%v %.300q", err, b.String())
	}
	// The head of that stream was written before the end was known, so that its client
	// keeps the connection, and asks again on it at once.
	s.turn("blue-0", "at-once", &c, "and now?")
	if err := <-p.ended; err != nil {
		t.Fatal(err)
	}
	p.ended <- nil // for the end of the test
	s.once()
	delete(s.pods, "blue-0")
}

// Fifty streams that run when the pod's grace period ends get the end that their
// protocol has, before the process does; it ends well.
func TestT54_B84_FiftyStreamsAtTheDeadline(t *testing.T) {
	const streams = 50
	up := upstream.Start(t, upstream.Options{Accounts: map[string]string{secretKey: "first"},
		Script: upstream.Script{Rules: []upstream.Rule{{Fault: &upstream.Fault{At: upstream.AtAfterItem, Action: upstream.ActStall}}}}})
	p := launch(t, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60}, nil)
	p.configure(t, up.URL+"/v1", bundle.Drain{PodGraceSeconds: 13}, firstKey)
	p.awaitConfiguration(t)
	answers := make(chan string, streams)
	begun := make(chan struct{}, streams)
	for n := range streams {
		go func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.data+"/v1/responses",
				strings.NewReader(fmt.Sprintf(`{"model":"gpt-5.5","stream":true,"input":"stream %d"}`, n)))
			if err != nil {
				answers <- err.Error()
				return
			}
			req.Header.Set("Authorization", "Bearer "+firstKey)
			req.Header.Set("Session-Id", fmt.Sprint("stream-", n))
			res, err := p.client.Do(req)
			begun <- struct{}{}
			if err != nil {
				answers <- err.Error()
				return
			}
			defer res.Body.Close()
			var b strings.Builder
			if _, err := bufio.NewReader(res.Body).WriteTo(&b); err != nil {
				b.WriteString(err.Error())
			}
			answers <- b.String()
		}()
	}
	for range streams {
		<-begun
	}
	p.stop()
	for range streams {
		answer := <-answers
		if strings.Count(answer, "event: response.failed\n") != 1 || !strings.HasSuffix(answer, "\n\n") {
			t.Errorf("a stream ends with %.300q", answer[max(0, len(answer)-300):])
		}
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	p.ended <- nil
}

// A turn that the other slot serves for a client of this one keeps this one from being
// taken for idle, and has an end of its protocol when the pod goes.
func TestT54_B82_ARelayedStreamIsNotForgotten(t *testing.T) {
	s := newSlots(t, upstream.Script{Rules: []upstream.Rule{{
		Match: upstream.Match{Session: "long"}, Fault: &upstream.Fault{At: upstream.AtAfterItem, Action: upstream.ActStall}}}})
	s.lease.ask("green")
	s.await("green")
	p := s.pods["blue-0"]
	p.edit(t, func(b *bundle.Bundle) { b.Drain.PodGraceSeconds, b.Drain.EndpointLagSeconds = 14, 0 })
	var c talk
	res, err := s.post(t.Context(), "blue-0", "long", c.next("a long one"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := p.metric(t, "causeway_proxy_turns_relayed"); got != "1" {
		t.Errorf("%q turns are relayed", got)
	}
	p.stop()
	var b strings.Builder
	if _, err := bufio.NewReader(res.Body).WriteTo(&b); err != nil || strings.Count(b.String(), "event: response.failed\n") != 1 {
		t.Errorf("%v %.500q", err, b.String())
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	p.ended <- nil
	delete(s.pods, "blue-0")
}

// A pod that is deleted is out of the endpoints long before it is told: from then on
// it is captain no longer, not even if its slot is asked to take over, and its turns
// go to its siblings.
func TestT34_T54_ADeletedPodIsNoCaptain(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	captain := s.lease.seen().Holder.Pod
	other := map[string]string{"blue-0": "blue-1", "blue-1": "blue-0"}[captain]
	s.fleet["blue"].set(captain, false)
	s.pods[other].until(t, "another captain", func() bool { return s.lease.seen().Holder.Pod == other })
	before := s.pods[other].metric(t, `causeway_proxy_client_bytes_total{direction="received"}`)
	var c talk
	s.turn(captain, "late", &c, "hello")
	if s.pods[other].metric(t, `causeway_proxy_client_bytes_total{direction="received"}`) == before {
		t.Error("the pod that goes served a turn that its sibling could")
	}
	s.lease.ask("green")
	s.await("green")
	s.lease.ask("blue")
	s.pods[other].until(t, "the slot's return", func() bool { return s.lease.seen().Holder.Slot == "blue" })
	if pod := s.lease.seen().Holder.Pod; pod != other {
		t.Errorf("%s is captain, which is about to end", pod)
	}
}
