package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/route"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

const (
	// dialTime bounds a connection within the cluster.
	dialTime = time.Second
	// idleTime is less than the receiver's, so that no request meets a connection
	// that the receiver is about to close.
	idleTime = 90 * time.Second
	// idlePerPeer is how many connections to one replica rest for the next turns.
	idlePerPeer = 64
	// never: whoever sends a body unasked gives up knowing whether it was taken.
	never = 24 * time.Hour
)

// Identity is this replica.
type Identity struct {
	// Pod is its name among the members of the table.
	Pod string
	// Address is its peer port as others reach it, host:port; empty = unknown.
	Address string
}

// Options of a Forwarder. All are required.
type Options struct {
	Self Identity
	// Table is who serves which key at this moment.
	Table func() *route.Table
	// Other are the replicas of the other slot.
	Other func() *route.Table
	// Leaving says that this replica is about to end, and that the others are to take
	// its turns.
	Leaving func() bool
	// Doubt is called when a replica refuses a turn because it has no authority.
	Doubt   func()
	Log     *slog.Logger
	Metrics *telemetry.Metrics
}

// Forwarder hands turns to other replicas; it is the bridge.Router of a fleet.
// It is safe for concurrent use.
type Forwarder struct {
	o         Options
	transport *http.Transport
	avoided   avoided
	inflight  inflight
}

// NewForwarder makes a Forwarder; it starts nothing.
func NewForwarder(o Options) *Forwarder {
	dialer := &net.Dialer{Timeout: dialTime, KeepAliveConfig: net.KeepAliveConfig{
		// A node that vanished is noticed in 25 s, while its answer is waited for.
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // a connection for each turn: none waits behind another's body
	return &Forwarder{o: o, transport: &http.Transport{
		DialContext: dialer.DialContext, Protocols: &protocols, DisableCompression: true,
		MaxIdleConnsPerHost: idlePerPeer, IdleConnTimeout: idleTime, ExpectContinueTimeout: never,
		WriteBufferSize: 64 << 10, ReadBufferSize: 16 << 10,
	}}
}

// Close lets go of idle connections.
func (f *Forwarder) Close() {
	f.inflight.leave()
	f.transport.CloseIdleConnections()
}

// Live is how many turns others serve for clients of this replica.
func (f *Forwarder) Live() int { return f.inflight.count() }

// Leave ends those turns: their clients are told so, as their protocol says it.
func (f *Forwarder) Leave() { f.inflight.leave() }

// Owner implements bridge.Router. A replica that was not reached a moment ago
// owns nothing; the next in line does, the same one for all. Nor does this one when
// it leaves.
func (f *Forwarder) Owner(key affinity.Key) string {
	now := time.Now()
	if f.o.Leaving() {
		owner, _ := f.o.Table().Pick(key.Digest, func(m route.Member) bool {
			return m.Pod == f.o.Self.Pod || f.avoided.skip(m.Address, now)
		})
		return owner.Address
	}
	owner, self := f.o.Table().Owner(key.Digest, func(m route.Member) bool { return f.avoided.skip(m.Address, now) })
	if self {
		return ""
	}
	return owner.Address
}

// Relay implements bridge.Router.
func (f *Forwarder) Relay(w http.ResponseWriter, r *http.Request, req *bridge.Request, key affinity.Key) bool {
	last := ""
	for range maxRelays {
		m, ok := f.o.Other().Pick(key.Digest, func(m route.Member) bool { return f.avoided.skip(m.Address, time.Now()) })
		if !ok || m.Address == last {
			return false
		}
		if f.Forward(w, r, req, key, m.Address) {
			return true
		}
		last = m.Address
	}
	return false
}

// maxRelays is how many replicas of the other slot are tried for one turn before it
// waits for a moment.
const maxRelays = 2

// Forward implements bridge.Router.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, req *bridge.Request, key affinity.Key, address string) bool {
	keys := req.Runtime.PeerKeys()
	if req.Forwarded != nil || len(keys) == 0 || address == "" || address == f.o.Self.Address || len(req.Body) == 0 {
		return false
	}
	outcome, reason := telemetry.ForwardNotDispatched, "not reached a moment ago"
	if !f.avoided.skip(address, time.Now()) {
		outcome, reason = f.forward(w, r, req, key, address, keys[0])
	}
	if r.Context().Err() != nil && outcome != telemetry.ForwardAcknowledged {
		return true // the client has left; nobody waits for an answer
	}
	f.o.Metrics.PeerForward(outcome)
	f.o.Log.Debug("Forwarded a turn", "session", key.Short(), "request", req.ID, "peer", address,
		"outcome", outcome.String(), "reason", reason)
	return outcome == telemetry.ForwardAcknowledged || outcome == telemetry.ForwardAmbiguous
}

// errNotTaken ends a request whose receiver did not ask for its body in time.
var errNotTaken = errors.New("the peer did not take the turn in time")

// forward sends the turn and relays its answer. After ForwardNotDispatched and
// ForwardRejected nothing was written to w.
func (f *Forwarder) forward(w http.ResponseWriter, r *http.Request, req *bridge.Request, key affinity.Key, address string,
	secret []byte) (outcome telemetry.ForwardOutcome, reason string) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer f.inflight.begin(cancel)()
	out, err := f.request(ctx, req, key, address, secret)
	if err != nil {
		return telemetry.ForwardNotDispatched, err.Error()
	}
	body := newHandover(req.Body, func() { cancel(errNotTaken) })
	out = out.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: body.ask}))
	out.Body = body
	quiet := newSilence(req, func() { cancel(errSilent) })
	defer quiet.stop()
	res, err := f.transport.RoundTrip(out)
	quiet.stop()
	back := body.takeBack()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if back {
			if r.Context().Err() == nil {
				f.avoided.failed(address, time.Now())
			}
			return telemetry.ForwardNotDispatched, err.Error()
		}
		f.lost(w, req)
		return telemetry.ForwardAmbiguous, err.Error()
	}
	defer res.Body.Close()
	switch outcome := res.Header.Get(outcomeHeader); {
	case outcome == acknowledged:
		f.avoided.reached(address)
		return relay{w: w, req: req, quiet: quiet, ctx: ctx}.run(res)
	case outcome == rejected:
		reason = res.Header.Get(reasonHeader)
		switch {
		case reason == reasonDraining:
			f.avoided.failed(address, time.Now())
		case reason == reasonAuthority && req.Tail == "":
			f.o.Doubt()
		}
		return telemetry.ForwardRejected, reason
	case back:
		// Somebody else listens there, or the peer is of another version.
		f.avoided.failed(address, time.Now())
		return telemetry.ForwardNotDispatched, fmt.Sprintf("status %d", res.StatusCode)
	default:
		f.lost(w, req)
		return telemetry.ForwardAmbiguous, fmt.Sprintf("status %d without an outcome", res.StatusCode)
	}
}

