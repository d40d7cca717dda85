// Package server is the proxy's face: the data port that clients speak to and
// the ops port that Kubernetes and people look at.
//
// It authenticates, reads and checks a turn and hands it to Turns; it serves
// model lists and passes everything else under /v1/ through to an account.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

const (
	// idleTimeout is longer than the 600 s for which the largest load balancers
	// keep idle connections: whoever closes first must not be us, or a request
	// meets a closing connection.
	idleTimeout = 620 * time.Second
	// maxHeaderBytes holds Codex' turn metadata and a JWT several times over.
	maxHeaderBytes = 128 << 10
	// defaultUploadIdle is for a body of any size that is passed through: each read
	// has to bring something in this time.
	defaultUploadIdle = deadline.InboundBodyTime
)

// Turns serves one checked turn; it writes the whole response and counts it
// (telemetry.Metrics.RequestDone). It must not use w or r after it returns.
type Turns interface {
	ServeTurn(w http.ResponseWriter, r *http.Request, req *bridge.Request)
	// SocketClosed is told when a client's WebSocket has ended.
	SocketClosed(client, socket string)
}

// Accounts is what the server needs of account.Registry.
type Accounts interface {
	Acquire(ctx context.Context, want account.Want) (*account.Lease, error)
}

// Options of a Server. All fields but Objects, Leaving and Intake are required.
type Options struct {
	Logger *slog.Logger
	// Runtime is the configuration; each request loads it once.
	Runtime  *atomic.Pointer[config.Runtime]
	Accounts Accounts
	Turns    Turns
	// Objects knows which account holds a client's files; nil = nobody does.
	Objects Objects
	// Leaving says that clients should connect anew, because another slot serves
	// them; nil = never.
	Leaving func() bool
	Metrics *telemetry.Metrics
	Intake  intake.Options
}

// Server is the handler of the data port.
type Server struct {
	log      *slog.Logger
	runtime  *atomic.Pointer[config.Runtime]
	accounts Accounts
	turns    Turns
	objects  Objects
	metrics  *telemetry.Metrics
	intake   *intake.Reader
	live     *Live
	sockets  *sockets
	upstream *transports
	draining atomic.Bool
	leaving  func() bool
	// uploadIdle bounds the silence of a client in the middle of its body.
	uploadIdle time.Duration
	// headerTime bounds the arrival of a header.
	headerTime time.Duration
	// stallTime bounds a client's taking nothing of an answer.
	stallTime time.Duration
	// socketIdle bounds a WebSocket's time without a turn.
	socketIdle time.Duration
}

// New returns a Server; it starts nothing.
func New(o Options) (*Server, error) {
	if o.Logger == nil || o.Runtime == nil || o.Accounts == nil || o.Turns == nil || o.Metrics == nil {
		return nil, errors.New("server options are incomplete")
	}
	reader, err := intake.NewReader(o.Intake)
	if err != nil {
		return nil, fmt.Errorf("making the data port: %w", err)
	}
	return &Server{
		log: o.Logger, runtime: o.Runtime, accounts: o.Accounts, turns: o.Turns, objects: o.Objects, metrics: o.Metrics, leaving: o.Leaving,
		intake: reader, live: NewLive(), sockets: newSockets(), upstream: &transports{}, uploadIdle: defaultUploadIdle,
		headerTime: deadline.InboundHeaderTime, stallTime: stallTime, socketIdle: defaultSocketIdle,
	}, nil
}

// HTTPServer is the data port's server: HTTP/1.1 and HTTP/2 without TLS. It has
// no write timeout, because streams last for hours; see stall. It is to serve what
// Listener returns.
func (s *Server) HTTPServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           s,
		Protocols:         &protocols,
		ReadHeaderTimeout: s.headerTime,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         follow,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// Live counts the requests that are being served.
func (s *Server) Live() *Live { return s.live }

// Sockets is how many WebSockets of clients are open.
func (s *Server) Sockets() int { return s.sockets.count() }

// Drain makes every further answer the last of its connection; WebSockets end when
// they have no turn. New requests are still served: endpoints that are gone from the
// Service are still being used.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.sockets.ask(stopping)
}

// Release sends the clients of WebSockets to the slot that serves, or lets them stay.
func (s *Server) Release(now bool) {
	if now {
		s.sockets.ask(released)
	} else {
		s.sockets.ask(leaving{})
	}
}

// Draining says whether Drain was called.
func (s *Server) Draining() bool { return s.draining.Load() }

// Close lets go of idle connections to the upstream, and cuts the WebSockets that are
// left.
func (s *Server) Close() {
	s.sockets.close()
	s.upstream.close()
}
