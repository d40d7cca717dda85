package server

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
)

// BenchmarkFrames is one event on its way to a client that speaks WebSocket. It
// allocates nothing.
func BenchmarkFrames(b *testing.B) {
	up := make(chan *websocket.Conn)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			b.Error(err)
		}
		up <- c
	}))
	defer server.Close()
	go func() {
		c, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	}()
	f := &frames{conn: <-up}
	defer f.conn.Close()
	f.Header().Set("Content-Type", "text/event-stream")
	event := []byte("event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"" + strings.Repeat("x", 200) + "\"}\n\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Write(event); err != nil {
			b.Fatal(err)
		}
	}
}
