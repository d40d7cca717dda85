package proxy

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/circuit"
	"github.com/causeway-dev/causeway/proxy/internal/report"
	"github.com/causeway-dev/causeway/proxy/internal/share"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

// newRoutes makes the circuits of the ways upstream. Each replica jitters by a
// salt of its own, so that probes are not in step.
func (p *process) newRoutes() *circuit.Routes {
	return circuit.New(circuit.Options{
		Clock: clock.RealClock{}, Salt: rand.Uint64(), Log: p.log, Metrics: p.metrics, //nolint:gosec // spreads probes, guards nothing
	})
}

// watchRoutes shows routes in metrics.
func (p *process) watchRoutes() {
	p.metrics.WatchRoutes(func() []telemetry.RouteState {
		var states []telemetry.RouteState
		for _, s := range p.routes.States() {
			states = append(states, telemetry.RouteState{Key: s.Key, State: s.State.String()})
		}
		return states
	})
}

// reportedRoutes is what a report says of routes.
func reportedRoutes(states []circuit.Status) []report.Route {
	out := make([]report.Route, len(states))
	for i, s := range states {
		out[i] = report.Route{Key: s.Key, State: s.State.String(), OpenUntil: s.Until, Openings: s.Opened, Reason: s.Reason}
	}
	return out
}

// sharing is what replicas with a store in common tell each other besides
// sessions: cool-downs of accounts, open routes, and turns on accounts whose
// limits they share.
type sharing struct {
	cancel context.CancelFunc
	tasks  sync.WaitGroup
}

// startSharing learns what other replicas, or an earlier process, know, and begins
// to exchange. nil = there is no store in common.
func (p *process) startSharing(ctx context.Context) *sharing {
	if p.store == nil {
		return nil
	}
	failed := func() { p.metrics.StoreFailed(telemetry.StoreShare) }
	exchanger := share.New(share.Options{
		Board: p.store, Clock: clock.RealClock{}, Log: p.log, Failed: failed,
		Sources: []share.Source{share.NewCoolDowns(p.accounts, p.holder.Process), share.NewRoutes(p.routes, p.holder.Process, time.Now())},
	})
	capacity := share.NewCapacity(share.CapacityOptions{
		Permits: p.store, Accounts: p.accounts, Me: p.holder, Clock: clock.RealClock{}, Instant: store.Instant, Log: p.log, Failed: failed,
	})
	p.accounts.LeasePermits(capacity.Wake)
	p.accounts.Update(p.runtime.Load())
	exchanger.Once(ctx)
	capacity.Once(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &sharing{cancel: cancel}
	s.tasks.Go(func() { exchanger.Run(ctx) })
	s.tasks.Go(func() { capacity.Run(ctx) })
	return s
}

// stop tells the others what came last and gives back what was leased, once no
// turn runs any more. It takes a few seconds at most.
func (s *sharing) stop() {
	if s != nil {
		s.cancel()
		s.tasks.Wait()
	}
}

// shareEvery is how often the registry hears how many replicas there are, so that
// its shares grow when a membership has lasted.
const shareEvery = 5 * time.Second

// divide tells the accounts which part of divided limits is this replica's, until
// ctx ends.
func (p *process) divide(ctx context.Context) {
	ticker := time.NewTicker(shareEvery)
	defer ticker.Stop()
	for {
		rank, replicas := p.peers.table.Load().Rank()
		p.accounts.SetShare(account.Share{Replicas: replicas, Rank: rank})
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// chatGPTAccounts are those whose usage can be asked for: enabled, with a login.
func (p *process) chatGPTAccounts() []account.Account {
	rt := p.runtime.Load()
	if rt.Bundle.Pool.Provider.Type != bundle.ProviderChatGPT {
		return nil
	}
	var list []account.Account
	for _, a := range rt.Bundle.Pool.Accounts {
		credential := rt.Credentials.Accounts[a.Name]
		if a.Kind == bundle.KindOAuth && a.State == bundle.AccountEnabled && credential.AccessToken != "" {
			list = append(list, account.Account{Name: a.Name, Kind: a.Kind, Credential: credential})
		}
	}
	return list
}
