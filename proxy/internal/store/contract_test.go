package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	key   = Key("turn_state:0123456789abcdef0123456789abcdef")
	lease = 30 * time.Second
	life  = time.Hour
)

var (
	podA      = Holder{Pod: "a", Process: "a1", Address: "10.0.0.1:8081"}
	podAAgain = Holder{Pod: "a", Process: "a2", Address: "10.0.0.1:8081"}
	podB      = Holder{Pod: "b", Process: "b1", Address: "10.0.0.2:8081"}
)

// subject is a store under test, with what moves its clock.
type subject struct {
	Backend
	t       *testing.T
	advance func(time.Duration)
}

func (s subject) claim(me Holder) Claimed {
	s.t.Helper()
	return s.claimFence(me, 0)
}

func (s subject) claimFence(me Holder, fence int64) Claimed {
	s.t.Helper()
	c, err := s.Claim(s.t.Context(), key, me, fence, lease)
	if err != nil {
		s.t.Fatalf("claim by %s: %v", me.Process, err)
	}
	return c
}

// refused claims and expects another owner.
func (s subject) refused(me Holder, fence int64, owner Holder) {
	s.t.Helper()
	_, err := s.Claim(s.t.Context(), key, me, fence, lease)
	s.isFenced(err, owner)
}

func (s subject) isFenced(err error, owner Holder) {
	s.t.Helper()
	var f *Fenced
	if !errors.As(err, &f) {
		s.t.Fatalf("got %v, want Fenced by %s", err, owner.Process)
	}
	if f.Key != key || f.Current.Holder != owner || f.Current.Value != nil || (f.Current.Lease > 0) != (owner != Holder{}) {
		s.t.Fatalf("fenced by %+v, want %+v without a value", f.Current, owner)
	}
}

func (s subject) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s subject) is(err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Fatalf("got %v, want %v", err, want)
	}
}

func (s subject) look() Entry {
	s.t.Helper()
	e, err := s.Look(s.t.Context(), key)
	s.ok(err)
	return e
}

func (s subject) gone() {
	s.t.Helper()
	e, err := s.Look(s.t.Context(), key)
	if !errors.Is(err, ErrNotFound) {
		s.t.Fatalf("got %+v, %v, want ErrNotFound", e, err)
	}
}

func (s subject) save(h Held, version int64, value string) {
	s.t.Helper()
	s.ok(s.Save(s.t.Context(), h, version, []byte(value), life))
}

func (s subject) renew(h Held) error { return s.Renew(s.t.Context(), []Held{h}, lease)[0] }

// writes are all that only the owner may do.
func (s subject) writes(h Held) map[string]error {
	ctx := s.t.Context()
	return map[string]error{
		"Renew":        s.renew(h),
		"Drain":        s.Drain(ctx, h),
		"Save":         s.Save(ctx, h, 1_000, []byte("stale"), life),
		"PutTurn":      s.PutTurn(ctx, h, Turn{Fingerprint: "ff", ID: "stale", State: TurnFailed, Attempt: 9}, life),
		"DropTurn":     s.DropTurn(ctx, h, "aa", 9),
		"AppendEvents": s.AppendEvents(ctx, h, "aa", 9, 0, [][]byte{[]byte("stale")}, life),
	}
}

func (s subject) transcript(fingerprint string) []string {
	s.t.Helper()
	events, err := s.Transcript(s.t.Context(), key, fingerprint)
	s.ok(err)
	return texts(events)
}

func texts(events [][]byte) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = string(e)
	}
	return list
}

func raw(events ...string) [][]byte {
	list := make([][]byte, len(events))
	for i, e := range events {
		list[i] = []byte(e)
	}
	return list
}

// turns are the records of the key, as the next owner gets them, without ages.
func (s subject) turns(me Holder) []Turn {
	s.t.Helper()
	turns := s.claim(me).Turns
	for i := range turns {
		turns[i].Age = 0
	}
	return turns
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("unexpected (-want +got):\n%s", diff)
	}
}

// testContract is what every Store has to do. Each test gets a store of its own.
func testContract(t *testing.T, open func(*testing.T) (Backend, func(time.Duration))) {
	for _, group := range []map[string]func(subject){ownership, values, aliases, turns, transcripts, repeats, boards, permits} {
		for name, test := range group {
			t.Run(name, func(t *testing.T) {
				s, advance := open(t)
				test(subject{s, t, advance})
			})
		}
	}
}

