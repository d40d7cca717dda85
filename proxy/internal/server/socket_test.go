package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
)

// peer is a client that speaks WebSocket.
type peer struct {
	*websocket.Conn
	t *testing.T
}

func (e *edge) socket(t *testing.T, path string, headers ...string) (*peer, *http.Response) {
	t.Helper()
	h := http.Header{"Authorization": {"Bearer " + clientKey}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	c, res, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(e.url, "http")+path, h)
	if err != nil {
		if res == nil {
			t.Fatal(err)
		}
		return nil, res
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	return &peer{c, t}, res
}

func (c *peer) say(text string) {
	c.t.Helper()
	if err := c.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *peer) hear() string {
	c.t.Helper()
	kind, data, err := c.ReadMessage()
	if err != nil || kind != websocket.TextMessage {
		c.t.Fatal(kind, err)
	}
	return string(data)
}

// closed is the code with which the server ends the connection.
func (c *peer) closed() int {
	c.t.Helper()
	_, data, err := c.ReadMessage()
	var end *websocket.CloseError
	if !errors.As(err, &end) {
		c.t.Fatalf("%q %v", data, err)
	}
	return end.Code
}

// waitFor returns when something that no test is told of has come about.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(20 * time.Second); !holds(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("no sign of: " + what)
		}
	}
}

// echo answers a turn with three events and a comment.
func echo(w http.ResponseWriter, _ *http.Request, req *bridge.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	_, _ = fmt.Fprintf(w, "event: a\ndata: {\"n\":1}\n\n: comment\n\nevent: b\nda")
	_, _ = fmt.Fprintf(w, "ta: {\"n\":2,\ndata: \"m\":3}\n\nevent: c\ndata: %s\n\n", req.Body)
	_ = http.NewResponseController(w).Flush()
}

func TestASocketServesTurns(t *testing.T) {
	e := start(t, setup{turns: echo})
	c, res := e.socket(t, "/v1/responses", "Session-Id", "s", "Idempotency-Key", "k", "X-Request-Id", "mine", "X-Codex-Turn-State", "old")
	if res.Header.Get("X-Request-Id") != "mine" {
		t.Error(res.Header)
	}
	ids := map[string]bool{}
	for n := range 3 {
		c.say(fmt.Sprintf(`{"type":"response.create", "model":"gpt-5.5","stream":true,"input":"hello %d"}`, n))
		want := fmt.Sprintf(`{"model":"gpt-5.5","input":"hello %d"}`, n)
		for _, want := range []string{`{"n":1}`, "{\"n\":2,\n\"m\":3}", want} {
			if got := c.hear(); strings.ReplaceAll(got, " \"model", "\"model") != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		got := e.turns.last()
		h := got.Header
		if !got.Stream || got.Client != "alice" || got.Socket == "" || got.Socket == "mine" || got.Route != bridge.RouteV1 || got.Runtime == nil || ids[got.ID] {
			t.Errorf("%+v", got)
		}
		ids[got.ID] = true
		if h.Get("Session-Id") != "s" || h.Get("Upgrade")+h.Get("Sec-Websocket-Key")+h.Get("Idempotency-Key")+h.Get("X-Codex-Turn-State") != "" {
			t.Error(h)
		}
	}
	if n := e.Sockets(); n != 1 {
		t.Errorf("%d sockets", n)
	}
	_ = c.Close()
	e.settle(t)
	waitFor(t, "the end of the socket", func() bool { return e.Sockets() == 0 })
}

func TestASocketsErrorsAreMessagesWithAStatus(t *testing.T) {
	e := start(t, setup{intake: intake.Options{MaxBody: 1000}, turns: func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
		failure.New(failure.BulkheadFull, "full", failure.Scope("websocket")).WriteHTTP(w)
	}})
	c, _ := e.socket(t, "/backend-api/codex/responses")
	for _, tt := range []struct {
		name, message string
		status        int
		code, param   string
	}{
		{"no JSON", `{"type":`, 400, failure.InvalidJSON, ""},
		{"no object", `[1]`, 400, failure.InvalidRequest, ""},
		{"no type", `{"model":"m"}`, 400, failure.InvalidRequest, "type"},
		{"type of another kind", `{"type":1}`, 400, failure.InvalidRequest, "type"},
		{"unknown type", `{"type":"response.wish"}`, 400, failure.InvalidRequest, "type"},
		{"no model", `{"type":"response.create","input":"x"}`, 400, failure.InvalidRequest, "model"},
		{"background", `{"type":"response.create","model":"m","background":true}`, 400, failure.InvalidRequest, "background"},
		{"a lane", `{"type":"response.create","model":"m","stream_id":"a"}`, 400, failure.InvalidStreamID, "stream_id"},
		{"B63: too large", `{"type":"response.create","model":"` + strings.Repeat("m", 1000) + `"}`, 400, failure.PayloadTooLarge, ""},
		{"refused", `{"model":"m","type":"response.create"}`, 503, failure.BulkheadFull, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c.say(tt.message)
			got := c.hear()
			if gjson.Get(got, "type").Str != "error" || gjson.Get(got, "status").Int() != int64(tt.status) ||
				gjson.Get(got, "error.code").Str != tt.code || gjson.Get(got, "error.param").Str != tt.param {
				t.Error(got)
			}
			if tt.status == 503 && (gjson.Get(got, "headers.retry-after").Str == "" || gjson.Get(got, "headers.x-causeway-retry").Str != "safe") {
				t.Error(got)
			}
		})
	}
	c.say(`{"type":"response.interrupt","response_id":"r"}`) // says nothing
	if err := c.WriteMessage(websocket.BinaryMessage, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if got := c.hear(); gjson.Get(got, "status").Int() != 400 || !strings.Contains(got, "Binary") {
		t.Error(got)
	}
	if e.Sockets() != 1 {
		t.Error("the connection was given up")
	}
}

