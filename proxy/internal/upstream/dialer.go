package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Options of a Dialer. Durations of zero mean no bound.
type Options struct {
	// RootCAs nil = the system's.
	RootCAs        *x509.CertPool
	Connect        time.Duration
	TLS            time.Duration
	ResponseHeader time.Duration
}

// Dialer makes connections. It is safe for concurrent use.
type Dialer struct {
	ws   websocket.Dialer
	http *http.Client
}

// Socket sizes. TLS buffers below the socket already, and large reads go past the
// read buffer; it is held by every idle session. A write buffer is held only while
// a request is written, and comes from a pool.
const (
	socketReadBytes  = 1 << 10
	socketWriteBytes = 32 << 10
	keepAlivePeriod  = 30 * time.Second
	refusalBytes     = 16 << 10
	idlePerHost      = 64
	idleHTTP         = 90 * time.Second
)

// NewDialer makes a Dialer.
func NewDialer(o Options) *Dialer {
	plain := &net.Dialer{Timeout: o.Connect, KeepAlive: keepAlivePeriod}
	config := &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	dialTLS := func(protocols ...string) func(ctx context.Context, network, address string) (net.Conn, error) {
		c := config.Clone()
		c.NextProtos = protocols
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialTLS(ctx, plain, c, o.TLS, network, address)
		}
	}
	d := &Dialer{
		ws: websocket.Dialer{
			NetDialContext:    dialPlain(plain),
			NetDialTLSContext: dialTLS(),
			HandshakeTimeout:  o.Connect + o.TLS + o.ResponseHeader,
			ReadBufferSize:    socketReadBytes,
			WriteBufferSize:   socketWriteBytes,
			WriteBufferPool:   &sync.Pool{},
			// No compression: it costs megabytes a connection and breaks some peers.
			EnableCompression: false,
		},
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:           dialPlain(plain),
				TLSClientConfig:       config,
				TLSHandshakeTimeout:   o.TLS,
				ResponseHeaderTimeout: o.ResponseHeader,
				MaxIdleConnsPerHost:   idlePerHost,
				IdleConnTimeout:       idleHTTP,
				DisableCompression:    true,
				ForceAttemptHTTP2:     true,
			},
			// A redirect would carry the account's key to another place.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	return d
}

// Close drops idle connections.
func (d *Dialer) Close() { d.http.CloseIdleConnections() }

func dialPlain(plain *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := plain.DialContext(ctx, network, address)
		if err != nil {
			return nil, &DialError{Stage: "connect", Err: err}
		}
		return conn, nil
	}
}

func dialTLS(ctx context.Context, plain *net.Dialer, config *tls.Config, timeout time.Duration, network, address string) (net.Conn, error) {
	raw, err := plain.DialContext(ctx, network, address)
	if err != nil {
		return nil, &DialError{Stage: "connect", Err: err}
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	config = config.Clone()
	config.ServerName, _, err = net.SplitHostPort(address)
	if err != nil {
		config.ServerName = address
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, &DialError{Stage: "tls", Err: err}
	}
	return conn, nil
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// WebSocket opens a socket. Its error is a *DialError.
func (d *Dialer) WebSocket(ctx context.Context, t Target) (Conn, error) {
	h := t.Header.Clone()
	if h == nil {
		h = http.Header{}
	}
	Authorize(h, t.Credential)
	url := "ws" + strings.TrimPrefix(t.responsesURL(), "http") // https -> wss
	// The library reads the answer to an upgrade without looking at ctx.
	ws, stop := d.ws, func() bool { return true }
	guarded := func(dial dialFunc) dialFunc {
		return func(inner context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(inner, network, address)
			if err == nil {
				stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		}
	}
	ws.NetDialContext, ws.NetDialTLSContext = guarded(d.ws.NetDialContext), guarded(d.ws.NetDialTLSContext)
	conn, response, err := ws.DialContext(ctx, url, h)
	if !stop() && err == nil {
		_ = conn.Close()
		response, err = nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, dialError(response, err)
	}
	// The answer to an upgrade has no body.
	_ = response.Body.Close()
	return newSocket(conn, response.Header), nil
}

func dialError(response *http.Response, err error) error {
	var stage *DialError
	if errors.As(err, &stage) {
		return stage
	}
	if response == nil {
		return &DialError{Stage: "upgrade", Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	// The library has read the start of a refusal already; what it kept is enough.
	body, readErr := io.ReadAll(bufio.NewReader(io.LimitReader(response.Body, refusalBytes)))
	if readErr != nil {
		body = nil
	}
	refusal := httpFault(response.StatusCode, response.Header, body)
	return &DialError{Stage: "upgrade", Status: response.StatusCode, Refusal: &refusal, Err: err}
}

// NoWebSocket says whether a refused upgrade means that the upstream has no
// WebSocket at this place, so that HTTP should be used.
func (e *DialError) NoWebSocket() bool {
	switch e.Status {
	case http.StatusUpgradeRequired, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented, http.StatusOK:
		return true
	}
	return false
}
