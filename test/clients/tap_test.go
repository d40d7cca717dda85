package clients

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// tap carries TCP connections of clients to the proxy, unchanged, and keeps
// what the clients sent.
type tap struct {
	addr string
	mu   sync.Mutex
	sent []*bytes.Buffer // one a connection
}

// startTap carries each connection to where pick says at that moment.
func startTap(t *testing.T, pick func() string) *tap {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{addr: ln.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.carry(client, pick()) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		running.Wait()
	})
	return p
}

func (p *tap) carry(client net.Conn, target string) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	kept := &bytes.Buffer{}
	p.mu.Lock()
	p.sent = append(p.sent, kept)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, io.TeeReader(client, lockedWriter{p, kept}))
		server.Close() // the client has gone
	}()
	_, _ = io.Copy(client, server)
	client.Close() // the proxy has
	server.Close()
	<-done
}

type lockedWriter struct {
	tap *tap
	w   io.Writer
}

func (l lockedWriter) Write(b []byte) (int, error) {
	l.tap.mu.Lock()
	defer l.tap.mu.Unlock()
	return l.w.Write(b)
}

// bytes is all that clients sent, heads of requests included.
func (p *tap) bytes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.sent {
		n += b.Len()
	}
	return n
}

// tapped is one request as it was on the wire.
type tapped struct {
	*http.Request
	body []byte
}

// requests are those that have arrived whole, in order of their connections.
func (p *tap) requests() []tapped {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []tapped
	for _, b := range p.sent {
		r := bufio.NewReader(bytes.NewReader(b.Bytes()))
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				break
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				break
			}
			all = append(all, tapped{req, body})
		}
	}
	return all
}
