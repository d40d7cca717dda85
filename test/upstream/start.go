package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
)

// TB is the part of testing.TB that starting a server needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start serves on a free port of the loopback interface until the test ends.
func Start(tb TB, opts Options) *Server {
	tb.Helper()
	s := New(opts)
	ln := listenLocal(tb)
	s.URL = "http://" + ln.Addr().String()
	serveUntilEnd(tb, s, ln)
	return s
}

// StartTLS is Start with a certificate for localhost and 127.0.0.1, signed by
// the authority in Server.CA.
func StartTLS(tb TB, opts Options) *Server {
	tb.Helper()
	s := New(opts)
	conf, ca, err := SelfSigned("localhost", "127.0.0.1")
	if err != nil {
		tb.Fatalf("making a certificate: %v", err)
	}
	s.CA = ca
	ln := listenLocal(tb)
	s.URL = "https://" + ln.Addr().String()
	serveTLSUntilEnd(tb, s, ln, conf)
	return s
}

// StartPipe serves over in-memory connections made by Server.Dial: no port,
// and usable within a testing/synctest bubble.
func StartPipe(tb TB, opts Options) *Server {
	tb.Helper()
	s := New(opts)
	ln := newPipeListener()
	s.URL, s.dial = "http://upstream.test", ln.dial
	serveUntilEnd(tb, s, ln)
	return s
}

// Dial opens a connection to a server started with StartPipe, whatever the
// address; it fits http.Transport and websocket.Dialer.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if s.dial == nil {
		return nil, fmt.Errorf("dialing: the server was not started with StartPipe")
	}
	return s.dial(ctx)
}

func listenLocal(tb TB) net.Listener {
	tb.Helper()
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listening: %v", err)
	}
	return ln
}

func serveUntilEnd(tb TB, s *Server, ln net.Listener) {
	runUntilEnd(tb, s, func() error { return s.Serve(ln) })
}

func serveTLSUntilEnd(tb TB, s *Server, ln net.Listener, conf *tls.Config) {
	runUntilEnd(tb, s, func() error { return s.ServeTLS(ln, conf) })
}

func runUntilEnd(tb TB, s *Server, serve func() error) {
	ready := make(chan struct{})
	go func() {
		close(ready)
		_ = serve() // a listener that breaks shows as refused connections
	}()
	<-ready
	tb.Cleanup(s.Close)
}

// pipeListener hands out connections in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("dialing: %w", context.Cause(ctx))
	}
}

// Accept waits for the next Dial.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close refuses further connections.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr has no meaning for a pipe.
func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "upstream.test:80" }
