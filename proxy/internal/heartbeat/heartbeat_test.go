package heartbeat

import (
	"bufio"
	"context"
	"crypto/sha1" //nolint:gosec // as the handshake of WebSocket wants it
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair is a connection and the other end of it, as bytes.
func pair(t *testing.T) (*websocket.Conn, *bufio.Reader, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	r := bufio.NewReader(far)
	go func() {
		req, err := http.ReadRequest(r)
		if err != nil {
			t.Error(err)
			return
		}
		sum := sha1.Sum([]byte(req.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // the same
		_, _ = fmt.Fprintf(far, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
	}()
	dialer := websocket.Dialer{NetDialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
	c, _, err := dialer.DialContext(t.Context(), "ws://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, r, far
}

// opcode reads one frame and tells what it is.
func opcode(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatal(err)
	}
	size := int64(head[1] & 0x7f)
	if size == 126 {
		long := make([]byte, 2)
		_, _ = io.ReadFull(r, long)
		size = int64(long[0])<<8 | int64(long[1])
	}
	if _, err := io.CopyN(io.Discard, r, size+4); err != nil { // with the mask
		t.Fatal(err)
	}
	return int(head[0] & 0xf)
}

func read(c *websocket.Conn) {
	for {
		if _, _, err := c.NextReader(); err != nil {
			return
		}
	}
}

func TestAPeerThatAnswersNothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, far := pair(t)
		defer far.Close()
		lost := make(chan time.Duration, 1)
		began := time.Now()
		h := New(c, func() { lost <- time.Since(began); _ = c.Close() })
		h.Start()
		go read(c)
		go func() { _, _ = io.Copy(io.Discard, r) }()
		if after := <-lost; after != silent*period {
			t.Errorf("lost after %s, want %s", after, silent*period)
		}
		h.Stop()
		synctest.Wait()
	})
}

// A peer that takes nothing for a while, in the midst of an event, is pinged again when
// it does, and is not taken for lost.
func TestPingsGoOnAfterASlowWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, far := pair(t)
		h := New(c, func() { t.Error("it was taken for lost"); _ = c.Close() })
		h.Start()
		go read(c)
		wrote := make(chan error, 1)
		go func() { wrote <- c.WriteMessage(websocket.TextMessage, make([]byte, 100)) }()
		idle := time.NewTimer(3 * silent * period)
		<-idle.C
		if kind := opcode(t, r); kind != websocket.TextMessage {
			t.Errorf("a frame of kind %d", kind)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		for range 2 * silent {
			if kind := opcode(t, r); kind != websocket.PingMessage {
				t.Errorf("a frame of kind %d", kind)
			}
			if _, err := far.Write([]byte{0x80 | websocket.PongMessage, 0}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if time.Since(h.Pulse()) != 0 {
				t.Error("the pong was not noticed")
			}
		}
		h.Stop()
		_ = c.Close()
		_ = far.Close()
		synctest.Wait()
	})
}