func TestWhoMayOpenASocket(t *testing.T) {
	e := start(t, setup{})
	for _, tt := range []struct {
		path    string
		headers []string
		status  int
		code    string
	}{
		{"/v1/responses", []string{"Authorization", "Bearer wrong"}, 401, failure.InvalidAPIKey},
		{"/v1/responses", []string{"Authorization", ""}, 401, failure.InvalidAPIKey},
		{"/v1/responses", []string{"Origin", "https://elsewhere.example"}, 403, failure.OriginNotAllowed},
		{"/v1/realtime", nil, 426, failure.UpgradeRequired},
		{"/v1/models", nil, 200, ""},
		{"/nowhere", nil, 404, failure.NotFound},
	} {
		_, res := e.socket(t, tt.path, tt.headers...)
		body, _ := io.ReadAll(res.Body)
		if tt.code != "" && (res.StatusCode != tt.status || gjson.GetBytes(body, "error.code").Str != tt.code) {
			t.Errorf("%s %v: %d %s", tt.path, tt.headers, res.StatusCode, body)
		}
	}
}

// A key that is taken away while the connection stands serves no further turn.
func TestASocketsKeyIsJudgedWithEachTurn(t *testing.T) {
	e := start(t, setup{turns: echo})
	c, _ := e.socket(t, "/v1/responses")
	e.runtime.Store(testRuntime(t, "http://127.0.0.1:1/v1", func(_ *bundle.Bundle, c *bundle.Credentials) { c.Clients = nil }))
	c.say(`{"type":"response.create","model":"m","input":"x"}`)
	if got := c.hear(); gjson.Get(got, "status").Int() != 401 || gjson.Get(got, "error.code").Str != failure.InvalidAPIKey {
		t.Error(got)
	}
	if e.turns.last() != nil {
		t.Error("it was served")
	}
}

// The client's end is the end of its turn; nothing is left behind.
func TestAClientThatClosesItsSocketIsGone(t *testing.T) {
	begun := make(chan struct{})
	ended := make(chan error, 1)
	e := start(t, setup{turns: func(_ http.ResponseWriter, r *http.Request, _ *bridge.Request) {
		close(begun)
		<-r.Context().Done()
		ended <- r.Context().Err()
	}})
	c, _ := e.socket(t, "/v1/responses")
	c.say(`{"type":"response.create","model":"m","input":"x"}`)
	<-begun
	if e.Live().Count() != 1 {
		t.Error("its turn does not count")
	}
	_ = c.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	waitFor(t, "the end of the socket", func() bool { return e.Sockets() == 0 && e.Live().Count() == 0 })
}

