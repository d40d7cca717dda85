package session

import (
	"context"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// simPlan is what a seed makes of the world.
type simPlan struct {
	scope       upstream.Scope
	tagged      bool
	stored      bool
	pods, talks int
	steps       int // before all faults stop
	maxSessions int
	accounts    []string
	runtime     *config.Runtime
	// faults scales what goes wrong at the upstream; the others are shares.
	faults, storeFaults, vanish, forks, roam, haste float64
	writeDelay                                      time.Duration
	calamity                                        time.Duration // between two faults of replicas
}

func (s *sim) draw() error {
	pick := func(values ...float64) float64 { return values[s.rng.IntN(len(values))] }
	s.plan = simPlan{
		scope: upstream.ScopeAccount, tagged: s.chance(0.5), pods: 2 + s.rng.IntN(2), talks: 2 + s.rng.IntN(4),
		steps: 3000 + s.rng.IntN(3000), accounts: []string{"a", "b"},
		faults: pick(0.1, 0.5, 1), storeFaults: pick(0, 0.02, 0.2), vanish: pick(0, 0.02), forks: pick(0, 0.1, 0.4), roam: pick(0.02, 0.1, 0.4),
		haste: pick(0, 0.02, 0.2), writeDelay: []time.Duration{10 * time.Millisecond, time.Second, 10 * time.Second}[s.rng.IntN(3)],
		calamity: []time.Duration{30 * time.Second, 2 * time.Minute, 20 * time.Minute}[s.rng.IntN(3)],
	}
	if s.chance(0.4) {
		s.plan.scope, s.plan.stored = upstream.ScopeConnection, s.chance(0.3)
	}
	if s.chance(0.15) {
		s.plan.maxSessions = 2
	}
	rt, err := config.New(s.bundle())
	s.plan.runtime = rt
	return err
}

// bundle is the configuration of all replicas: the built-in profile's numbers,
// with shorter deadlines where the seed says so.
func (s *sim) bundle() (bundle.Bundle, bundle.Credentials) {
	provider := bundle.ProviderChatGPT
	if s.plan.scope == upstream.ScopeConnection {
		provider = bundle.ProviderOpenAIPlatform
	}
	pool := bundle.Pool{Provider: bundle.Provider{Type: provider, Endpoint: "https://upstream.test/v1"}, Strategy: bundle.StrategyRoundRobin}
	credentials := map[string]bundle.Credential{}
	for _, name := range s.plan.accounts {
		pool.Accounts = append(pool.Accounts, bundle.Account{Name: name, State: bundle.AccountEnabled})
		credentials[name] = bundle.Credential{APIKey: "k"}
	}
	deadlines := bundle.Deadlines{FirstEventSeconds: 120, IdleSeconds: 300, CancelGraceSeconds: 1}
	if s.chance(0.5) {
		deadlines = bundle.Deadlines{FirstEventSeconds: 20, IdleSeconds: 30, CancelGraceSeconds: 5, RequestSeconds: 600}
	}
	return bundle.Bundle{
		Pool:    pool,
		Clients: bundle.Clients{Mode: bundle.ClientsOpen},
		Circuit: bundle.Circuit{
			Bulkheads: []bundle.Bulkhead{{Lane: "HTTP"}}, // not what is tested here
			RetryCircuit: bundle.RetryCircuit{MaxAttempts: 2, BudgetPercent: 20, RetryOn: retryWords(), FailureThreshold: 2, BaseBackoffSeconds: 60, MaxBackoffSeconds: 600,
				CleanCloseMaxBackoffSeconds: 30, HalfOpenLeaseSeconds: 60, StateTTLSeconds: 3600},
			Quarantine: bundle.Quarantine{EventlessThreshold: 2, RetainSeconds: 3600},
			Deadlines:  deadlines},
	}, bundle.Credentials{Accounts: credentials}
}

// context is what blocks nowhere in a simulation.
func (*sim) context() context.Context { return context.Background() }
