package bridge

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Options of a Bridge. All but Hold and MaxSessions are required.
type Options struct {
	Logger   *slog.Logger
	Accounts session.Accounts
	Metrics  *telemetry.Metrics
	// Hold is how long the HTTP status waits for the first event, so that an
	// early failure keeps its status; 0 = DefaultHold.
	Hold time.Duration
	// MaxSessions bounds the sessions in memory; 0 = session.DefaultMaxSessions.
	MaxSessions int
}

// DefaultHold is the longest that clients wait for a head without harm.
const DefaultHold = 2 * time.Second

// Bridge serves turns. It is safe for concurrent use.
type Bridge struct {
	log      *slog.Logger
	metrics  *telemetry.Metrics
	hold     time.Duration
	sessions *session.Registry
	dialers  dialers
}

// New makes a Bridge; it starts nothing.
func New(o Options) *Bridge {
	b := &Bridge{log: o.Logger, metrics: o.Metrics, hold: o.Hold}
	if b.hold == 0 {
		b.hold = DefaultHold
	}
	b.sessions = session.NewRegistry(session.Services{
		Accounts: o.Accounts, Dialer: b.dialers.of, Observer: observer{o.Metrics}, Log: o.Logger, MaxSessions: o.MaxSessions,
	})
	return b
}

// Sessions counts the sessions in memory.
func (b *Bridge) Sessions() session.Counts { return b.sessions.Counts() }

// Close ends all sessions: idle ones at once, others when their turns end, at
// the latest when ctx does.
func (b *Bridge) Close(ctx context.Context) {
	b.sessions.Close(ctx)
	b.dialers.close()
}

// dialers keeps the dialer of the newest configuration. A dialer depends only on
// deadlines and trusted certificates, so that most reloads keep it.
type dialers struct {
	mu      sync.Mutex // guards all below
	current *upstream.Dialer
	options upstream.Options
	bundle  string
}

func (d *dialers) of(rt *config.Runtime) session.Dialer {
	d.mu.Lock()
	defer d.mu.Unlock()
	caBundle := rt.Bundle.Pool.Provider.CABundle
	options := upstream.Options{Connect: rt.Deadlines.Connect, TLS: rt.Deadlines.TLS, ResponseHeader: rt.Deadlines.ResponseHeader}
	if d.current != nil && d.options == options && d.bundle == caBundle {
		return d.current
	}
	if d.current != nil {
		d.current.Close()
	}
	d.options, d.bundle = options, caBundle
	options.RootCAs = rt.RootCAs()
	d.current = upstream.NewDialer(options)
	return d.current
}

func (d *dialers) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.Close()
	}
}

// observer turns what sessions tell into metrics.
type observer struct{ metrics *telemetry.Metrics }

func (o observer) AttemptDone(t session.Transport, row string) {
	o.metrics.AttemptDone(transportOf(t), outcomeOfRow(row))
	if row == "cut" || row == "cut_eventless" || row == "liveness" || row == "garbage" || row == "idle" {
		o.metrics.Truncated()
	}
}

func (o observer) RequestSent(_ session.Transport, bytes int64) {
	o.metrics.UpstreamBytes(telemetry.Sent, int(bytes))
}

func (o observer) Unmatched() { o.metrics.Unmatched() }

func transportOf(t session.Transport) telemetry.Transport {
	if t == session.WebSocket {
		return telemetry.TransportWebSocket
	}
	return telemetry.TransportHTTP
}

var rowOutcomes = map[string]telemetry.Outcome{
	"completed": telemetry.OutcomeOK, "incomplete": telemetry.OutcomeOK, "client_gone": telemetry.OutcomeCallerGone,
	"not_sent": telemetry.OutcomeConnect, "no_websocket": telemetry.OutcomeConnect,
	"account_fault": telemetry.OutcomeLimited, "refused": telemetry.OutcomeUpstreamError,
	"cut": telemetry.OutcomeTruncated, "cut_eventless": telemetry.OutcomeTruncated,
	"liveness": telemetry.OutcomeTruncated, "garbage": telemetry.OutcomeTruncated,
	"idle": telemetry.OutcomeTimeout, "silent": telemetry.OutcomeTimeout, "budget": telemetry.OutcomeTimeout,
	"local": telemetry.OutcomeInternal,
}

func outcomeOfRow(row string) telemetry.Outcome {
	if o, ok := rowOutcomes[row]; ok {
		return o
	}
	return telemetry.OutcomeUpstreamError
}

// isCodex says whether a client understands Codex' own events. SDKs do not:
// some of them fail on an event type they do not know.
func isCodex(req *Request) bool {
	if req.Route == RouteCodex || strings.HasPrefix(req.Header.Get("Originator"), "codex") {
		return true
	}
	for name := range req.Header {
		if strings.HasPrefix(name, "X-Codex-") {
			return true
		}
	}
	return false
}

// soleClient says whether an anchor that nobody knows can only be this client's:
// there is one account it could live on and nobody else it could belong to.
func soleClient(rt *config.Runtime) bool {
	if len(rt.Bundle.Pool.Accounts) != 1 {
		return false
	}
	return rt.Bundle.Clients.Mode == bundle.ClientsOpen || len(rt.Credentials.Clients) <= 1
}

// turn makes the session's view of a request.
func (b *Bridge) turn(req *Request) *session.Turn {
	facts := affinity.Read(req.Body)
	t := &session.Turn{ID: req.ID, Client: req.Client, Header: req.Header, Body: req.Body, Facts: facts,
		Runtime: req.Runtime, Out: session.NewOutbox()}
	source := affinity.Source{Client: req.Client, Header: req.Header, PromptCacheKey: facts.PromptCacheKey, RequestID: req.ID}
	t.Key = affinity.Derive(source)
	if token := affinity.TurnState(req.Header); token != "" {
		t.TurnState = token
		if key, ok := b.sessions.ByTurnState(req.Client, token); ok {
			t.Key, t.Echoed = key, true
		} else if affinity.ProxyMade(token) {
			// A token of ours that no one here knows: fall back to what else the
			// client says of itself.
			t.Key = affinity.DeriveWithoutTurnState(source)
		}
	} else {
		t.TurnState = newTurnState()
	}
	if id := facts.PreviousResponseID; id != "" {
		owner, known := b.sessions.Owner(req.Client, id)
		if !known {
			owner.MayPass = soleClient(req.Runtime)
		}
		if owner.Known && !t.Key.Kind.Hard() {
			t.Key = owner.Key
		}
		t.Owner = owner
	}
	if t.Key.Kind == affinity.KindRequest {
		t.Transport = session.HTTP
	}
	return t
}

// responseHeader sets what every turn's answer carries.
func responseHeader(h http.Header, req *Request, t *session.Turn) {
	h.Set("X-Request-Id", req.ID)
	if t.TurnState != "" {
		h.Set(affinity.TurnStateHeader, t.TurnState)
	}
	up, fresh := t.Out.Head()
	if up != nil {
		upstream.ResponseHeader(h, up, fresh)
	}
}