var ownership = map[string]func(subject){
	"the epoch rises with every claim": func(s subject) {
		last := int64(0)
		for _, me := range []Holder{podA, podA, podAAgain} {
			c := s.claim(me)
			if c.Epoch <= last || c.Holder != me || c.Key != key || c.Before.Epoch != last && last != 0 {
				s.t.Fatalf("claimed %+v after epoch %d", c, last)
			}
			last = c.Epoch
		}
		s.ok(s.Release(s.t.Context(), Held{Key: key, Holder: podAAgain, Epoch: last}))
		if c := s.claim(podB); c.Epoch <= last {
			s.t.Fatalf("epoch %d after %d", c.Epoch, last)
		}
	},
	"a key that was forgotten does not get an epoch again": func(s subject) {
		first := s.claim(podA)
		s.advance(24 * time.Hour)
		for begun := time.Now(); time.Since(begun) < 2*time.Millisecond; { //nolint:revive // a day is at least a moment for a real server
		}
		if c := s.claim(podA); c.Epoch <= first.Epoch || c.Before.Epoch != 0 {
			s.t.Fatalf("epoch %d after %d, before %+v", c.Epoch, first.Epoch, c.Before)
		}
		s.isFenced(s.renew(first.Held), podA)
	},
	"a live lease is not taken over": func(s subject) {
		h := s.claim(podA)
		s.refused(podB, 0, podA)
		s.advance(lease - time.Second)
		s.refused(podB, 99, podA)
		if e := s.look(); e.Holder != podA || e.Epoch != h.Epoch || e.Lease <= 0 || e.Lease > time.Second {
			s.t.Fatalf("looks like %+v", e)
		}
		s.advance(time.Second)
		s.gone() // no owner, no value
		if c := s.claim(podB); c.Before.Holder != (Holder{}) || c.Before.Lease != 0 || c.Before.Epoch != h.Epoch {
			s.t.Fatalf("before: %+v", c.Before)
		}
	},
	"B30, Scenario 91: a draining owner keeps its key while its lease lives": func(s subject) {
		h := s.claim(Holder{Pod: "a", Process: "a1"}) // and has no address
		s.ok(s.Drain(s.t.Context(), h.Held))
		s.refused(podB, 0, h.Holder)
		s.refused(podB, 99, h.Holder)
		if e := s.look(); !e.Draining {
			s.t.Fatalf("not draining: %+v", e)
		}
		s.ok(s.renew(h.Held))
		if e := s.look(); !e.Draining || e.Lease <= lease-5*time.Second {
			s.t.Fatalf("a renewal changed %+v", e)
		}
		s.ok(s.Release(s.t.Context(), h.Held))
		if c := s.claim(podB); c.Before.Draining || s.look().Draining {
			s.t.Fatal("the new owner drains")
		}
	},
	"a new process of the pod proves that the old one is gone": func(s subject) {
		old := s.claim(podA)
		s.save(old.Held, 1, "v")
		c := s.claim(podAAgain)
		if c.Before.Holder != podA || string(c.Before.Value) != "v" {
			s.t.Fatalf("before: %+v", c.Before)
		}
		s.isFenced(s.renew(old.Held), podAAgain)
	},
	"a claim ends a drain": func(s subject) {
		s.ok(s.Drain(s.t.Context(), s.claim(podA).Held))
		if c := s.claim(podA); !c.Before.Draining || s.look().Draining {
			s.t.Fatalf("before %+v, now %+v", c.Before, s.look())
		}
	},
	"Scenario 89: a late release leaves the successor alone": func(s subject) {
		old := s.claim(podA)
		s.ok(s.Release(s.t.Context(), old.Held))
		next := s.claim(podB)
		s.ok(s.Release(s.t.Context(), old.Held))
		if e := s.look(); e.Holder != podB || e.Epoch != next.Epoch {
			s.t.Fatalf("owned by %+v", e)
		}
		again := s.claim(podB) // of one process: the epoch tells them apart
		s.ok(s.Release(s.t.Context(), next.Held))
		if e := s.look(); e.Holder != podB || e.Epoch != again.Epoch {
			s.t.Fatalf("owned by %+v", e)
		}
	},
	"Scenario 90: of two that take over a released key one wins": func(s subject) {
		s.race(func() { s.ok(s.Release(s.t.Context(), s.claim(podA).Held)) })
	},
	"Scenario 100: of two that find an unknown turn one gets to decide": func(s subject) {
		s.race(func() {
			h := s.claim(podA).Held
			s.ok(s.PutTurn(s.t.Context(), h, Turn{Fingerprint: "aa", ID: "r", State: TurnUnknown, Attempt: 1}, life))
			s.ok(s.Release(s.t.Context(), h))
		})
	},
	"Scenario 92: only the claim that came last writes": func(s subject) {
		early, late := s.claim(podA), s.claim(podA)
		for name, err := range s.writes(early.Held) {
			s.t.Log(name)
			s.isFenced(err, podA)
		}
		s.save(late.Held, 1, "v")
	},
	"an epoch alone proves nothing": func(s subject) {
		h := s.claim(podA).Held
		for _, other := range []Holder{podAAgain, {Pod: "b", Process: podA.Process}, {}} {
			forged := h
			forged.Holder = other
			for name, err := range s.writes(forged) {
				s.t.Log(name)
				s.isFenced(err, podA)
			}
			s.ok(s.Release(s.t.Context(), forged))
			if e := s.look(); e.Holder != podA {
				s.t.Fatalf("released by %+v", other)
			}
		}
	},
	"Scenario 93: a renewed lease holds for 40 minutes": func(s subject) {
		h := s.claim(podA).Held
		for range 240 {
			s.advance(10 * time.Second)
			s.ok(s.renew(h))
			s.refused(podB, 0, podA)
		}
	},
	"B31: an owner that was replaced while it was stopped writes nothing": func(s subject) {
		ctx := s.t.Context()
		old := s.claim(podA).Held
		s.save(old, 5, "five")
		s.ok(s.PutTurn(ctx, old, Turn{Fingerprint: "aa", ID: "r1", State: TurnSubmitted, Attempt: 1}, life))
		s.ok(s.AppendEvents(ctx, old, "aa", 1, 0, raw("one"), life))
		s.advance(2 * lease)
		next := s.claim(podB)
		for name, err := range s.writes(old) {
			s.t.Log(name)
			s.isFenced(err, podB)
		}
		s.ok(s.Release(ctx, old))
		e := s.look()
		if e.Holder != podB || e.Epoch != next.Epoch || e.Version != 5 || string(e.Value) != "five" || e.Draining || e.Lease > lease {
			s.t.Fatalf("changed: %+v", e)
		}
		equal(s.t, s.transcript("aa"), []string{"one"})
		equal(s.t, s.turns(podB), []Turn{{Fingerprint: "aa", ID: "r1", State: TurnSubmitted, Attempt: 1}})
	},
	"an owner whose lease is over and that nobody replaced is still the owner": func(s subject) {
		h := s.claim(podA).Held
		s.advance(lease + time.Minute)
		s.save(h, 1, "late")
		if e := s.look(); e.Holder != (Holder{}) || e.Lease != 0 {
			s.t.Fatalf("a write renewed the lease: %+v", e)
		}
		s.ok(s.renew(h))
		s.refused(podB, 0, podA)
	},
	"a lower fence is refused, for claims and for writes": func(s subject) {
		h := s.claimFence(podA, 7)
		stale := h.Held
		stale.Fence = 6
		for name, err := range s.writes(stale) {
			s.t.Log(name)
			s.isFenced(err, podA)
		}
		s.refused(podA, 6, podA)
		s.ok(s.Release(s.t.Context(), h.Held))
		s.refused(podB, 6, Holder{})
		if c := s.claimFence(podB, 7); c.Before.Fence != 7 {
			s.t.Fatalf("before: %+v", c.Before)
		}
	},
	"a higher fence of a write is remembered": func(s subject) {
		h := s.claimFence(podA, 1).Held
		for i, write := range []func(Held) error{
			s.renew,
			func(h Held) error { return s.Drain(s.t.Context(), h) },
			func(h Held) error { return s.Save(s.t.Context(), h, 1, nil, life) },
			func(h Held) error { return s.DropTurn(s.t.Context(), h, "aa", 1) },
		} {
			before := h
			h.Fence = int64(i) + 2
			s.ok(write(h))
			s.isFenced(s.renew(before), podA)
			if e := s.look(); e.Fence != h.Fence {
				s.t.Fatalf("fence %d, want %d", e.Fence, h.Fence)
			}
		}
	},
	"the fence outlives the lease for a while": func(s subject) {
		h := s.claimFence(podA, 7).Held
		s.advance(lease + fenceMemory - time.Second)
		s.gone()
		s.refused(podB, 6, Holder{})
		s.ok(s.renew(h)) // as does the proof of the last owner
		s.advance(lease + fenceMemory)
		s.isFenced(s.renew(h), Holder{})
		s.claimFence(podB, 6)
	},
	"no fence is the lowest, until the entry has expired": func(s subject) {
		h := s.claimFence(podA, 7).Held
		s.save(h, 1, "v") // for an hour
		none := h
		none.Fence = 0
		for name, err := range s.writes(none) {
			s.t.Log(name)
			s.isFenced(err, podA)
		}
		s.refused(podA, 0, podA)
		s.ok(s.Release(s.t.Context(), h))
		s.advance(lease + fenceMemory + time.Second)
		s.refused(podB, 0, Holder{}) // the value is there
		s.advance(life)
		s.claimFence(podB, 0)
		s.claimFence(podB, 0) // and among themselves they have no rank
		s.claimFence(podB, 1)
		s.refused(podB, 0, podB)
	},
	"renewing many answers for each": func(s subject) {
		var keys []Held
		for i := range 20 {
			c, err := s.Claim(s.t.Context(), Key(fmt.Sprint("k", i)), podA, 0, lease)
			s.ok(err)
			keys = append(keys, c.Held)
		}
		keys[3].Epoch--
		keys[7].Key = "missing"
		for i, err := range s.Renew(s.t.Context(), keys, lease) {
			var f *Fenced
			if i == 3 || i == 7 {
				if !errors.As(err, &f) || f.Key != keys[i].Key || (f.Current.Holder == podA) != (i == 3) {
					s.t.Errorf("key %d: %v", i, err)
				}
			} else if err != nil {
				s.t.Errorf("key %d: %v", i, err)
			}
		}
		if errs := s.Renew(s.t.Context(), nil, lease); len(errs) != 0 {
			s.t.Errorf("no keys, %v", errs)
		}
	},
	"a key that nobody knows is not in the store": func(s subject) {
		s.gone()
		s.ok(s.Release(s.t.Context(), Held{Key: key, Holder: podA, Epoch: 1}))
		s.gone()
		s.isFenced(s.renew(Held{Key: key, Holder: podA, Epoch: 1}), Holder{})
	},
	"nothing happens when the time of the caller is over": func(s subject) {
		h := s.claim(podA).Held
		ctx, cancel := context.WithCancel(s.t.Context())
		cancel()
		_, claim := s.Claim(ctx, key, podA, 0, lease)
		_, look := s.Look(ctx, key)
		_, alias := s.Alias(ctx, "n")
		_, transcript := s.Transcript(ctx, key, "aa")
		for i, err := range []error{
			claim, look, alias, transcript, s.Renew(ctx, []Held{h}, lease)[0], s.Drain(ctx, h), s.Release(ctx, h),
			s.Save(ctx, h, 1, nil, life), s.PutAlias(ctx, "n", nil, life), s.DropTurn(ctx, h, "aa", 1),
			s.PutTurn(ctx, h, Turn{Fingerprint: "aa", Attempt: 1, State: TurnUnknown}, life), s.AppendEvents(ctx, h, "aa", 1, 0, nil, life),
		} {
			if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
				s.t.Errorf("%d: %v", i, err)
			}
		}
		if e := s.look(); e.Epoch != h.Epoch || e.Draining {
			s.t.Errorf("changed: %+v", e)
		}
	},
}

