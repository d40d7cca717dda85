package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/server"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// health watches what serving depends on. shared is the store; nil = the memory of
// this process.
func (p *process) health(shared store.Store) *server.Health {
	probes := []server.Probe{
		{Name: "config", Look: p.configured, Instant: true},
		{Name: "accounts", Look: func(context.Context) server.Finding { return usable(p.accounts.States()) }},
		{Name: "listener", Look: p.listening, Instant: true},
		{Name: "draining", Look: p.staying, Instant: true},
	}
	if shared != nil {
		// Turns go on from memory without it, so that it only shows: were it to count,
		// an outage of the store would take all replicas at once.
		probes = append(probes, server.Probe{Name: "store", Advisory: true, Look: reachable(shared)})
	}
	return server.NewHealth(p.log, p.pulse, probes...)
}

// pulse takes the locks that every turn needs.
func (p *process) pulse() {
	p.accounts.States()
	p.bridge.Sessions()
}

// configured: a refused change is no reason to stop serving what was valid before.
func (p *process) configured(context.Context) server.Finding {
	if r := p.rejected.Load(); r != nil {
		return server.Finding{Condition: server.Degraded,
			Reason: "the newest configuration was refused (" + r.Reason + "); the one before is served"}
	}
	return server.Finding{Condition: server.OK}
}

func (p *process) listening(context.Context) server.Finding {
	if !p.serving.Load() {
		return server.Finding{Condition: server.Down, Reason: "the data port is not open"}
	}
	return server.Finding{Condition: server.OK}
}

func (p *process) staying(context.Context) server.Finding {
	if p.server.Draining() {
		return server.Finding{Condition: server.Down, Reason: "the proxy is stopping"}
	}
	return server.Finding{Condition: server.OK}
}

// usable judges the pool. Accounts that cool down are degraded and no more: a proxy
// that has none but those can still tell its clients for how long. One account
// that is out for good never counts while another can serve.
func usable(states []account.State) server.Finding {
	count := map[string]int{}
	for _, s := range states {
		count[s.State]++
	}
	dead := count[account.ReauthRequired] + count[account.Unknown]
	resting := count[account.CoolingDown] + count[account.QuotaExhausted]
	switch {
	case len(states) == 0:
		return server.Finding{Condition: server.Degraded, Reason: "the pool has no accounts"}
	case count[account.Usable]+resting == 0:
		return server.Finding{Condition: server.Down, Reason: "no account can serve: " + spell(count)}
	case dead+resting > 0:
		return server.Finding{Condition: server.Degraded, Reason: fmt.Sprintf("%d of %d accounts can serve now: %s",
			count[account.Usable], len(states), spell(count))}
	}
	return server.Finding{Condition: server.OK}
}

// spell lists the states that are no account's best, in the order of AllStates.
func spell(count map[string]int) string {
	var words []string
	for _, state := range slices.DeleteFunc(account.AllStates(), func(s string) bool { return s == account.Usable }) {
		if n := count[state]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(words, ", ")
}

// reachable asks the store for something that it does not have.
func reachable(s store.Store) func(ctx context.Context) server.Finding {
	return func(ctx context.Context) server.Finding {
		if _, err := s.Alias(ctx, "health"); err != nil && !errors.Is(err, store.ErrNotFound) {
			return server.Finding{Condition: server.Down, Reason: "the store does not answer; turns are served from memory as far as they can be"}
		}
		return server.Finding{Condition: server.OK}
	}
}
