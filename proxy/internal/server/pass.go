package server

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// copyBuffer is one read of an answer; each is flushed.
const copyBuffer = 32 << 10

// pass is one request passed through to an account. It holds the account and its
// place in the lane until the client has the last byte of the answer.
type pass struct {
	*call
	server *Server
	lease  *account.Lease
	target *url.URL
	body   *upload
	// connected is set once the request has a connection to the upstream.
	connected atomic.Bool
	idle      *idleTimer
	// outcome is that the client left, until something else is known.
	outcome telemetry.Outcome
}

// passThrough serves /v1/X with the account's endpoint + /X.
func (s *Server) passThrough(c *call) {
	outcome := telemetry.OutcomeRefused
	defer func() { s.done(c, outcome) }()
	target, err := upstreamURL(c)
	if err != nil {
		s.refuse(c, failure.New(failure.NotFound, "The requested path cannot be sent to the upstream."))
		return
	}
	lease, err := s.acquire(c.r.Context(), c, laneOf(c.r.URL.Path))
	if err != nil {
		s.refuse(c, failure.From(err))
		return
	}
	defer lease.Release()
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	p := &pass{
		call: c, server: s, lease: lease, target: target, outcome: telemetry.OutcomeCallerGone,
		idle: newIdleTimer(c.rt.Deadlines.Idle, cancel),
	}
	defer p.idle.stop()
	defer func() { outcome = p.outcome }() // also when ReverseProxy breaks the connection
	p.serve(ctx)
}

// acquire leases an account for a request that names no model. It waits as long as
// the lane allows.
func (s *Server) acquire(ctx context.Context, c *call, lane bulkhead.Lane) (*account.Lease, error) {
	only, err := s.owner(ctx, c)
	if err != nil {
		return nil, err
	}
	lease, err := s.accounts.Acquire(ctx, account.Want{Client: c.client, Lane: lane, Only: only})
	if err == nil {
		c.account = lease.Account().Name
	}
	return lease, err
}

// laneOf is the lane of a path that is passed through.
func laneOf(path string) bulkhead.Lane {
	rest := strings.Trim(strings.TrimPrefix(path, platformPrefix), "/")
	first, _, _ := strings.Cut(rest, "/")
	switch {
	case first == "images":
		return bulkhead.Media
	case rest == "responses/compact":
		return bulkhead.Compact
	case first == "models":
		return bulkhead.Background
	default:
		return bulkhead.HTTP
	}
}

// upstreamURL keeps the path as the client escaped it, and the query.
func upstreamURL(c *call) (*url.URL, error) {
	rest, ok := strings.CutPrefix(c.r.URL.EscapedPath(), platformPrefix)
	if !ok || !strings.HasPrefix(rest, "/") {
		return nil, errors.New("the path's first segment is escaped")
	}
	target, err := url.Parse(c.rt.Bundle.Pool.Provider.Endpoint + rest)
	if err != nil {
		return nil, errors.New("the path cannot be parsed") // the error would quote it
	}
	target.RawQuery = c.r.URL.RawQuery
	return target, nil
}

func (p *pass) serve(ctx context.Context) {
	control := http.NewResponseController(p.w)
	// The upstream may answer while the client still sends. HTTP/2 always can.
	_ = control.EnableFullDuplex()
	p.body = &upload{ReadCloser: p.r.Body, control: control, idle: p.server.uploadIdle}
	r := p.r.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { p.connected.Store(true) },
	}))
	r.Body = p.body
	// The upstream's answer brings the header; see toClient.
	p.w.Header().Del(requestIDHeader)
	proxy := httputil.ReverseProxy{
		Rewrite: p.rewrite, ModifyResponse: p.answered, ErrorHandler: p.failed,
		Transport: p.server.upstream.of(p.rt), FlushInterval: -1, BufferPool: buffers{},
		ErrorLog: nowhere,
	}
	proxy.ServeHTTP(p.w, r)
}