// race lets ten pods claim one key at once, ten times.
func (s subject) race(prepare func()) {
	for range 10 {
		prepare()
		const claimants = 10
		held := make([]*Held, claimants)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range held {
			all.Go(func() {
				<-start
				c, err := s.Claim(s.t.Context(), key, Holder{Pod: fmt.Sprint("p", i), Process: "x"}, 0, lease)
				var f *Fenced
				switch {
				case err == nil:
					held[i] = &c.Held
				case !errors.As(err, &f) || f.Current.Lease == 0:
					s.t.Errorf("claimant %d: %v", i, err)
				}
			})
		}
		close(start)
		all.Wait()
		held = slices.DeleteFunc(held, func(h *Held) bool { return h == nil })
		if len(held) != 1 {
			s.t.Fatalf("%d own the key", len(held))
		}
		if e := s.look(); e.Holder.Pod != held[0].Holder.Pod || e.Epoch != held[0].Epoch {
			s.t.Fatalf("owned by %+v, want %+v", e, held[0])
		}
		s.advance(2 * lease)
	}
}

var values = map[string]func(subject){
	"a value outlives its owner and comes with the next claim": func(s subject) {
		h := s.claim(podA).Held
		s.save(h, 3, "a\x00\xffb")
		s.ok(s.Release(s.t.Context(), h))
		want := Entry{Epoch: h.Epoch, Version: 3, Value: []byte("a\x00\xffb")}
		equal(s.t, s.look(), want)
		equal(s.t, s.claim(podB).Before, want)
		if e := s.look(); e.Version != 3 || string(e.Value) != "a\x00\xffb" {
			s.t.Fatalf("the claim lost %+v", e)
		}
		s.advance(lease + fenceMemory + time.Second)
		if e := s.look(); e.Version != 3 {
			s.t.Fatalf("the value went with its owner: %+v", e)
		}
	},
	"an empty value is a value": func(s subject) {
		h := s.claim(podA).Held
		s.ok(s.Save(s.t.Context(), h, 1, nil, life))
		s.ok(s.Release(s.t.Context(), h))
		if e := s.look(); e.Version != 1 || len(e.Value) != 0 {
			s.t.Fatalf("%+v", e)
		}
	},
	"an older or equal version changes nothing": func(s subject) {
		h := s.claim(podA).Held
		s.save(h, 5, "five")
		s.advance(30 * time.Minute)
		s.save(h, 5, "other")
		s.save(h, 4, "four")
		if e := s.look(); e.Version != 5 || string(e.Value) != "five" {
			s.t.Fatalf("%+v", e)
		}
		s.ok(s.Release(s.t.Context(), h))
		s.advance(30 * time.Minute)
		s.gone()
	},
	"a value lives as long as its last save said": func(s subject) {
		h := s.claim(podA).Held
		s.ok(s.Save(s.t.Context(), h, 1, []byte("v"), 24*time.Hour))
		s.ok(s.Save(s.t.Context(), h, 2, []byte("w"), time.Minute))
		s.advance(time.Minute - time.Second)
		if e := s.look(); string(e.Value) != "w" {
			s.t.Fatalf("%+v", e)
		}
		s.advance(time.Second)
		s.gone()
		s.ok(s.renew(h)) // the owner is known longer
		if e := s.look(); e.Version != 0 || e.Value != nil || e.Holder != podA {
			s.t.Fatalf("%+v", e)
		}
		s.save(h, 1, "anew") // versions of what is gone do not count
		if e := s.look(); e.Version != 1 || string(e.Value) != "anew" {
			s.t.Fatalf("%+v", e)
		}
	},
	"what a caller does with its bytes is its own": func(s subject) {
		h := s.claim(podA).Held
		value := []byte("abc")
		s.ok(s.Save(s.t.Context(), h, 1, value, life))
		s.ok(s.PutAlias(s.t.Context(), "n", value, life))
		s.ok(s.AppendEvents(s.t.Context(), h, "aa", 1, 0, [][]byte{value}, life))
		value[0] = 'x'
		alias, err := s.Alias(s.t.Context(), "n")
		s.ok(err)
		if string(s.look().Value)+string(alias)+s.transcript("aa")[0] != "abcabcabc" {
			s.t.Fatal("shared bytes")
		}
	},
}