// request is the turn as it goes to a peer, without its body.
func (f *Forwarder) request(ctx context.Context, req *bridge.Request, key affinity.Key, address string,
	secret []byte) (*http.Request, error) {
	header := travelling(req.Header)
	envelope, signature, err := Envelope{
		Request: req.ID, Client: req.Client, Route: routeNames[req.Route], Stream: req.Stream, Socket: req.Socket, Key: key.Name(),
		Origin: f.o.Self.Pod, Target: f.pod(address), Address: address, Hops: maxHops,
		HeaderDigest: headerDigest(header), BodyDigest: digestOf(req.Body), BodyBytes: int64(len(req.Body)),
		Tail: req.Tail, Budget: req.Budget.Header(time.Now()),
	}.sign(secret)
	if err != nil {
		return nil, err
	}
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+turnPath, nil)
	if err != nil {
		return nil, fmt.Errorf("addressing the peer: %w", err)
	}
	if _, named := header["User-Agent"]; !named {
		header["User-Agent"] = []string{""} // or net/http adds its own
	}
	header.Set("Expect", "100-continue")
	header.Set(envelopeHeader, envelope)
	header.Set(signatureHeader, signature)
	out.Header, out.ContentLength = header, int64(len(req.Body))
	return out, nil
}

// pod names the replica at an address; empty = it is not known.
func (f *Forwarder) pod(address string) string {
	if pod := f.o.Table().Pod(address); pod != "" {
		return pod
	}
	return f.o.Other().Pod(address)
}

// lost tells a client whose turn may be running that its end will not be known.
func (f *Forwarder) lost(w http.ResponseWriter, req *bridge.Request) {
	w.Header().Set("X-Request-Id", req.ID)
	lostPeer().WriteHTTP(w)
}

// lostPeer invites no retry: the turn may be running, or have run.
func lostPeer() *failure.Failure {
	return failure.New(failure.StreamIncomplete,
		"The replica that serves this conversation was lost during the turn; its outcome is unknown.", failure.Reason("peer_lost"))
}
