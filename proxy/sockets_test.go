package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// chain is a client that speaks WebSocket and sends only what is new, as Codex does.
type chain struct {
	*websocket.Conn
	t    *testing.T
	last string // the response that the next turn builds on
}

// chainAt connects to a proxy; the headers are pairs.
func (p *proxied) chainAt(t *testing.T, headers ...string) *chain {
	t.Helper()
	h := http.Header{"Authorization": {"Bearer " + firstKey}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	c, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(p.data, "http")+"/v1/responses", h)
	if err != nil {
		t.Fatal(err, res)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	return &chain{Conn: c, t: t}
}

// send begins a turn.
func (c *chain) send(text string, more ...any) {
	c.t.Helper()
	frame := map[string]any{"type": "response.create", "model": "gpt-5.5", "store": false, "stream": true,
		"input": []any{map[string]any{"type": "message", "role": "user", "content": text}}}
	if c.last != "" {
		frame["previous_response_id"] = c.last
	}
	for i := 0; i < len(more); i += 2 {
		frame[fmt.Sprint(more[i])] = more[i+1]
	}
	raw, _ := json.Marshal(frame)
	if err := c.WriteMessage(websocket.TextMessage, raw); err != nil {
		c.t.Fatal(err)
	}
}

// end reads to the end of a turn and returns its last message.
func (c *chain) end() string {
	c.t.Helper()
	for {
		_, data, err := c.ReadMessage()
		if err != nil {
			c.t.Fatal(err)
		}
		switch text := string(data); gjson.Get(text, "type").Str {
		case "response.completed":
			c.last = gjson.Get(text, "response.id").Str
			return text
		case "response.failed", "response.incomplete", "error":
			return text
		}
	}
}

func (c *chain) turn(text string, more ...any) {
	c.t.Helper()
	c.send(text, more...)
	if end := c.end(); gjson.Get(end, "type").Str != "response.completed" {
		c.t.Fatal(end)
	}
}

// closed is the code with which the proxy ends the connection.
func (c *chain) closed() int {
	c.t.Helper()
	_, data, err := c.ReadMessage()
	var end *websocket.CloseError
	if !errors.As(err, &end) {
		c.t.Fatalf("%q %v", data, err)
	}
	return end.Code
}

// upstreamSockets counts the upstream connections that turns ran on.
func upstreamSockets(dispatches []upstream.Dispatch) map[int64]int {
	sockets := map[int64]int{}
	for _, d := range dispatches {
		sockets[d.Connection]++
	}
	return sockets
}

// A client's WebSocket is a conversation even if nothing else names it: with store
// false, what builds on a response must go to the upstream socket that knows it. B70: a
// warm-up is one of its turns.
func TestB70_ASocketIsOneConversation(t *testing.T) {
	up, p := bridged(t, upstream.Script{})
	one, two := p.chainAt(t), p.chainAt(t)
	one.turn("be good", "generate", false)
	for n := range 3 {
		one.turn(fmt.Sprint("one says ", n))
		two.turn(fmt.Sprint("two says ", n))
	}
	if got := p.metric(t, "causeway_proxy_websockets_open"); got != "2" {
		t.Errorf("%q sockets of clients", got)
	}
	dispatches := up.Ledger().Dispatches()
	if sockets := upstreamSockets(dispatches); len(dispatches) != 7 || len(sockets) != 2 {
		t.Fatalf("%d turns on %v", len(dispatches), sockets)
	}
	for n, d := range dispatches {
		if d.Transport != "ws" || d.Anchor != "" && !d.AnchorResolved || n > 2 && d.Anchor == "" {
			t.Errorf("turn %d: %+v", n, d)
		}
	}
	// On another connection, with nothing but the response to go by.
	again := p.chainAt(t)
	again.last = one.last
	again.turn("one is back")
	if sockets := upstreamSockets(up.Ledger().Dispatches()); len(sockets) != 2 {
		t.Error("the conversation was taken to another socket:", sockets)
	}
	// A response that nobody knows is answered in the way that makes Codex send all of it.
	again.last = "resp_unknown"
	again.send("and this?")
	if end := again.end(); gjson.Get(end, "error.code").Str != "previous_response_not_found" || gjson.Get(end, "status").Int() != 400 {
		t.Error(end)
	}
	if d := up.Ledger().Duplicates(); len(d) > 0 {
		t.Error(d)
	}
}

// A client that opens a WebSocket for each turn leaves no session behind, and no upstream
// connection.
func TestASocketLeavesNothingBehind(t *testing.T) {
	_, p := bridged(t, upstream.Script{})
	for n := range 10 {
		c := p.chainAt(t)
		c.turn(fmt.Sprint("hello ", n))
		_ = c.Close()
	}
	p.until(t, "no session", func() bool {
		total, _ := p.sessions(t, "")
		return total == 0
	})
}

// B84: of fifty WebSockets at a SIGTERM, those without a turn are told to go, those with
// one finish it, and the process ends well, and not before.
func TestB84_FiftySocketsAtAStop(t *testing.T) {
	up, p := bridged(t, upstream.Script{Rules: []upstream.Rule{{
		Match: upstream.Match{InputContains: "a long one"}, Fault: &upstream.Fault{At: upstream.AtAfterCreated, Action: upstream.ActHold}}}})
	var idle, active []*chain
	for n := range 50 {
		if n%2 == 0 {
			idle = append(idle, p.chainAt(t))
			continue
		}
		c := p.chainAt(t)
		c.send(fmt.Sprint("a long one, ", n))
		active = append(active, c)
	}
	p.until(t, "the turns", func() bool { return len(up.Ledger().Dispatches()) == len(active) })
	idle[0].turn("before")
	p.stop()
	for _, c := range idle[1:] {
		if code := c.closed(); code != websocket.CloseGoingAway {
			t.Error("an idle one ends with", code)
		}
	}
	select {
	case err := <-p.ended:
		t.Fatal("the process did not wait for turns:", err)
	default:
	}
	for range active {
		up.Release()
	}
	for _, c := range active {
		if end := c.end(); gjson.Get(end, "type").Str != "response.completed" {
			t.Error(end)
		}
		if code := c.closed(); code != websocket.CloseGoingAway {
			t.Error("a busy one ends with", code)
		}
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	p.ended <- nil
	if d := up.Ledger().Duplicates(); len(d) > 0 {
		t.Error(d)
	}
}

// T54: a turn on a WebSocket that the end of the grace period meets has the end that its
// protocol has.
func TestT54_SocketsAtTheDeadline(t *testing.T) {
	up, p := bridged(t, upstream.Script{Rules: []upstream.Rule{{Fault: &upstream.Fault{At: upstream.AtAfterItem, Action: upstream.ActStall}}}})
	p.edit(t, func(b *bundle.Bundle) { b.Drain.PodGraceSeconds = 12 })
	var all []*chain
	for n := range 50 {
		c := p.chainAt(t, "Session-Id", fmt.Sprint("session-", n))
		c.send("a long one")
		all = append(all, c)
	}
	p.until(t, "the turns", func() bool { return len(up.Ledger().Dispatches()) == len(all) })
	p.stop()
	for _, c := range all {
		if end := c.end(); gjson.Get(end, "type").Str != "response.failed" || gjson.Get(end, "response.error.code").Str != "draining" {
			t.Error(end)
		}
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	p.ended <- nil
}

// T36: a WebSocket of the slot that drains goes on: what builds on its upstream socket
// there, all else with the slot that serves. When the soft time is over its client is
// asked to connect anew, and sends the whole conversation to the new slot.
func TestT36_SocketsThroughAHandOver(t *testing.T) {
	s := newSlots(t, upstream.Script{})
	p := s.pods["blue-0"]
	chained, whole := p.chainAt(t, "Thread-Id", "chained"), p.chainAt(t, "Thread-Id", "whole")
	chained.turn("before")
	whole.turn("before")
	s.lease.ask("green")
	s.await("green")
	chained.turn("after")
	if sockets := upstreamSockets(s.up.Ledger().Dispatches()); len(sockets) != 2 {
		t.Error("what builds on a socket left it:", sockets)
	}
	whole.last = ""
	whole.turn("all of it, after")
	if sockets := upstreamSockets(s.up.Ledger().Dispatches()); len(sockets) != 3 {
		t.Error("a whole conversation did not go to the new slot:", sockets)
	}
	whole.turn("and on, through the old one")
	p.edit(t, func(b *bundle.Bundle) { b.Drain.SoftSeconds = 0 })
	s.lease.ask("blue")
	s.await("blue")
	s.lease.ask("green")
	s.await("green")
	chained.send("the last here")
	if end := chained.end(); gjson.Get(end, "type").Str != "response.completed" && gjson.Get(end, "error.code").Str != "previous_response_not_found" {
		t.Error(end)
	}
	if code := chained.closed(); code != websocket.CloseServiceRestart {
		t.Error(code)
	}
	next := s.pods["green-1"].chainAt(t, "Thread-Id", "chained")
	next.turn("the whole conversation")
	next.turn("and on")
	s.once()
}
