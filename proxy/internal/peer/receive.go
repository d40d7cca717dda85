package peer

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
	"github.com/causeway-dev/causeway/proxy/internal/route"
)

// Values of the outcome header. An answer without one is nobody's.
const (
	acknowledged = "acknowledged"
	rejected     = "rejected"
)

// Reasons of a rejection. All come before anything is dispatched.
const (
	reasonSignature = "signature" // of an unknown key, or of something else than what came
	reasonTarget    = "target"    // meant for another replica
	reasonHop       = "hop"       // it has changed replicas once already
	reasonDraining  = "draining"  // this replica is going
	reasonAuthority = "authority" // the other slot has it
	reasonForm      = "form"      // signed, and not understood: of another version
	reasonBody      = "body"      // too large, too slow or not what was announced
)

const (
	// headerTime, headerBytes and connectionTime are those of the data port, with
	// room for the envelope.
	headerTime     = 10 * time.Second
	headerBytes    = 160 << 10
	connectionTime = 620 * time.Second
)

// Turns serves a turn and writes the whole response; see bridge.Bridge.
type Turns interface {
	ServeTurn(w http.ResponseWriter, r *http.Request, req *bridge.Request)
}

// ReceiverOptions of a Receiver. All are required.
type ReceiverOptions struct {
	Self Identity
	// Table is who serves which key at this moment.
	Table func() *route.Table
	// Runtime is the configuration; each turn loads it once, and with it the keys
	// that are believed.
	Runtime *atomic.Pointer[config.Runtime]
	Turns   Turns
	// Draining says that no turn is to be taken any more.
	Draining func() bool
	// Admits says whether a turn of a client is taken; tail is the response it builds
	// on, empty = none.
	Admits func(key affinity.Key, client, tail string) bool
	// Begin counts a turn until the returned function is called.
	Begin func() (end func())
	Log   *slog.Logger
}

// Receiver is the handler of the peer port. It is safe for concurrent use.
type Receiver struct {
	o    ReceiverOptions
	body *intake.Reader
}

// NewReceiver makes a Receiver; it starts nothing.
func NewReceiver(o ReceiverOptions) (*Receiver, error) {
	body, err := intake.NewReader(intake.Options{})
	if err != nil {
		return nil, fmt.Errorf("making the peer port: %w", err)
	}
	return &Receiver{o: o, body: body}, nil
}

// HTTPServer is the peer port's server.
func (p *Receiver) HTTPServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler: p, Protocols: &protocols, ReadHeaderTimeout: headerTime, IdleTimeout: connectionTime, MaxHeaderBytes: headerBytes,
		ErrorLog: slog.NewLogLogger(p.o.Log.Handler(), slog.LevelDebug),
	}
}

// ServeHTTP takes a turn of another replica.
func (p *Receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer p.o.Begin()()
	defer p.recovered()
	if r.Method != http.MethodPost || r.URL.Path != turnPath {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	rt := p.o.Runtime.Load()
	e, err := openEnvelope(r.Header, rt.PeerKeys())
	if err != nil {
		p.reject(w, http.StatusUnauthorized, reasonSignature, e)
		return
	}
	arrived := time.Now()
	req, status, reason := p.request(w, r, e)
	if reason != "" {
		p.reject(w, status, reason, e)
		return
	}
	req.Runtime, req.Budget = rt, budgetOf(e, rt, arrived)
	w.Header().Set(outcomeHeader, acknowledged)
	p.o.Turns.ServeTurn(w, r, req)
}

// request judges a signed envelope, before its body is asked for, and the body.
func (p *Receiver) request(w http.ResponseWriter, r *http.Request, e Envelope) (req *bridge.Request, status int, reason string) {
	header := travelling(r.Header)
	key, known := affinity.ParseKey(e.Key)
	family, served := routeOf(e.Route)
	switch {
	case headerDigest(header) != e.HeaderDigest:
		return nil, http.StatusUnauthorized, reasonSignature
	case !p.isTarget(e):
		return nil, http.StatusMisdirectedRequest, reasonTarget
	case e.Hops > maxHops:
		return nil, http.StatusLoopDetected, reasonHop
	case !known || !served:
		return nil, http.StatusBadRequest, reasonForm
	case e.BodyBytes != r.ContentLength:
		return nil, http.StatusBadRequest, reasonBody
	case p.o.Draining():
		return nil, http.StatusServiceUnavailable, reasonDraining
	case !p.o.Admits(key, e.Client, e.Tail):
		return nil, http.StatusMisdirectedRequest, reasonAuthority
	}
	r.Header.Del("Content-Encoding") // not signed, so nobody's word
	body, err := p.body.Read(w, r)
	switch {
	case err != nil:
		return nil, http.StatusBadRequest, reasonBody
	case digestOf(body) != e.BodyDigest:
		return nil, http.StatusUnauthorized, reasonSignature
	}
	return &bridge.Request{
		ID: e.Request, Route: family, Client: e.Client, Header: header, Body: body, Stream: e.Stream, Socket: e.Socket, Forwarded: &key,
		Return: p.isOwner(e.Origin, key),
	}, 0, ""
}

// budgetOf is what the turn has left: what the other replica says, within what this
// one's own configuration allows.
func budgetOf(e Envelope, rt *config.Runtime, arrived time.Time) deadline.Budget {
	limits := deadline.For(rt.Bundle.Circuit.Deadlines, 0, deadline.Text, e.Stream)
	own, err := deadline.NewBudget(func(string) string { return "" }, e.Stream, limits, arrived)
	if err != nil {
		own = deadline.Budget{} // without a header there is nothing to be wrong
	}
	return deadline.FromHeader(e.Budget, own, arrived)
}

// isOwner: a pod that should hold a key and sends a turn of it has found that it
// is held here.
func (p *Receiver) isOwner(pod string, key affinity.Key) bool {
	owner, self := p.o.Table().Owner(key.Digest, nil)
	return !self && owner.Pod == pod
}

// isTarget: the name counts where the sender knows it, because addresses are
// given to other pods.
func (p *Receiver) isTarget(e Envelope) bool {
	if e.Target != "" {
		return e.Target == p.o.Self.Pod
	}
	return e.Address == p.o.Self.Address
}

func (p *Receiver) reject(w http.ResponseWriter, status int, reason string, e Envelope) {
	p.o.Log.Debug("Rejected a turn of a peer", "reason", reason, "peer", e.Origin, "request", e.Request)
	w.Header().Set(outcomeHeader, rejected)
	w.Header().Set(reasonHeader, reason)
	w.WriteHeader(status)
}

// recovered ends a turn that broke, without what its panic says: that may quote
// anything.
func (p *Receiver) recovered() {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
		p.o.Log.Error("Recovered from a panic", "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
	}
	panic(http.ErrAbortHandler) // net/http's own way to break a connection
}
