package bridge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/config"
)

// after says whether a reply's Retry-After is want seconds, or what is added so
// that clients do not come back together; empty = none. The moment that passes
// meanwhile is less than a second.
func after(out *reply, want string) bool {
	got := out.header.Get("Retry-After")
	if want == "" || got == "" {
		return got == want
	}
	least, err := strconv.Atoi(want)
	n, errGot := strconv.Atoi(got)
	return err == nil && errGot == nil && n >= least && n <= least+1+min(least/10, 5)
}

var bareResponses atomic.Int64

// bareTurn are the first and the last event of a response of a bare upstream.
func bareTurn() (created, completed string) {
	id := fmt.Sprint("resp_bare", bareResponses.Add(1))
	return `{"type":"response.created","response":{"id":"` + id + `","status":"in_progress"}}`,
		`{"type":"response.completed","response":{"id":"` + id + `","status":"completed","output":[]}}`
}

// bare is an upstream that remembers nothing of what it is sent.
type bare struct {
	url     string
	sockets atomic.Int64 // open now
	// answer serves one request of a socket, of size bytes; an error ends the socket.
	answer func(ws *websocket.Conn, size int64) error
}

func newBare(t *testing.T, answer func(ws *websocket.Conn, size int64) error) *bare {
	t.Helper()
	b := &bare{answer: answer}
	s := httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

func (b *bare) serve(w http.ResponseWriter, r *http.Request) {
	if !websocket.IsWebSocketUpgrade(r) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		created, completed := bareTurn()
		_, _ = io.WriteString(w, "data: "+created+"\n\ndata: "+completed+"\n\n")
		return
	}
	ws, err := new(websocket.Upgrader).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	b.sockets.Add(1)
	defer b.sockets.Add(-1)
	for {
		_, in, err := ws.NextReader()
		if err != nil {
			return
		}
		size, err := io.Copy(io.Discard, in)
		if err != nil || b.answer(ws, size) != nil {
			return
		}
	}
}

// say sends events to a socket.
func say(ws *websocket.Conn, events ...string) error {
	for _, e := range events {
		if err := ws.WriteMessage(websocket.TextMessage, []byte(e)); err != nil {
			return err
		}
	}
	return nil
}

func shortAnswer(ws *websocket.Conn, _ int64) error {
	created, completed := bareTurn()
	return say(ws, created, completed)
}

// change serves what follows under another configuration.
func (r *rig) change(edit func(*bundle.Bundle, *bundle.Credentials)) {
	r.t.Helper()
	old := r.runtime.Load()
	b, c := old.Bundle, old.Credentials
	b.Generation++
	edit(&b, &c)
	rt, err := config.New(b.Seal(), c.Seal())
	if err != nil {
		r.t.Fatal(err)
	}
	r.accounts.Update(rt)
	r.runtime.Store(rt)
}

// through sends what follows to another upstream.
func (r *rig) through(url string) {
	r.t.Helper()
	r.change(func(b *bundle.Bundle, _ *bundle.Credentials) {
		b.Pool.Provider.Endpoint, b.Pool.Provider.CABundle = url+"/v1", ""
	})
}

// heap is what is in use after a collection, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what the pools held
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // far below
}

// stalled sends a turn and never reads its answer. The connection has little room.
func (r *rig) stalled(header []string, body string) net.Conn {
	r.t.Helper()
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	text := "POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	for i := 0; i+1 < len(header); i += 2 {
		text += header[i] + ": " + header[i+1] + "\r\n"
	}
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text+"\r\n"+body); err != nil {
		r.t.Fatal(err)
	}
	return c
}
