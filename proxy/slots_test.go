package proxy

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/activation"
	"github.com/causeway-dev/causeway/test/upstream"
)

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
	p.until(t, "no authority", func() bool { return p.metric(t, `causeway_proxy_authority{state="hold"}`) == "1" })
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
	p.until(t, "no authority", func() bool { return p.metric(t, `causeway_proxy_authority{state="hold"}`) == "1" })
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
