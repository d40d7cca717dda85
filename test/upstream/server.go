package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server is the simulated service: an http.Handler with a memory.
type Server struct {
	// URL is the base URL once started, without a path.
	URL string
	// CA is the PEM of the authority of a server started with TLS.
	CA []byte

	opts     Options
	ledger   *Ledger
	director director
	history  *history
	issuer   *issuer
	quotas   *quotas

	ctx    context.Context // the life of the server, for sockets and silent answers
	cancel context.CancelFunc

	connections atomic.Int64 // numbers given to TCP connections
	open        atomic.Int64 // TCP connections open now
	inFlight    atomic.Int64 // dispatches running or queued now
	peak        atomic.Int64
	responses   atomic.Int64 // numbers given to responses
	released    chan struct{}

	mu      sync.Mutex
	closed  bool
	leaving bool           // no socket is taken any more
	handler sync.WaitGroup // running ServeHTTP calls, accept loops and lanes
	sockets map[*socket]struct{}
	servers []*http.Server
	dial    func(context.Context) (net.Conn, error)
}

// New makes a server that listens nowhere yet. An invalid script is reported
// by Script; here it is answered with status 500 to every request.
func New(opts Options) *Server {
	s := &Server{
		opts: opts.withDefaults(), ledger: newLedger(), sockets: map[*socket]struct{}{}, issuer: newIssuer(), quotas: newQuotas(),
		released: make(chan struct{}, maxReleased),
	}
	s.history = newHistory(s.opts.History)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.install(s.opts.Script)
	return s
}

// Script replaces the script in force, counters included. Responses that are
// under way go on as they began.
func (s *Server) Script(script Script) error {
	if err := script.validate(); err != nil {
		return fmt.Errorf("reading script: %w", err)
	}
	s.install(script)
	return nil
}

func (s *Server) install(script Script) {
	s.director.set(script)
	s.issuer.install(script)
	s.quotas.install(script)
}

// maxReleased bounds the releases that nothing waits for yet.
const maxReleased = 1024

// Release lets one answer go on that the fault "hold" holds, or the next one
// that it would hold.
func (s *Server) Release() {
	select {
	case s.released <- struct{}{}:
	default:
	}
}

// Forget makes every anchor unknown, as a service does that has lost its
// memory: those of accounts and those of sockets.
func (s *Server) Forget() {
	s.history.clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.sockets {
		k.forget()
	}
}

// Ledger is the record of everything that came in.
func (s *Server) Ledger() *Ledger { return s.ledger }

// Stats counts what is open and under way.
type Stats struct {
	Connections  int64 `json:"connections"`        // open now
	Sockets      int   `json:"sockets"`            // of them WebSockets
	Accepted     int64 `json:"accepted"`           // connections ever
	InFlight     int64 `json:"inFlight"`           // dispatches running or queued
	PeakInFlight int64 `json:"peakInFlight"`       // highest InFlight so far
	Dispatches   int   `json:"dispatches"`         // in the ledger
	Duplicates   int   `json:"duplicates"`         // groups, see Ledger.Duplicates
	Accounts     any   `json:"accounts,omitempty"` // turns per account
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	sockets := len(s.sockets)
	s.mu.Unlock()
	perAccount := map[string]int{}
	ds := s.ledger.Dispatches()
	for _, d := range ds {
		perAccount[d.Account]++
	}
	return Stats{
		Connections: s.open.Load(), Sockets: sockets, Accepted: s.connections.Load(), InFlight: s.inFlight.Load(),
		PeakInFlight: s.peak.Load(), Dispatches: len(ds), Duplicates: len(s.ledger.Duplicates()), Accounts: perAccount,
	}
}

// Serve accepts connections on ln until Close.
func (s *Server) Serve(ln net.Listener) error { return s.serve(ln, nil) }

// ServeTLS is Serve with TLS. HTTP/1.1 only, as the WebSocket upgrade needs.
func (s *Server) ServeTLS(ln net.Listener, conf *tls.Config) error { return s.serve(ln, conf) }

func (s *Server) serve(ln net.Listener, conf *tls.Config) error {
	srv, err := s.register()
	if err != nil {
		_ = ln.Close() // nobody will use it
		return err
	}
	defer s.handler.Done()
	if conf != nil {
		srv.TLSConfig = conf
		err = srv.ServeTLS(trackedListener{ln, s}, "", "")
	} else {
		err = srv.Serve(trackedListener{ln, s})
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving: %w", err)
}

// errClosed is returned by Serve after Close.
var errClosed = errors.New("upstream: server closed")

func (s *Server) register() (*http.Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: time.Minute, ConnContext: withConn,
		BaseContext: func(net.Listener) context.Context { return s.ctx },
		Protocols:   new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	s.servers = append(s.servers, srv)
	s.handler.Add(1)
	return srv, nil
}

// enter counts a goroutine that Close waits for; false after Close.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handler.Add(1)
	return true
}

// Shutdown stops accepting, closes sockets with 1001 and waits for responses
// over HTTP, at most until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.leaving = true
	servers := s.servers
	sockets := make([]*socket, 0, len(s.sockets))
	for k := range s.sockets {
		sockets = append(sockets, k)
	}
	s.mu.Unlock()
	for _, k := range sockets {
		k.close(1001, "shutting down")
	}
	var errs []error
	for _, srv := range servers {
		errs = append(errs, srv.Shutdown(ctx))
	}
	s.Close()
	return errors.Join(errs...)
}

// Close ends everything at once and returns when no goroutine is left that
// the server started. It may be called twice.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	servers := s.servers
	sockets := make([]*socket, 0, len(s.sockets))
	for k := range s.sockets {
		sockets = append(sockets, k)
	}
	s.mu.Unlock()
	s.cancel()
	for _, srv := range servers {
		_ = srv.Close() // its error is that of a listener closed already
	}
	for _, k := range sockets {
		fin(k.ws.NetConn())
	}
	s.handler.Wait()
}