var aliases = map[string]func(subject){
	"the last write of an alias wins, until its life is over": func(s subject) {
		ctx := s.t.Context()
		_, err := s.Alias(ctx, "resp_1")
		s.is(err, ErrNotFound)
		s.ok(s.PutAlias(ctx, "resp_1", []byte("one"), time.Minute))
		s.ok(s.PutAlias(ctx, "resp_2", []byte("two\x00"), 2*time.Minute))
		s.ok(s.PutAlias(ctx, "resp_1", []byte("uno"), time.Minute))
		for name, want := range map[string]string{"resp_1": "uno", "resp_2": "two\x00"} {
			if got, err := s.Alias(ctx, name); err != nil || string(got) != want {
				s.t.Fatalf("%s: %q, %v", name, got, err)
			}
		}
		s.advance(time.Minute)
		_, err = s.Alias(ctx, "resp_1")
		s.is(err, ErrNotFound)
		_, err = s.Alias(ctx, "resp_2")
		s.ok(err)
	},
}

var turns = map[string]func(subject){
	"turns come with the claim, the newest first, with their age": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		one := Turn{Fingerprint: "aa", ID: "r1", State: TurnSubmitted, Attempt: 1}
		two := Turn{Fingerprint: "bb", ID: "r2", State: TurnCompleted, Attempt: 2, ResponseID: "resp", Complete: true, Delivered: true}
		s.ok(s.PutTurn(ctx, h, one, life))
		s.advance(time.Minute)
		s.ok(s.PutTurn(ctx, h, two, life))
		one.State = TurnAcknowledged
		s.ok(s.PutTurn(ctx, h, one, life)) // not a new attempt: its age stays
		s.advance(time.Minute)
		got := s.claim(podB).Turns
		for i, age := range []time.Duration{time.Minute, 2 * time.Minute} {
			if got[i].Age < age || got[i].Age > age+10*time.Second {
				s.t.Fatalf("ages %v", got)
			}
			got[i].Age = 0
		}
		equal(s.t, got, []Turn{two, one})
	},
	"Scenario 95: what was submitted stays so until somebody knows better": func(s subject) {
		sent := Turn{Fingerprint: "aa", ID: "r1", State: TurnSubmitted, Attempt: 1}
		s.ok(s.PutTurn(s.t.Context(), s.claim(podA).Held, sent, life))
		equal(s.t, s.turns(podAAgain), []Turn{sent})
		s.advance(2 * lease)
		equal(s.t, s.turns(podB), []Turn{sent})
	},
	"a turn lives as long as its last write said": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "aa", State: TurnSubmitted, Attempt: 2}, time.Minute))
		s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "bb", State: TurnSubmitted, Attempt: 1}, 5*time.Minute))
		s.advance(time.Minute)
		s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "aa", State: TurnSubmitted, Attempt: 1}, time.Minute)) // the old one is gone
		equal(s.t, len(s.turns(podA)), 2)
		s.advance(time.Minute)
		equal(s.t, s.turns(podA), []Turn{{Fingerprint: "bb", State: TurnSubmitted, Attempt: 1}})
		s.advance(3 * time.Minute)
		equal(s.t, len(s.turns(podB)), 0)
	},
	"an older attempt is refused, a newer one begins anew": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		put := func(attempt int, state TurnState) error {
			return s.PutTurn(ctx, h, Turn{Fingerprint: "aa", ID: fmt.Sprint("r", attempt), State: state, Attempt: attempt}, life)
		}
		s.ok(put(2, TurnCompleted))
		s.is(put(1, TurnSubmitted), ErrConflict)
		s.is(put(1, TurnCompleted), ErrConflict)
		s.ok(put(3, TurnSubmitted))
		equal(s.t, s.turns(podA), []Turn{{Fingerprint: "aa", ID: "r3", State: TurnSubmitted, Attempt: 3}})
	},
	"a final state stays; that it was delivered may be added": func(s subject) {
		ctx := s.t.Context()
		for i, final := range []TurnState{TurnCompleted, TurnIncomplete, TurnFailed, TurnAbandoned} {
			h := s.claim(podA).Held
			end := Turn{Fingerprint: fmt.Sprint("a", i), ID: "r1", State: final, Attempt: 1, ResponseID: "resp"}
			s.ok(s.PutTurn(ctx, h, end, life))
			for _, other := range []Turn{
				{Fingerprint: end.Fingerprint, ID: "r1", State: TurnSubmitted, Attempt: 1},
				{Fingerprint: end.Fingerprint, ID: "r2", State: final, Attempt: 1, ResponseID: "resp"},
				{Fingerprint: end.Fingerprint, ID: "r1", State: final, Attempt: 1, ResponseID: "resp", Complete: true},
			} {
				s.is(s.PutTurn(ctx, h, other, life), ErrConflict)
			}
			delivered := end
			delivered.Delivered = true
			s.ok(s.PutTurn(ctx, h, delivered, life))
			s.ok(s.PutTurn(ctx, h, end, life)) // late: takes nothing back
			if got := s.turns(podA); !slices.Contains(got, delivered) {
				s.t.Fatalf("%+v", got)
			}
		}
	},
	"a state that comes late changes nothing": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		for _, state := range []TurnState{TurnSubmitted, TurnUnknown, TurnSubmitted, TurnAcknowledged, TurnUnknown, TurnSubmitted} {
			s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "aa", ID: "r1", State: state, Attempt: 1}, life))
		}
		equal(s.t, s.turns(podA), []Turn{{Fingerprint: "aa", ID: "r1", State: TurnAcknowledged, Attempt: 1}})
	},
	"Scenario 99: a turn that was never dispatched leaves no trace": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		before := Turn{Fingerprint: "aa", ID: "r1", State: TurnFailed, Attempt: 1}
		s.ok(s.PutTurn(ctx, h, before, life))
		s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "aa", ID: "r2", State: TurnSubmitted, Attempt: 2}, life))
		s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "bb", ID: "r3", State: TurnSubmitted, Attempt: 1}, life))
		s.ok(s.AppendEvents(ctx, h, "bb", 1, 0, raw("one"), life))
		s.is(s.DropTurn(ctx, h, "aa", 1), ErrConflict) // not ours to drop
		s.ok(s.DropTurn(ctx, h, "bb", 1))
		s.ok(s.DropTurn(ctx, h, "aa", 2))
		s.ok(s.PutTurn(ctx, h, before, life)) // restored
		equal(s.t, s.turns(podA), []Turn{before})
		_, err := s.Transcript(ctx, key, "bb")
		s.is(err, ErrNotFound)
	},
	"turns of a key are bounded: final ones go first, then the oldest": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		put := func(i int, state TurnState) {
			s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: fmt.Sprintf("%04x", i), State: state, Attempt: 1}, life))
		}
		put(0, TurnSubmitted)
		s.advance(time.Second)
		put(1, TurnCompleted)
		for i := 2; i < MaxTurns; i++ {
			s.advance(time.Millisecond)
			put(i, TurnUnknown)
		}
		put(0, TurnSubmitted) // not one more
		for i, gone := range []string{"0001", "0000"} {
			s.advance(time.Second)
			put(MaxTurns+i, TurnSubmitted)
			got := s.turns(podA)
			h = s.claim(podA).Held
			names := make([]string, len(got))
			for i, t := range got {
				names[i] = t.Fingerprint
			}
			if len(got) != MaxTurns || slices.Contains(names, gone) || slices.Contains(names, "0000") != (i == 0) || !slices.Contains(names, "0002") {
				s.t.Fatalf("%d turns: %v", len(got), names)
			}
		}
	},
}

