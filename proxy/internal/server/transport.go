package server

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/config"
)

const (
	// idleUpstream is shorter than what upstreams and NATs on the way keep idle
	// connections for: a request must not meet one that is about to close.
	idleUpstream = 50 * time.Second
	// idlePerHost bounds idle connections; HTTP/2 needs one.
	idlePerHost = 64
)

// transports holds the HTTP transport of the current configuration.
type transports struct {
	mu      sync.Mutex // guards all below
	key     transportKey
	current *http.Transport
}

// transportKey is what a transport depends on.
type transportKey struct {
	roots     string
	deadlines config.Deadlines
}

// of returns the transport for rt. Requests on an older one end undisturbed.
func (t *transports) of(rt *config.Runtime) *http.Transport {
	key := transportKey{roots: rt.Bundle.Pool.Provider.CABundle, deadlines: rt.Deadlines}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil && t.key == key {
		return t.current
	}
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
	t.key, t.current = key, newTransport(rt)
	return t.current
}

// Upstream is the transport to the upstream under a configuration.
func (s *Server) Upstream(rt *config.Runtime) http.RoundTripper { return s.upstream.of(rt) }

func (t *transports) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
}

func newTransport(rt *config.Runtime) *http.Transport {
	d := rt.Deadlines
	dialer := &net.Dialer{Timeout: d.Connect}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{RootCAs: rt.RootCAs(), MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: d.TLS,
		// An answer in one piece is silent until it is complete, so that the
		// longest silence of a stream is the measure.
		ResponseHeaderTimeout: max(d.ResponseHeader, d.Idle),
		ForceAttemptHTTP2:     true,
		// Bodies are passed as they are.
		DisableCompression:  true,
		IdleConnTimeout:     idleUpstream,
		MaxIdleConnsPerHost: idlePerHost,
	}
}
