package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/peer"
	"github.com/causeway-dev/causeway/proxy/internal/report"
	"github.com/causeway-dev/causeway/proxy/internal/route"
)

// Names of the environment variables that say how other replicas find this one
// and where it finds them; the operator sets them.
const (
	envPodIP = "POD_IP"
	// envPeerService names the Service of the pods of this slot.
	envPeerService = "PEER_SERVICE"
)

// Replicas tells of the other replicas where Kubernetes does not.
type Replicas struct {
	// Pod names this one.
	Pod string
	// Follow reports the peer addresses, host:port, of all ready replicas by name,
	// this one's among them, whenever they change, until ctx ends. own is this
	// one's. What it reports must not be changed afterwards.
	Follow func(ctx context.Context, own string, changed func(addresses map[string]string)) error
}

// peers are the other replicas of this one's slot, and the port for them. nil =
// there are none.
type peers struct {
	self     peer.Identity
	listener net.Listener
	follow   func(ctx context.Context, changed func([]route.Member)) error
	// watch follows the replicas behind a Service of this namespace.
	watch func(ctx context.Context, service string, changed func([]route.Member)) error
	// table are the replicas of this slot, other those of the other one.
	table, other atomic.Pointer[route.Table]

	forwarder *peer.Forwarder
	server    *http.Server
}

// openPeers opens the peer port if there may be other replicas. It is open even
// while there is no key to believe: one may come.
func openPeers(ctx context.Context, o Options) (*peers, error) {
	pod, cluster, inCluster := report.InCluster(o.Getenv)
	ip, service := o.Getenv(envPodIP), o.Getenv(envPeerService)
	inCluster = inCluster && ip != "" && service != ""
	if o.Replicas == nil && !inCluster {
		return nil, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.PeerListen)
	if err != nil {
		return nil, fmt.Errorf("opening the peer port: %w: choose another one with --peer-listen", err)
	}
	p := &peers{listener: listener}
	if o.Replicas != nil {
		p.inject(*o.Replicas)
		return p, nil
	}
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		_ = listener.Close()
		return nil, errors.New("opening the peer port: it has no number")
	}
	p.inCluster(o, pod, cluster, net.JoinHostPort(ip, strconv.Itoa(address.Port)), service, address.Port)
	return p, nil
}

func (p *peers) inject(r Replicas) {
	p.self = peer.Identity{Pod: r.Pod, Address: p.listener.Addr().String()}
	p.follow = func(ctx context.Context, changed func([]route.Member)) error {
		return r.Follow(ctx, p.self.Address, func(addresses map[string]string) {
			changed(membersOf(addresses))
		})
	}
}

func (p *peers) inCluster(o Options, pod report.Pod, cluster *rest.Config, own, service string, port int) {
	p.self = peer.Identity{Pod: pod.Name, Address: own}
	p.watch = func(ctx context.Context, service string, changed func([]route.Member)) error {
		return route.Watch(ctx, route.Source{
			Config: cluster, Namespace: pod.Namespace, Service: service, Port: port, Log: o.Logger,
		}, changed)
	}
	p.follow = func(ctx context.Context, changed func([]route.Member)) error { return p.watch(ctx, service, changed) }
}

func membersOf(addresses map[string]string) []route.Member {
	members := make([]route.Member, 0, len(addresses))
	for name, address := range addresses {
		members = append(members, route.Member{Pod: name, Address: address})
	}
	return members
}

// router is what the bridge asks who serves a turn; nil = it does, always.
func (p *process) router() bridge.Router {
	if p.peers == nil {
		return nil
	}
	p.peers.forwarder = peer.NewForwarder(peer.Options{
		Self: p.peers.self, Table: p.peers.table.Load, Other: p.peers.other.Load, Log: p.log, Metrics: p.metrics,
		Leaving: p.goes,
		Doubt: func() {
			if p.gate != nil {
				p.gate.Doubt()
			}
		},
	})
	return p.peers.forwarder
}

// receive makes the server of the peer port.
func (p *process) receive() error {
	if p.peers == nil {
		return nil
	}
	receiver, err := peer.NewReceiver(peer.ReceiverOptions{
		Self: p.peers.self, Table: p.peers.table.Load, Runtime: &p.runtime, Turns: p.bridge, Admits: p.bridge.Admits,
		Draining: p.server.Draining, Begin: p.server.Live().Begin, Log: p.log,
	})
	if err != nil {
		return fmt.Errorf("assembling the proxy: %w", err)
	}
	p.peers.server = receiver.HTTPServer()
	return nil
}

// followPeers keeps the table up to date until ctx ends. Without it every turn is
// served where it comes.
func (p *process) followPeers(ctx context.Context) {
	err := p.peers.follow(ctx, func(members []route.Member) {
		table := route.New(p.peers.self.Pod, members)
		p.peers.table.Store(table)
		p.log.Info("Replicas changed", "replicas", len(members))
		p.rebalance()
		if p.gate != nil {
			p.gate.Wake() // who is gone from the slot is its captain no longer
		}
	})
	if err != nil {
		p.log.Error("The other replicas are not known; turns are served where they come", "error", err)
	}
}

// live is how many turns others serve for clients of this replica.
func (p *peers) live() int {
	if p == nil || p.forwarder == nil {
		return 0
	}
	return p.forwarder.Live()
}

// leave ends them.
func (p *peers) leave() {
	if p != nil && p.forwarder != nil {
		p.forwarder.Leave()
	}
}

// close lets go of the port and of connections to others.
func (p *peers) close() {
	if p == nil {
		return
	}
	if p.server != nil {
		_ = p.server.Close()
	}
	_ = p.listener.Close()
	if p.forwarder != nil {
		p.forwarder.Close()
	}
}
