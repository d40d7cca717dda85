package server

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
)

// B84: idle sockets are told to go, those with a turn go after it, and none of them
// is what a stop waits for. A turn that comes in the meantime is answered.
func TestB84_SocketsGoBetweenTurns(t *testing.T) {
	goOn := make(chan struct{})
	e := start(t, setup{turns: func(w http.ResponseWriter, r *http.Request, req *bridge.Request) {
		if strings.Contains(string(req.Body), "long") {
			<-goOn
		}
		echo(w, r, req)
	}})
	var idle, active []*peer
	for n := range 50 {
		c, _ := e.socket(t, "/v1/responses")
		if n%2 == 0 {
			idle = append(idle, c)
			continue
		}
		c.say(`{"type":"response.create","model":"m","input":"long"}`)
		active = append(active, c)
	}
	waitFor(t, "the turns", func() bool { return e.Live().Count() == len(active) })
	e.Drain()
	for _, c := range idle {
		if code := c.closed(); code != websocket.CloseGoingAway {
			t.Error("an idle socket ends with", code)
		}
	}
	// One of them sends the next turn before it has heard of the stop.
	active[0].say(`{"type":"response.create","model":"m","input":"next"}`)
	close(goOn)
	for n, c := range active {
		turns := 1
		if n == 0 {
			turns = 2
		}
		for range 3 * turns {
			c.hear()
		}
		if code := c.closed(); code != websocket.CloseGoingAway {
			t.Error("a busy socket ends with", code)
		}
	}
	waitFor(t, "no socket", func() bool { return e.Sockets() == 0 })
	// Whoever comes now, because not all have heard of the stop, gets one turn.
	late, _ := e.socket(t, "/v1/responses")
	late.say(`{"type":"response.create","model":"m","input":"late"}`)
	for range 3 {
		late.hear()
	}
	if code := late.closed(); code != websocket.CloseGoingAway {
		t.Error(code)
	}
}

// T36: when the slot's soft time is over, sockets that have no turn are sent to the
// other slot, unless authority has come back.
func TestT36_SocketsAreReleased(t *testing.T) {
	e := start(t, setup{turns: echo})
	stays, _ := e.socket(t, "/v1/responses")
	e.Release(true)
	e.Release(false)
	turn := func(c *peer) {
		c.say(`{"type":"response.create","model":"m","input":"x"}`)
		for range 3 {
			c.hear()
		}
	}
	turn(stays)
	turn(stays) // the connection is still there
	e.Release(true)
	turn(stays)
	if code := stays.closed(); code != websocket.CloseServiceRestart {
		t.Error(code)
	}
}

// What is left when the process ends is ended by it, whatever it does.
func TestCloseLeavesNoSocket(t *testing.T) {
	begun := make(chan struct{})
	e := start(t, setup{turns: func(_ http.ResponseWriter, r *http.Request, _ *bridge.Request) {
		close(begun)
		<-r.Context().Done()
	}})
	idle, _ := e.socket(t, "/v1/responses")
	stuck, _ := e.socket(t, "/v1/responses")
	stuck.say(`{"type":"response.create","model":"m","input":"x"}`)
	<-begun
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Close()
	}()
	if code := idle.closed(); code != websocket.CloseGoingAway {
		t.Error(code)
	}
	if _, _, err := stuck.ReadMessage(); err == nil {
		t.Error("it was not cut")
	}
	<-ended
	if _, res := e.socket(t, "/v1/responses"); res != nil && res.StatusCode == http.StatusSwitchingProtocols && e.Sockets() != 0 {
		t.Error("a socket was opened after the end")
	}
}

// A message that is arriving when the time to go has come is served, and counts.
func TestB84_WhatIsArrivingIsServed(t *testing.T) {
	e := start(t, setup{turns: echo})
	c, _ := e.socket(t, "/v1/responses")
	w, err := c.NextWriter(websocket.TextMessage)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(w, `{"type":"response.create","model":"m","input":"%s`, strings.Repeat("x", 100<<10))
	waitFor(t, "a message that is arriving", func() bool { return e.Live().Count() == 1 })
	e.Drain()
	for end := time.After(stopping.spread + time.Second); ; {
		select {
		case <-time.After(100 * time.Millisecond):
			_, _ = io.WriteString(w, strings.Repeat("x", 8<<10))
			continue
		case <-end:
		}
		break
	}
	_, _ = io.WriteString(w, `"}`)
	_ = w.Close()
	for range 3 {
		c.hear()
	}
	if code := c.closed(); code != websocket.CloseGoingAway {
		t.Error(code)
	}
}

// T36: a client that sends one turn right after the other leaves the slot, too, when its
// time is over.
func TestT36_ABusyClientIsReleased(t *testing.T) {
	e := start(t, setup{turns: echo})
	c, _ := e.socket(t, "/v1/responses")
	e.sockets.ask(leaving{websocket.CloseServiceRestart, "soon", 300 * time.Millisecond})
	for end := time.Now().Add(10 * time.Second); ; {
		if time.Now().After(end) {
			t.Fatal("it stays for ever")
		}
		if c.WriteMessage(websocket.TextMessage, []byte(`{"type":"response.create","model":"m","input":"x"}`)) != nil {
			break
		}
		_, _, err := c.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseServiceRestart) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _, _ = c.ReadMessage()
		_, _, _ = c.ReadMessage()
		<-time.After(100 * time.Millisecond) // less than a client is waited for
	}
}

func TestASocketWithoutTurnsEnds(t *testing.T) {
	e := start(t, setup{turns: echo, socketIdle: 200 * time.Millisecond})
	c, _ := e.socket(t, "/v1/responses")
	c.say(`{"type":"response.create","model":"m","input":"x"}`)
	for range 3 {
		c.hear()
	}
	if code := c.closed(); code != websocket.CloseGoingAway {
		t.Error(code)
	}
}
