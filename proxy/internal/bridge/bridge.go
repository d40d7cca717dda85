package bridge

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Options of a Bridge. What says what its zero value means may be left out.
type Options struct {
	Logger   *slog.Logger
	Accounts session.Accounts
	// Routes are the circuits of the ways upstream; nil = there are none.
	Routes  *circuit.Routes
	Metrics *telemetry.Metrics
	// Hold is how long the HTTP status waits for the first event, so that an
	// early failure keeps its status, and an upstream that is overloaded can be
	// exchanged; 0 = session.DefaultHold.
	Hold time.Duration
	// MaxSessions bounds the sessions in memory; 0 = session.DefaultMaxSessions.
	MaxSessions int
	// Store holds what outlives sessions, and Holder is this process in it; nil =
	// the memory of this process. Who opened it closes it, after Close.
	Store  store.Store
	Holder store.Holder
	// Router knows the other replicas; nil = there are none.
	Router Router
	// Authority says whether this replica may admit turns; nil = always.
	Authority Authority
	// Leaving says that this replica is about to end, so that others are to take its
	// turns, as far as they can; nil = never.
	Leaving func() bool
}

// Bridge serves turns. It is safe for concurrent use.
type Bridge struct {
	log      *slog.Logger
	metrics  *telemetry.Metrics
	hold     time.Duration
	sessions *session.Registry
	dialers  dialers
	router   Router
	// authority is nil where no slots take turns.
	authority Authority
	leaving   func() bool
	durable   *durable // nil = the memory of this process
}

// New makes a Bridge; Close ends what it starts.
func New(o Options) *Bridge {
	b := &Bridge{log: o.Logger, metrics: o.Metrics, hold: o.Hold, router: o.Router, authority: o.Authority, leaving: o.Leaving}
	if b.leaving == nil {
		b.leaving = func() bool { return false }
	}
	if b.hold == 0 {
		b.hold = session.DefaultHold
	}
	services := session.Services{
		Accounts: o.Accounts, Dialer: b.dialers.of, Observer: observer{o.Metrics}, Log: o.Logger, MaxSessions: o.MaxSessions,
		Hold: b.hold, Routes: o.Routes, Authority: o.Authority,
	}
	if o.Store != nil {
		b.durable = newDurable(o.Store, o.Logger, o.Metrics, func(h store.Held, current store.Entry) { b.sessions.Fenced(h, current) })
		b.durable.services(&services, o.Holder)
	}
	b.sessions = session.NewRegistry(services)
	return b
}

// StoreState is how far the store is behind; zero without a shared one.
func (b *Bridge) StoreState() telemetry.StoreState {
	if b.durable == nil {
		return telemetry.StoreState{}
	}
	return b.durable.state()
}

// PinFile notes which account a client's file was uploaded to: only there can a
// turn use it. Safe for concurrent use; it does not wait.
func (b *Bridge) PinFile(client, fileID, account string) { b.sessions.PinFile(client, fileID, account) }

// FileAccount is the account that has a client's file; empty = nobody knows. The
// error says that the store, which may know, does not answer.
func (b *Bridge) FileAccount(ctx context.Context, client, fileID string) (string, error) {
	pin, err := b.sessions.PinOf(ctx, client, []string{fileID})
	return pin.Account, err
}

// SocketClosed ends what only a client's WebSocket could have gone on with, as soon as it
// has no turn. Upstreams end it with the connection as well.
func (b *Bridge) SocketClosed(client, socket string) {
	b.sessions.Yield(affinity.SocketKey(client, socket))
}

// Rebalance gives up the sessions that belong to another replica now, each as
// soon as it has no turn.
func (b *Bridge) Rebalance(ours func(affinity.Key) bool) { b.sessions.Rebalance(ours) }

// Overview describes all sessions.
func (b *Bridge) Overview() session.Overview { return b.sessions.Overview() }

// Views describes up to limit sessions, the most recently used first, and counts
// them all.
func (b *Bridge) Views(limit int) ([]session.View, int) { return b.sessions.Views(limit) }

// Detail describes the session whose key is shown so.
func (b *Bridge) Detail(key string) (session.Detail, bool) { return b.sessions.Detail(key) }

// ResetCircuits closes all retry circuits, once for each token.
func (b *Bridge) ResetCircuits(token string) { b.sessions.ResetCircuits(token) }

// Sessions counts the sessions in memory.
func (b *Bridge) Sessions() session.Counts { return b.sessions.Counts() }

// Close ends all sessions: idle ones at once, others when their turns end, at
// the latest when ctx does.
func (b *Bridge) Close(ctx context.Context) {
	b.sessions.Close(ctx)
	b.dialers.close()
	if b.durable != nil {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		b.durable.close(flush, b.log)
	}
}

// flushTime is how long the end of a proxy waits for the store.
const flushTime = 3 * time.Second

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

// fingerprint identifies a request among the few of its session. Nothing depends
// on it beyond them, so that speed counts and strength does not.
func fingerprint(body []byte) string {
	return strconv.FormatUint(xxhash.Sum64(body), 16) + "-" + strconv.Itoa(len(body))
}

// unknownOwner is the answer to a turn that builds on a conversation which only
// the store knows, while the store does not answer.
func unknownOwner() *failure.Failure {
	return failure.New(failure.StoreUnavailable,
		"The store that knows this conversation does not answer; retry later, or send the whole conversation.", failure.Reason("store"))
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