// A client that takes nothing loses its connection, and its turn.
func TestASocketThatTakesNothingIsCut(t *testing.T) {
	ended := make(chan error, 1)
	e := start(t, setup{stallTime: 200 * time.Millisecond, turns: func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		event := "data: \"" + strings.Repeat("x", 1<<20) + "\"\n\n"
		for {
			if _, err := io.WriteString(w, event); err != nil {
				ended <- err
				return
			}
		}
	}})
	c, _ := e.socket(t, "/v1/responses")
	c.say(`{"type":"response.create","model":"m","input":"x"}`)
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	waitFor(t, "the end of the socket", func() bool { return e.Sockets() == 0 })
}

// T73: a panic ends its turn alone; the connection serves on.
func TestT73_APanicOnASocket(t *testing.T) {
	e := start(t, setup{turns: func(w http.ResponseWriter, r *http.Request, req *bridge.Request) {
		if strings.Contains(string(req.Body), "break") {
			panic("CANARY")
		}
		if strings.Contains(string(req.Body), "late") {
			echo(w, r, req)
			panic("CANARY")
		}
		echo(w, r, req)
	}})
	c, _ := e.socket(t, "/v1/responses")
	c.say(`{"type":"response.create","model":"m","input":"break"}`)
	if got := c.hear(); gjson.Get(got, "status").Int() != 500 {
		t.Error(got)
	}
	c.say(`{"type":"response.create","model":"m","input":"late"}`)
	for range 3 {
		c.hear()
	}
	if got := c.hear(); gjson.Get(got, "type").Str != "response.failed" {
		t.Error(got)
	}
	c.say(`{"type":"response.create","model":"m","input":"fine"}`)
	if got := c.hear(); got != `{"n":1}` {
		t.Error(got)
	}
	if strings.Contains(e.log.String(), "CANARY") {
		t.Error("the log quotes a panic")
	}
}

// A client that sends ahead what means nothing, and leaves, is missed at once.
func TestAClientThatLeavesIsMissedWhateverItSentAhead(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	e := start(t, setup{turns: func(_ http.ResponseWriter, r *http.Request, _ *bridge.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	}})
	c, _ := e.socket(t, "/v1/responses")
	c.say(`{"type":"response.create","model":"m","input":"x"}`)
	<-begun
	for range 5 {
		c.say(`{"type":"response.interrupt","response_id":"r"}`)
	}
	c.say(`{"type":"response.create","model":"m","input":"never served"}`)
	_ = c.Close()
	<-ended
	waitFor(t, "the end of the socket", func() bool { return e.Sockets() == 0 && e.Live().Count() == 0 })
	if n := len(e.turns.seen); n != 1 {
		t.Errorf("%d turns were served, the last for nobody", n)
	}
	if len(e.turns.closed) != 1 || e.turns.closed[0] != e.turns.seen[0].Socket {
		t.Error("nobody was told that the socket has ended:", e.turns.closed)
	}
}

// A stream that ends in the middle of an event, because whoever served it is gone, ends
// the connection: the client would wait for the rest, or read something else as it.
func TestATornStreamEndsTheSocket(t *testing.T) {
	e := start(t, setup{turns: func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, "data: {\"n\":1}\n\nevent: response.completed\ndata: {\"torn\":\""+strings.Repeat("x", 40<<10))
	}})
	c, _ := e.socket(t, "/v1/responses")
	c.say(`{"type":"response.create","model":"m","input":"x"}`)
	if got := c.hear(); got != `{"n":1}` {
		t.Error(got)
	}
	if _, data, err := c.ReadMessage(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes of a torn event, %v", len(data), err)
	}
}

func TestAnUpgradeOfAnotherKindIsNone(t *testing.T) {
	e := start(t, setup{})
	got := e.call(t, "POST", "/v1/responses", turnBody, "Connection", "Upgrade", "Upgrade", "websocket")
	if got.StatusCode != http.StatusOK || got.text != turnBody {
		t.Error(got.StatusCode, got.text)
	}
}