// rewrite makes the request the account's.
func (p *pass) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL, r.Out.Host = p.target, ""
	// Without it nothing can be sent twice but a request without a body that
	// never left.
	r.Out.GetBody = nil
	toUpstream(r.Out.Header, p.id, p.lease.Account().Credential)
}

// answered looks at the head of the upstream's answer.
func (p *pass) answered(res *http.Response) error {
	toClient(res.Header, p.id)
	final := telemetry.OutcomeOK
	switch {
	case res.StatusCode == http.StatusUnauthorized:
		p.lease.CoolDown(time.Time{}, account.ReasonAuthRejected)
		p.outcome = telemetry.OutcomeUpstreamError
		p.server.log.WarnContext(p.r.Context(), "Upstream rejected a credential", "account", p.account, "request", p.id)
		return failure.New(failure.UpstreamAuth, "The upstream rejected the credential of the account that this request ran on.")
	case res.StatusCode == http.StatusTooManyRequests:
		final = telemetry.OutcomeLimited
		p.limited(res)
	case res.StatusCode >= http.StatusInternalServerError:
		final = telemetry.OutcomeUpstreamError
	case res.StatusCode >= http.StatusBadRequest:
		final = telemetry.OutcomeCallerError
	default:
		p.lease.Succeeded()
		res.Body = p.remembering(res)
	}
	res.Body = &download{ReadCloser: res.Body, pass: p, final: final}
	p.idle.reset()
	return nil
}

// failed answers what the upstream did not.
func (p *pass) failed(w http.ResponseWriter, _ *http.Request, err error) {
	w.Header().Set(requestIDHeader, p.id)
	f := p.explain(err)
	if f == nil {
		return
	}
	if !p.body.ended() {
		w.Header().Set("Connection", "close")
	}
	p.server.log.DebugContext(p.r.Context(), "Pass-through failed", "account", p.account, "code", f.Code, "request", p.id)
	f.WriteHTTP(w)
}

// explain maps an error to what the client gets; nil = the client has gone.
// Texts of network errors may name proxies with passwords and are not passed on.
func (p *pass) explain(err error) *failure.Failure {
	var made *failure.Failure
	var network net.Error
	bodyErr := p.body.failure()
	switch {
	case errors.As(err, &made):
		return made
	case errors.Is(bodyErr, os.ErrDeadlineExceeded):
		p.outcome = telemetry.OutcomeTimeout
		return failure.New(failure.RequestTimeout, "The request body did not arrive in time.", failure.Reason("inboundBody"))
	// After a missed deadline, net/http takes the client for gone.
	case p.r.Context().Err() != nil:
		p.outcome = telemetry.OutcomeCallerGone
		return nil //nolint:nilerr // nobody is left to be told
	case bodyErr != nil:
		p.outcome = telemetry.OutcomeCallerError
		return failure.New(failure.InvalidRequest, "The request body ended early or is not framed as HTTP demands.")
	case !p.connected.Load():
		p.outcome = telemetry.OutcomeConnect
		return failure.New(failure.UpstreamConnect, "The upstream cannot be reached.")
	case p.idle.fired(), errors.As(err, &network) && network.Timeout():
		p.outcome = telemetry.OutcomeTimeout
		return failure.New(failure.StreamIdleTimeout, "The upstream did not answer in time.", failure.Reason("responseHeader"))
	default:
		p.outcome = telemetry.OutcomeUpstreamError
		return failure.New(failure.UpstreamError, "The upstream ended the connection before it answered.")
	}
}

// nowhere is for what httputil wants to say: it may quote errors of the network.
var nowhere = log.New(io.Discard, "", 0)

// buffers is the pool of copy buffers.
type buffers struct{}

var bufferPool = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// Get implements httputil.BufferPool.
func (buffers) Get() []byte {
	b, ok := bufferPool.Get().(*[copyBuffer]byte)
	if !ok {
		b = new([copyBuffer]byte)
	}
	return b[:]
}

// Put implements httputil.BufferPool.
func (buffers) Put(b []byte) { bufferPool.Put((*[copyBuffer]byte)(b)) }
