package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/tidwall/gjson"
)

// socketEvery is how many conversations there are for each one over WebSocket.
const socketEvery = 4

// socket is how a conversation is held over WebSocket: as Codex does, it sends what is
// new on the connection that has the last response, and all of it on another one.
type socket struct {
	source string
	conn   *websocket.Conn
	last   string // the response that the next turn builds on
}

// errAgain says that the proxy asked for the whole conversation on a new connection, and
// that nothing was done for the turn.
var errAgain = errors.New("a new connection is asked for")

// ask takes a turn, of which the last item is new. A connection that was closed between
// two turns, or an anchor that is gone, costs one more try and is no failure.
func (s *socket) ask(ctx context.Context, l *load, t *thread, o *outcome) (failure string) {
	defer func() { o.ended = time.Now() }()
	for range 2 {
		item, err := s.try(ctx, l, t, o)
		if err == nil {
			t.items = append(t.items, item...)
			return ""
		}
		s.close()
		if failure = "over WebSocket: " + err.Error(); !errors.Is(err, errAgain) {
			break
		}
	}
	return failure
}

func (s *socket) try(ctx context.Context, l *load, t *thread, o *outcome) ([]json.RawMessage, error) {
	if s.conn == nil {
		if err := s.connect(ctx, l, t.name); err != nil {
			return nil, err
		}
	}
	frame := map[string]any{"type": "response.create", "model": modelQuick, "store": false, "stream": true, "input": t.items}
	if s.last != "" {
		frame["previous_response_id"], frame["input"] = s.last, t.items[len(t.items)-1:]
	}
	deadline, _ := ctx.Deadline()
	_ = s.conn.SetReadDeadline(deadline)
	if err := s.conn.WriteJSON(frame); err != nil {
		return nil, fmt.Errorf("%w: %w", errAgain, err)
	}
	return s.read(o)
}

// read reads to the end of a turn and returns the items of the answer.
func (s *socket) read(o *outcome) (items []json.RawMessage, err error) {
	for first := true; ; first = false {
		_, data, err := s.conn.ReadMessage()
		if first {
			o.first = time.Now()
		}
		if first && websocket.IsCloseError(err, websocket.CloseGoingAway, websocket.CloseServiceRestart) {
			return nil, fmt.Errorf("%w: %w", errAgain, err)
		}
		if err != nil {
			return nil, err
		}
		switch event := string(data); gjson.Get(event, "type").Str {
		case "response.output_item.done":
			items = append(items, json.RawMessage(gjson.Get(event, "item").Raw))
		case "response.completed":
			s.last = gjson.Get(event, "response.id").Str
			return items, nil
		case "error", "response.failed", "response.incomplete":
			err := errors.New(event[:min(len(event), 300)])
			if s.last != "" && strings.Contains(event, "previous_response_not_found") {
				err = fmt.Errorf("%w: %w", errAgain, err)
			}
			return nil, err
		}
	}
}

func (s *socket) connect(ctx context.Context, l *load, session string) error {
	dialer := websocket.Dialer{NetDialContext: dialerFrom(s.source).DialContext}
	conn, res, err := dialer.DialContext(ctx, "ws"+strings.TrimPrefix(l.proxy, "http")+"/v1/responses",
		http.Header{"Authorization": {"Bearer " + os.Getenv("CAUSEWAY_CLIENT_KEY")}, "Session-Id": {session}, "Thread-Id": {session}})
	if err != nil {
		if res != nil {
			err = fmt.Errorf("%s: %w", res.Status, err)
		}
		return err
	}
	s.conn, s.last = conn, ""
	return nil
}

// close is how Codex does it: without a word.
func (s *socket) close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn, s.last = nil, ""
}
