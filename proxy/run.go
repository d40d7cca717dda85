// Package proxy runs one Causeway proxy: it reads its configuration from a
// folder, serves clients on one port and Kubernetes on another, and stops
// without cutting what is under way.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/version"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/activation"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/server"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// Default addresses of the ports.
const (
	DefaultListen     = ":8080"
	DefaultOpsListen  = ":9090"
	DefaultPeerListen = ":8081"
)

// Options of Run.
type Options struct {
	// ConfigDir holds bundle.json and credentials.json, or manifests.
	ConfigDir string
	// Listen and OpsListen are host:port; port 0 = any free one.
	Listen, OpsListen string
	// PeerListen is where other replicas hand turns over, host:port; it is opened
	// only where there may be some. Empty = DefaultPeerListen.
	PeerListen string
	// Slots tell of authority; nil = those of this pod, if this is one.
	Slots *Slots
	// Replicas are the others; nil = those of this pod's slot, if this is a pod.
	Replicas *Replicas
	Logger   *slog.Logger
	// Hurry ends the patience of a stop when it is closed, as a second signal
	// does: turns under way are told that the proxy is going and end. nil = never.
	Hurry <-chan struct{}
	// Started is told the actual addresses once both ports are open. nil = nobody.
	Started func(data, ops net.Addr)
	// Getenv tells whether this is a pod, and which; nil = os.Getenv.
	Getenv func(string) string
}

// Run serves until ctx ends, then stops gracefully and returns nil. An error
// means that it could not start or that a port failed; it says what to do and
// names no secret.
func Run(ctx context.Context, o Options) error {
	if o.ConfigDir == "" {
		return errors.New("no configuration: name the folder that holds it, --config DIR")
	}
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.PeerListen == "" {
		o.PeerListen = DefaultPeerListen
	}
	rt, err := config.Load(o.ConfigDir)
	if err != nil {
		return fmt.Errorf("configuration in %s: %w", o.ConfigDir, err)
	}
	peers, err := openPeers(ctx, o)
	if err != nil {
		return err
	}
	defer peers.close()
	slots, closeIdle, err := slotsOf(o, rt, peers)
	if err != nil {
		return err
	}
	defer closeIdle()
	p, err := assemble(o, rt, peers, slots)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// process is one running proxy.
type process struct {
	options  Options
	log      *slog.Logger
	runtime  atomic.Pointer[config.Runtime]
	rejected atomic.Pointer[config.Rejected]
	accounts *account.Registry
	metrics  *telemetry.Metrics
	routes   *circuit.Routes
	// store is what replicas share, and holder this process in it; nil = nothing.
	store   store.Backend
	holder  store.Holder
	sharing *sharing
	bridge  *bridge.Bridge
	server  *server.Server
	serving atomic.Bool
	watch   *server.Health
	peers   *peers // nil = there are none
	// gate is what authority is asked of; nil = this replica is in no slot. released
	// says that its sessions are to go elsewhere.
	gate     *activation.Gate
	slots    *Slots
	released atomic.Bool
	// reset is the last value under which circuits were closed. After the start
	// it belongs to follow.
	reset string
	// changed tells the reporter that there is news.
	changed func()
}

func assemble(o Options, rt *config.Runtime, others *peers, slots *Slots) (*process, error) {
	p := &process{options: o, peers: others, slots: slots, log: o.Logger, accounts: account.NewRegistry(clock.RealClock{}),
		metrics: telemetry.NewMetrics(version.Version), changed: func() {}}
	p.routes = p.newRoutes()
	p.accounts.Update(rt)
	p.routes.Update(rt.Bundle.Circuit.Breaker, len(rt.Bundle.Pool.Accounts))
	p.runtime.Store(rt)
	var err error
	if p.store, p.holder, err = openStore(o, rt, others); err != nil {
		return nil, err
	}
	p.gate = p.newGate(slots)
	options := bridge.Options{Logger: o.Logger, Accounts: p.accounts, Routes: p.routes, Metrics: p.metrics, Router: p.router(),
		Store: p.store, Holder: p.holder, Leaving: p.goes}
	if p.gate != nil {
		options.Authority = p.gate
	}
	p.bridge = bridge.New(options)
	p.server, err = server.New(server.Options{
		Logger: o.Logger, Runtime: &p.runtime, Accounts: p.accounts, Turns: p.bridge, Objects: p.bridge, Metrics: p.metrics, Leaving: p.leaving,
	})
	if err != nil {
		return nil, fmt.Errorf("assembling the proxy: %w", err)
	}
	if err := p.receive(); err != nil {
		return nil, err
	}
	p.watch = p.health(p.store)
	p.resetCircuits(rt) // of what the store remembers
	p.forceCircuits(rt)
	p.watchSessions()
	p.metrics.WatchSockets(p.server.Sockets)
	p.watchLanes()
	p.watchRoutes()
	if p.gate != nil {
		p.metrics.WatchAuthority(activation.Modes(), func() (string, int64) {
			v := p.gate.Verdict()
			return v.Mode.String(), v.Epoch
		}, p.gate.Held)
	}
	if p.peers != nil {
		p.metrics.WatchRelayed(p.peers.live)
	}
	p.metrics.WatchAccounts(account.AllStates(), func() []string {
		states := p.accounts.States()
		names := make([]string, len(states))
		for i, s := range states {
			names[i] = s.State
		}
		return names
	})
	return p, nil
}

// inPod says whether Kubernetes sends this process its clients.
func (p *process) inPod() bool { return p.options.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// patience is how long a stop may take from now: what is left of the pod's grace
// period, less what its end needs. The pre-stop sleep has used its part before
// the signal came.
func (p *process) patience() time.Duration {
	drain := p.runtime.Load().Bundle.Drain
	seconds := drain.PodGraceSeconds
	if p.inPod() {
		seconds -= drain.PreStopSeconds
	}
	return max(time.Duration(seconds)*time.Second-finish, time.Second)
}
