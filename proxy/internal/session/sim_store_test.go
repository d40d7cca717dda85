package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// simShared is the store that all replicas share: the real one in memory, with
// what the world knows of who owns what.
type simShared struct {
	sim   *sim
	store store.Store
	// epoch is the last one given out; a store that lost all goes on after it.
	epoch  int64
	owners map[store.Key]simOwner
	// leases are those that replicas believe in, by key.
	leases map[store.Key][]*simLease
	wiped  time.Time // when it lost everything last
}

type simOwner struct {
	proc  *simProc
	epoch int64
}

func newSimShared(s *sim) *simShared {
	sh := &simShared{sim: s, owners: map[store.Key]simOwner{}, leases: map[store.Key][]*simLease{}}
	sh.store = store.NewMemory(func() time.Time { return s.now })
	return sh
}

// wipe loses everything but the count of epochs.
func (sh *simShared) wipe() {
	sh.store = store.NewMemory(func() time.Time { return sh.sim.now })
	sh.wiped = sh.sim.now
	sh.owners = map[store.Key]simOwner{}
	me := store.Holder{Pod: "operator", Process: "operator"}
	for {
		c, err := sh.store.Claim(context.Background(), "request:0", me, 0, time.Millisecond)
		if err != nil || c.Epoch >= sh.epoch {
			return
		}
	}
}

// entry is what the store knows of a key, or nothing.
func (sh *simShared) entry(key store.Key) store.Entry {
	e, err := sh.store.Look(context.Background(), key)
	if err != nil {
		return store.Entry{}
	}
	return e
}

// simStore is the store as one process reaches it.
type simStore struct{ proc *simProc }

var errSimStore = fmt.Errorf("%w: simulated", store.ErrUnavailable)

// reach asks the store something; it may not arrive, and its answer may get lost.
func (p *simProc) reach(ask func() error) error {
	s := p.sim
	if p.cut || s.chance(s.plan.storeFaults/2) {
		return errSimStore
	}
	err := ask()
	if s.chance(s.plan.storeFaults / 2) {
		return errSimStore
	}
	return err
}

func (st simStore) Claim(ctx context.Context, key store.Key, me store.Holder, fence int64, lease time.Duration) (store.Claimed, error) {
	var c store.Claimed
	p, s := st.proc, st.proc.sim
	err := p.reach(func() (err error) {
		c, err = s.shared.store.Claim(ctx, key, me, fence, lease)
		if err != nil {
			return err
		}
		s.shared.epoch = max(s.shared.epoch, c.Epoch)
		p.claims[c.Epoch] = c.Before
		s.shared.claimed(p, c)
		return nil
	})
	if err != nil {
		return store.Claimed{}, err
	}
	return c, nil
}

// claimed: a claim must not succeed while another process believes in its lease.
func (sh *simShared) claimed(p *simProc, c store.Claimed) {
	sh.alone(p, c.Key)
	if owner, ok := sh.owners[c.Key]; ok {
		sh.sim.must(c.Epoch > owner.epoch, "epochs rise", "epoch %d after %d", c.Epoch, owner.epoch)
		if owner.proc != p {
			sh.sim.counts["takeovers"]++
		}
	}
	sh.owners[c.Key] = simOwner{p, c.Epoch}
}

// alone: at most one valid lease for each key, whatever else happens.
func (sh *simShared) alone(p *simProc, key store.Key) {
	kept := sh.leases[key][:0]
	for _, l := range sh.leases[key] {
		if l.Valid() && !l.proc.dead {
			kept = append(kept, l)
		}
	}
	sh.leases[key] = kept
	for _, l := range kept {
		// After a loss of all data nobody can know; the lease ends by itself.
		lost := !sh.wiped.IsZero() && !l.renewed.After(sh.wiped)
		sh.sim.must(l.proc == p || lost, "one valid lease for each key", "%s claims %s, which %s holds until %s",
			p.name, key, l.proc.name, l.until)
	}
}

// write does what only an owner may do, and notes that it was the owner.
func (st simStore) write(h store.Held, do func(store.Store) error) error {
	s := st.proc.sim
	return st.proc.reach(func() error {
		err := do(s.shared.store)
		var f *store.Fenced
		if errors.As(err, &f) {
			s.counts["fenced"]++
			return err
		}
		owner := s.shared.owners[h.Key]
		s.must(err != nil || owner.epoch == h.Epoch, "only the owner writes", "%s wrote with epoch %d, the owner has %d",
			st.proc.name, h.Epoch, owner.epoch)
		return err
	})
}

func (st simStore) Renew(ctx context.Context, keys []store.Held, lease time.Duration) []error {
	var errs []error
	err := st.proc.reach(func() error {
		errs = st.proc.sim.shared.store.Renew(ctx, keys, lease)
		return nil
	})
	if err != nil {
		errs = make([]error, len(keys))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (st simStore) Drain(ctx context.Context, h store.Held) error {
	return st.write(h, func(s store.Store) error { return s.Drain(ctx, h) })
}

func (st simStore) Release(ctx context.Context, h store.Held) error {
	return st.proc.reach(func() error { return st.proc.sim.shared.store.Release(ctx, h) })
}

func (st simStore) Save(ctx context.Context, h store.Held, version int64, value []byte, life time.Duration) error {
	return st.write(h, func(s store.Store) error { return s.Save(ctx, h, version, value, life) })
}

func (st simStore) Look(ctx context.Context, key store.Key) (e store.Entry, err error) {
	err = st.proc.reach(func() error {
		e, err = st.proc.sim.shared.store.Look(ctx, key)
		return err
	})
	return e, err
}

func (st simStore) PutAlias(ctx context.Context, name string, value []byte, life time.Duration) error {
	return st.proc.reach(func() error { return st.proc.sim.shared.store.PutAlias(ctx, name, value, life) })
}

func (st simStore) Alias(ctx context.Context, name string) (value []byte, err error) {
	err = st.proc.reach(func() error {
		value, err = st.proc.sim.shared.store.Alias(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

func (st simStore) PutTurn(ctx context.Context, h store.Held, t store.Turn, life time.Duration) error {
	return st.write(h, func(s store.Store) error { return s.PutTurn(ctx, h, t, life) })
}

func (st simStore) DropTurn(ctx context.Context, h store.Held, fingerprint string, attempt int) error {
	return st.write(h, func(s store.Store) error { return s.DropTurn(ctx, h, fingerprint, attempt) })
}

func (st simStore) AppendEvents(
	ctx context.Context, h store.Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration,
) error {
	return st.write(h, func(s store.Store) error { return s.AppendEvents(ctx, h, fingerprint, attempt, from, events, life) })
}

func (st simStore) Transcript(ctx context.Context, key store.Key, fingerprint string) (events [][]byte, err error) {
	err = st.proc.reach(func() error {
		events, err = st.proc.sim.shared.store.Transcript(ctx, key, fingerprint)
		return err
	})
	if err != nil {
		return nil, err
	}
	return events, nil
}

func (st simStore) Close() error { return nil }
