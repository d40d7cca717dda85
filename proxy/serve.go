package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/api/version"
	"github.com/causeway-dev/causeway/proxy/internal/server"
)

const (
	// finish is the end of the grace period that is kept for the last words:
	// terminal events, closing sockets, the last report.
	finish = 10 * time.Second
	// lastWords bounds how long clients may take to read them.
	lastWords = 5 * time.Second
)

// ports are the listeners with their servers.
type ports struct {
	data, ops             net.Listener
	dataServer, opsServer *http.Server
	peers                 *peers // nil = no port for them
	// failed gets the error of a port that ended by itself.
	failed  chan error
	running sync.WaitGroup
}

func (p *process) listen(ctx context.Context) (*ports, error) {
	var lc net.ListenConfig
	data, err := lc.Listen(ctx, "tcp", p.options.Listen)
	if err != nil {
		return nil, fmt.Errorf("opening the data port: %w: choose another one with --listen", err)
	}
	ops, err := lc.Listen(ctx, "tcp", p.options.OpsListen)
	if err != nil {
		_ = data.Close()
		return nil, fmt.Errorf("opening the ops port: %w: choose another one with --ops-listen", err)
	}
	return &ports{
		data: p.server.Listener(data), ops: ops, dataServer: p.server.HTTPServer(), peers: p.peers, failed: make(chan error, 3),
		opsServer: server.Ops{Version: version.Version, Metrics: p.metrics.Handler(), Started: p.serving.Load,
			Health: p.watch, Sessions: p.bridge, Logger: p.log}.HTTPServer(),
	}, nil
}

func (s *ports) serve() {
	servers := map[*http.Server]net.Listener{s.dataServer: s.data, s.opsServer: s.ops}
	if s.peers != nil {
		servers[s.peers.server] = s.peers.listener
	}
	for port, listener := range servers {
		s.running.Go(func() {
			if err := port.Serve(listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				s.failed <- fmt.Errorf("serving %s: %w", listener.Addr(), err)
			}
		})
	}
}

// run serves until ctx ends or a port fails.
func (p *process) run(ctx context.Context) error {
	open, err := p.listen(ctx)
	if err != nil {
		return err
	}
	// What follows the configuration and reports ends last: a drain may take
	// hours, in which credentials change.
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	p.sharing = p.startSharing(ctx)
	p.startReport(background, &tasks)
	tasks.Go(func() { p.follow(background) })
	p.watch.Begin(ctx)
	tasks.Go(func() { p.watch.Run(background) })
	p.keepAuthority(background, &tasks)
	if p.peers != nil {
		tasks.Go(func() { p.followPeers(background) })
		tasks.Go(func() { p.divide(background) })
	}
	tasks.Go(func() { p.pollUsage(background) })
	open.serve()
	p.serving.Store(true)
	rt := p.runtime.Load()
	p.log.Info("Serving", "listen", open.data.Addr().String(), "opsListen", open.ops.Addr().String(), "version", version.Version,
		"bridge", rt.Bundle.Name, "pool", rt.Bundle.Pool.Name, "accounts", len(rt.Bundle.Pool.Accounts), "hash", rt.Hash)
	if p.options.Started != nil {
		p.options.Started(open.data.Addr(), open.ops.Addr())
	}
	select {
	case <-ctx.Done():
	case err = <-open.failed:
	}
	p.stop(context.WithoutCancel(ctx), open)
	end()
	tasks.Wait()
	open.close()
	p.log.Info("Stopped")
	return err
}

// stop lets clients go elsewhere, finishes what is under way and ends what does
// not finish in time with a terminal event.
func (p *process) stop(ctx context.Context, open *ports) {
	began, patience := time.Now(), p.patience()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	go p.hurry(ctx, cancel)
	p.server.Drain()
	if p.gate != nil {
		p.gate.Wake() // another pod of the slot is to be captain
	}
	p.changed()
	p.log.Info("Stopping", "requests", p.server.Live().Count(), "patience", patience.String())
	p.lag(ctx)
	_ = open.data.Close() // no new connections; requests on those that are there are still answered
	// Ends sessions as their turns end; when ctx ends, with their turns.
	p.bridge.Close(ctx)
	p.sharing.stop()
	p.closeStore()
	if p.server.Live().Wait(ctx) == nil {
		p.linger(ctx)
	} else {
		p.peers.leave()
		last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancelLast()
		if p.server.Live().Wait(last) != nil {
			p.log.Warn("Cutting requests that did not end in time", "requests", p.server.Live().Count())
		}
	}
	cancel()
	_ = open.dataServer.Shutdown(ctx) // of connections that are idle by now; the others are cut
	p.serving.Store(false)
	p.server.Close()
	p.log.Info("Finished requests", "took", time.Since(began).Round(time.Millisecond).String())
}

// lag goes on serving until all routers of the cluster know that this pod takes
// no new connections.
func (p *process) lag(ctx context.Context) {
	if !p.inPod() {
		return
	}
	timer := time.NewTimer(time.Duration(p.runtime.Load().Bundle.Drain.EndpointLagSeconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lingerTime is how long a connection stays open after its last answer: its client
// may be sending the next request at that very moment.
const lingerTime = time.Second

// linger answers the requests that come right after the last ones have ended: each
// of these answers says that it is the last of its connection.
func (p *process) linger(ctx context.Context) {
	if !p.inPod() {
		return
	}
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	select {
	case <-timer.C:
		_ = p.server.Live().Wait(ctx) // its error is that ctx ended
	case <-ctx.Done():
	}
}

// hurry ends the patience of a stop when Options.Hurry says so.
func (p *process) hurry(ctx context.Context, end context.CancelFunc) {
	select {
	case <-p.options.Hurry:
		p.log.Info("Stopping at once")
		end()
	case <-ctx.Done():
	}
}

// close ends all ports, whatever is left on them. The peer port is the last that
// turns come to: until here it tells others that this replica takes none.
func (s *ports) close() {
	_ = s.dataServer.Close()
	_ = s.opsServer.Close()
	s.peers.close()
	s.running.Wait()
}