var transcripts = map[string]func(subject){
	"Scenario 96: a transcript comes back in order, byte for byte": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one", "two\x00", ""), life))
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 3, raw("two\x00"), life)) // the same again is another
		equal(s.t, s.transcript("aa"), []string{"one", "two\x00", "", "two\x00"})
		_, err := s.Transcript(ctx, key, "bb")
		s.is(err, ErrNotFound)
		_, err = s.Transcript(ctx, "other", "aa")
		s.is(err, ErrNotFound)
		s.advance(life)
		_, err = s.Transcript(ctx, key, "aa")
		s.is(err, ErrNotFound)
	},
	"Scenario 97: a gap is refused and nothing is added behind it": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		s.is(s.AppendEvents(ctx, h, "aa", 1, 2, raw("three"), life), ErrConflict)
		_, err := s.Transcript(ctx, key, "aa")
		s.is(err, ErrNotFound)
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one"), life))
		s.is(s.AppendEvents(ctx, h, "aa", 1, 2, raw("three"), life), ErrConflict)
		equal(s.t, s.transcript("aa"), []string{"one"})
	},
	"Scenario 97: a transcript that is too long goes, the rest stays": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		big := strings.Repeat("x", MaxTranscript/2)
		s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "aa", State: TurnAcknowledged, Attempt: 1}, life))
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw(big), life))
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 1, raw(big), life))
		s.is(s.AppendEvents(ctx, h, "aa", 1, 2, raw("x"), life), ErrConflict)
		s.is(s.AppendEvents(ctx, h, "aa", 1, 3, raw("x"), life), ErrConflict)
		_, err := s.Transcript(ctx, key, "aa")
		s.is(err, ErrNotFound)
		s.is(s.AppendEvents(ctx, h, "bb", 1, 0, raw(big, big, "x"), life), ErrConflict)
		equal(s.t, len(s.turns(podA)), 1)
	},
	"from zero begins anew, an older attempt is refused": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one", "two"), life))
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("uno"), life))
		equal(s.t, s.transcript("aa"), []string{"uno"})
		s.is(s.AppendEvents(ctx, h, "aa", 2, 1, raw("due"), life), ErrConflict) // of another attempt
		s.ok(s.AppendEvents(ctx, h, "aa", 2, 0, raw("uno", "due"), life))
		s.is(s.AppendEvents(ctx, h, "aa", 1, 1, raw("two"), life), ErrConflict)
		s.is(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one"), life), ErrConflict)
		equal(s.t, s.transcript("aa"), []string{"uno", "due"})
	},
	"a new attempt removes the transcript of the old one, and only that": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		put := func(attempt int) {
			s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "aa", State: TurnSubmitted, Attempt: attempt}, life))
		}
		put(1)
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one"), life))
		put(1)
		equal(s.t, s.transcript("aa"), []string{"one"})
		put(2)
		s.ok(s.AppendEvents(ctx, h, "bb", 1, 0, raw("one"), life)) // without a record
		s.ok(s.PutTurn(ctx, h, Turn{Fingerprint: "bb", State: TurnSubmitted, Attempt: 2}, life))
		_, err := s.Transcript(ctx, key, "bb")
		s.is(err, ErrNotFound)
		_, err = s.Transcript(ctx, key, "aa")
		s.is(err, ErrNotFound)
		s.is(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one"), life), ErrConflict)
		s.ok(s.AppendEvents(ctx, h, "aa", 3, 0, raw("tre"), life))
		put(3)
		equal(s.t, s.transcript("aa"), []string{"tre"})
		s.ok(s.DropTurn(ctx, h, "aa", 3))
		s.ok(s.AppendEvents(ctx, h, "aa", 4, 0, raw("four"), life))
		s.ok(s.DropTurn(ctx, h, "aa", 3))
		equal(s.t, s.transcript("aa"), []string{"four"})
	},
	"many events at once": func(s subject) {
		h := s.claim(podA).Held
		events := make([]string, 2_500)
		for i := range events {
			events[i] = fmt.Sprint(i)
		}
		s.ok(s.AppendEvents(s.t.Context(), h, "aa", 1, 0, raw(events...), life))
		equal(s.t, s.transcript("aa"), events)
	},
}

