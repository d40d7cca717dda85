package proxy

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

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
func TestT54_FiftyStreamsAtTheDeadline(t *testing.T) {
	const streams = 50
	_, p := bridged(t, upstream.Script{Rules: []upstream.Rule{{Fault: &upstream.Fault{At: upstream.AtAfterItem, Action: upstream.ActStall}}}})
	p.edit(t, func(b *bundle.Bundle) { b.Drain.PodGraceSeconds = 13 })
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
func TestT54_ARelayedStreamIsNotForgotten(t *testing.T) {
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
func TestT54_ADeletedPodIsNoCaptain(t *testing.T) {
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
