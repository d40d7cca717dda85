package proxy

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	apieffective "github.com/causeway-dev/causeway/api/effective"
	"github.com/causeway-dev/causeway/api/v1alpha1"
	"github.com/causeway-dev/causeway/proxy/internal/activation"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/report"
	"github.com/causeway-dev/causeway/proxy/internal/route"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// Slots tells which slot this replica is in, and of the other one, where Kubernetes
// does not.
type Slots struct {
	Slot   string
	Leases activation.Leases
	// Other reports the ready replicas of the other slot whenever they change, until
	// ctx ends.
	Other func(ctx context.Context, changed func([]route.Member)) error
}

// slotsOf finds the slot of this pod from the name of its Service; nil = it has
// none. The returned function lets go of connections.
func slotsOf(o Options, rt *config.Runtime, others *peers) (*Slots, func(), error) {
	if o.Slots != nil || others == nil || o.Replicas != nil {
		return o.Slots, func() {}, nil
	}
	pod, cluster, _ := report.InCluster(o.Getenv)
	slot, named := strings.CutPrefix(o.Getenv(envPeerService), rt.Bundle.Name+"-")
	other, known := bundle.OtherSlot(slot)
	if !named || !known {
		return nil, func() {}, nil
	}
	leases, closeIdle, err := activation.NewLeases(activation.Source{
		Config: cluster, Namespace: pod.Namespace, Name: apieffective.ActivationLease(rt.Bundle.Name), Log: o.Logger,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("following the activation Lease: %w", err)
	}
	return &Slots{Slot: slot, Leases: leases, Other: func(ctx context.Context, changed func([]route.Member)) error {
		return others.watch(ctx, rt.Bundle.Name+"-"+other, changed)
	}}, closeIdle, nil
}

// newGate makes the gate before new turns; nil = this replica is in no slot.
func (p *process) newGate(s *Slots) *activation.Gate {
	if s == nil {
		return nil
	}
	me := bundle.Holder{Slot: s.Slot, Pod: p.peers.self.Pod, UID: p.options.Getenv(report.EnvPodUID), Nonce: rand.Text()[:8]}
	return activation.NewGate(activation.NewKeeper(activation.Options{
		Leases: s.Leases, Me: me, Log: p.log, Now: store.Instant, Wall: time.Now,
		Eligible: func() bool { return p.serving.Load() && !p.goes() },
		Terms: func() (activation.Terms, bool) {
			a := p.runtime.Load().Bundle.Activation
			if a == nil {
				return activation.Terms{}, false
			}
			return activation.TermsOf(*a), true
		},
	}))
}

// goes says that this replica is about to end: it was told so, or Kubernetes has
// taken it from the endpoints of its slot, which it does as soon as a pod is deleted,
// long before the process is told.
func (p *process) goes() bool {
	return p.server.Draining() || p.peers != nil && !p.peers.table.Load().Stays()
}

// leaving says that clients which are still connected here are served elsewhere.
func (p *process) leaving() bool {
	return p.goes() || p.authority().Mode == activation.Relay
}

// keepAuthority follows the Lease and the replicas of the other slot until ctx ends.
func (p *process) keepAuthority(ctx context.Context, tasks *sync.WaitGroup) {
	if p.gate == nil {
		return
	}
	tasks.Go(func() { p.gate.Run(ctx) })
	tasks.Go(func() { p.giveSessionsAway(ctx) })
	tasks.Go(func() {
		err := p.slots.Other(ctx, func(members []route.Member) { p.peers.other.Store(route.New(p.peers.self.Pod, members)) })
		if err != nil {
			p.log.Error("The replicas of the other slot are not known; turns are not relayed to them", "error", err)
		}
	})
}

// giveSessionsAway lets sessions go once the other slot has authority: at once those
// that it can go on with from the store, the others when what builds on them has had
// drain.softSeconds to come.
func (p *process) giveSessionsAway(ctx context.Context) {
	soft := time.NewTimer(0)
	defer soft.Stop()
	var end time.Time // of the soft time; zero = this slot has authority
	for {
		changed := p.gate.Changed()
		rt := p.runtime.Load()
		soft.Stop()
		switch mode := p.gate.Verdict().Mode; {
		case mode == activation.Serve:
			end = time.Time{}
			p.release(false)
		case mode == activation.Hold: // nobody has it; what has begun goes on
		case p.store != nil && upstream.AnchorScope(rt.Bundle.Pool.Provider.Type) == upstream.ScopeAccount:
			p.release(true)
		case end.IsZero():
			end = time.Now().Add(time.Duration(rt.Bundle.Drain.SoftSeconds) * time.Second)
		}
		if !end.IsZero() && !p.released.Load() {
			soft.Reset(time.Until(end))
		}
		p.rebalance()
		p.changed()
		select {
		case <-changed:
		case <-soft.C:
			p.release(true)
		case <-ctx.Done():
			return
		}
	}
}

// release says whether this slot's sessions, and clients that stay connected, are to
// go to the other one.
func (p *process) release(now bool) {
	p.released.Store(now)
	p.server.Release(now)
}

// rebalance gives up the sessions that belong elsewhere.
func (p *process) rebalance() {
	table := p.peers.table.Load()
	p.bridge.Rebalance(func(key affinity.Key) bool {
		_, ours := table.Owner(key.Digest, nil)
		return ours && !p.released.Load()
	})
}

// authority is what this replica does with new turns.
func (p *process) authority() activation.Verdict {
	if p.gate == nil {
		return activation.Verdict{Mode: activation.Serve}
	}
	return p.gate.Verdict()
}

// roleOf is what the report says of a replica: stopping, with its authority and as
// many turns under way.
func roleOf(stopping bool, mode activation.Mode, turns int) v1alpha1.ReplicaRole {
	switch {
	case stopping:
		return v1alpha1.RoleDraining
	case mode == activation.Serve:
		return v1alpha1.RoleServing
	case turns > 0:
		return v1alpha1.RoleDraining
	}
	return v1alpha1.RoleStandby
}