var repeats = map[string]func(subject){
	"a write whose answer was lost may be repeated": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		turn := Turn{Fingerprint: "aa", ID: "r1", State: TurnCompleted, Attempt: 1, Complete: true}
		dropped := Turn{Fingerprint: "bb", ID: "r2", State: TurnSubmitted, Attempt: 1}
		for range 2 {
			s.save(h, 1, "v")
			s.ok(s.PutAlias(ctx, "n", []byte("v"), life))
			s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one", "two"), life))
			s.ok(s.AppendEvents(ctx, h, "aa", 1, 2, raw("three"), life))
			s.ok(s.PutTurn(ctx, h, turn, life))
			s.ok(s.PutTurn(ctx, h, dropped, life))
			s.ok(s.renew(h))
			s.ok(s.Drain(ctx, h))
		}
		for range 2 {
			s.ok(s.DropTurn(ctx, h, "bb", 1))
		}
		equal(s.t, s.transcript("aa"), []string{"one", "two", "three"})
		for range 2 {
			s.ok(s.Release(ctx, h))
		}
		equal(s.t, s.turns(podB), []Turn{turn})
	},
	"Scenario 98: the end of a turn is written once, however late its first try arrives": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		sent := Turn{Fingerprint: "aa", ID: "r1", State: TurnSubmitted, Attempt: 2}
		end := Turn{Fingerprint: "aa", ID: "r1", State: TurnCompleted, Attempt: 2, ResponseID: "resp", Complete: true}
		write := []func() error{
			func() error { return s.PutTurn(ctx, h, sent, life) },
			func() error { return s.AppendEvents(ctx, h, "aa", 2, 0, raw("one", "two"), life) },
			func() error { return s.AppendEvents(ctx, h, "aa", 2, 2, raw("end"), life) },
			func() error { return s.PutTurn(ctx, h, end, life) },
		}
		for _, w := range write {
			s.ok(w())
		}
		s.is(write[0](), ErrConflict) // no revival
		for _, w := range write[1:] {
			s.ok(w())
		}
		s.ok(s.AppendEvents(ctx, h, "aa", 2, 1, raw("two", "end"), life))
		s.is(s.AppendEvents(ctx, h, "aa", 1, 0, raw("old"), life), ErrConflict)
		s.is(s.PutTurn(ctx, h, Turn{Fingerprint: "aa", ID: "r0", State: TurnFailed, Attempt: 1}, life), ErrConflict)
		equal(s.t, s.transcript("aa"), []string{"one", "two", "end"})
		s.advance(2 * lease)
		equal(s.t, s.turns(podB), []Turn{end})
	},
	"an append that overlaps adds what is missing": func(s subject) {
		ctx := s.t.Context()
		h := s.claim(podA).Held
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one", "two"), life))
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 1, raw("two", "three"), life))
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one"), life)) // late
		equal(s.t, s.transcript("aa"), []string{"one", "two", "three"})
		s.ok(s.AppendEvents(ctx, h, "aa", 1, 0, raw("one", "two", "three", "four"), life))
		equal(s.t, s.transcript("aa"), []string{"one", "two", "three", "four"})
	},
}
