package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// trackedConn counts bytes and notes the end of one TCP connection.
type trackedConn struct {
	net.Conn
	server  *Server
	record  *ConnectionRecord
	in, out atomic.Int64
	limit   atomic.Int64 // bytes after which it is reset; 0 = never
	once    sync.Once
}

func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if in, limit := c.in.Add(int64(n)), c.limit.Load(); limit > 0 && in > limit {
		reset(c)
	}
	return n, err //nolint:wrapcheck // a net.Conn returns the errors of the net.Conn it is
}

func (c *trackedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.out.Add(int64(n))
	return n, err //nolint:wrapcheck // as above
}

func (c *trackedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.server.open.Add(-1)
		c.server.ledger.update(func() {
			c.record.Closed = time.Now()
			c.record.BytesIn, c.record.BytesOut = c.in.Load(), c.out.Load()
		})
	})
	return err //nolint:wrapcheck // as above
}

// closing notes the first reason a socket ends for.
func (c *trackedConn) closing(code int, by string) {
	c.server.ledger.update(func() {
		if c.record.CloseCode == 0 {
			c.record.CloseCode, c.record.ClosedBy = code, by
		}
	})
}

type trackedListener struct {
	net.Listener
	server *Server
}

func (l trackedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // http.Server compares it
	}
	return l.server.track(c), nil
}

func (s *Server) track(c net.Conn) *trackedConn {
	s.open.Add(1)
	t := &trackedConn{Conn: c, server: s, record: &ConnectionRecord{
		Number: s.connections.Add(1), Client: c.RemoteAddr().String(), Transport: TransportHTTP, Opened: time.Now(),
	}}
	s.ledger.addConnection(t.record)
	return t
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if t, ok := underTLS(c).(*trackedConn); ok {
		return context.WithValue(ctx, connKey{}, t)
	}
	return ctx
}

func underTLS(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// connOf finds the connection a request came on; nil if the handler runs in
// somebody else's server.
func connOf(r *http.Request) *trackedConn {
	t, _ := r.Context().Value(connKey{}).(*trackedConn)
	return t
}

func connNumber(r *http.Request) int64 {
	if t := connOf(r); t != nil {
		return t.record.Number
	}
	return 0
}

// reset ends a connection with RST, TLS or not: what a crashed peer or an
// impatient middlebox does.
func reset(c net.Conn) {
	c = underTLS(c)
	inner := c
	if t, ok := inner.(*trackedConn); ok {
		inner = t.Conn
	}
	if tcp, ok := inner.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a connection that is gone already needs no RST
	}
	_ = c.Close()
}

// fin ends a connection without ceremony: neither the last chunk, nor
// close_notify, nor a close frame.
func fin(c net.Conn) { _ = underTLS(c).Close() }
