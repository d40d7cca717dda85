package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// outboxTest is an outbox in front of a scripted memory, in a bubble of fake time.
type outboxTest struct {
	*Outbox
	t      *testing.T
	store  *scripted
	told   sync.Mutex // guards fenced: workers tell at the same time
	fenced []Held
	failed atomic.Int64
}

func inBubble(t *testing.T, opts OutboxOptions, test func(t *testing.T, o *outboxTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &outboxTest{t: t, store: &scripted{Store: NewMemory(time.Now)}}
		opts.Fenced = func(h Held, _ *Fenced) {
			o.told.Lock()
			defer o.told.Unlock()
			o.fenced = append(o.fenced, h)
		}
		opts.Failed = func() { o.failed.Add(1) }
		o.Outbox = NewOutbox(o.store, opts)
		defer o.Close()
		test(t, o)
	})
}

func (o *outboxTest) held(key Key) Held {
	o.t.Helper()
	c, err := o.store.Claim(o.t.Context(), key, podA, 0, lease)
	if err != nil {
		o.t.Fatal(err)
	}
	return c.Held
}

func (o *outboxTest) value(key Key) string {
	o.t.Helper()
	e, err := o.store.Look(o.t.Context(), key)
	if err != nil {
		o.t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", e.Version, e.Value)
}

// of are the logged calls that hold a word.
func of(word string, calls []string) []string {
	return slices.DeleteFunc(calls, func(c string) bool { return !slices.Contains(strings.Fields(c), word) })
}

func TestOutboxKeepsTheOrderOfAKey(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		a, b := o.held("a"), o.held("b")
		o.store.script(func(context.Context, string) error { <-time.After(time.Millisecond); return nil }, nil)
		o.Save(a, 1, []byte("one"), life)
		o.Save(b, 1, []byte("b"), life)
		o.PutTurn(a, Turn{Fingerprint: "f", State: TurnSubmitted, Attempt: 1}, life)
		o.AppendEvents(a, "f", 1, 0, raw("e"), life)
		o.PutTurn(a, Turn{Fingerprint: "f", State: TurnCompleted, Attempt: 1, Complete: true}, life)
		o.Drain(a)
		o.Release(b)
		if err := o.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls := o.store.calls()
		equal(t, of("a", slices.Clone(calls)), []string{"save a 1", "events a f 1 0+1", "turn a f 1 completed", "drain a"})
		equal(t, of("b", calls), []string{"save b 1", "release b"})
	})
}

func TestOutboxOfAHealthyStoreWritesAtOnce(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		h := o.held("a")
		begun := time.Now()
		for i := range 5 {
			o.Save(h, int64(i+1), fmt.Append(nil, i), life)
			synctest.Wait()
		}
		if o.value("a") != "5 4" || len(o.store.calls()) != 5 || time.Since(begun) != 0 || o.Len() != 0 || o.Age() != 0 || !o.Healthy() {
			t.Fatalf("value %q, %d wait", o.value("a"), o.Len())
		}
		equal(t, o.Counts(), OutboxCounts{Written: 5})
	})
}

func TestOutboxThroughAnOutage(t *testing.T) {
	for name, down := range map[string]func(context.Context, string) error{"refused": away, "silent": silent} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
				h := o.held("a")
				o.store.script(down, nil)
				begun := time.Now()
				for i := range 40 {
					version := int64(i + 1)
					o.PutTurn(h, Turn{Fingerprint: fmt.Sprint("f", i), State: TurnSubmitted, Attempt: 1}, life)
					o.Save(h, version, fmt.Append(nil, i), life)
					o.PutAlias("name", fmt.Append(nil, i), life)
					if since := time.Since(begun); since != time.Duration(i)*time.Second {
						t.Fatalf("a method took time: %s", since)
					}
					<-time.After(time.Second)
					synctest.Wait()
					if i > 1 && o.Healthy() {
						t.Fatalf("healthy %t after %d s", o.Healthy(), i+1)
					}
				}
				// One save and one alias wait, and every turn.
				if tries := len(o.store.calls()); o.Len() != 42 || o.Age() != 40*time.Second || tries < 10 || tries > 30 || o.failed.Load() < 10 {
					t.Fatalf("%d wait for %s after %d tries, %d failed", o.Len(), o.Age(), tries, o.failed.Load())
				}
				o.store.script(nil, nil)
				<-time.After(6 * time.Second)
				synctest.Wait()
				if !o.Healthy() || o.Len() != 0 || o.value("a") != "40 39" {
					t.Fatalf("%d wait, value %q", o.Len(), o.value("a"))
				}
				calls := of("a", o.store.calls())
				if len(calls) > 41 || calls[len(calls)-1] != "save a 40" {
					t.Fatalf("%v", calls)
				}
				equal(t, o.Counts(), OutboxCounts{Written: 42})
				turns := o.store.Store.(*memory).records.of("a", time.Now())
				if len(turns) != 40 {
					t.Fatalf("%d turns", len(turns))
				}
			})
		})
	}
}

func TestOutboxTriesOneAtATimeWhileTheStoreIsAway(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		var at, most atomic.Int64
		o.store.script(func(ctx context.Context, call string) error {
			now := at.Add(1)
			defer at.Add(-1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			return silent(ctx, call)
		}, nil)
		for i := range 1_000 {
			o.PutAlias(fmt.Sprint("n", i), nil, life)
		}
		<-time.After(1500 * time.Millisecond) // the first are on their way before it is known
		synctest.Wait()
		most.Store(0)
		<-time.After(time.Minute)
		synctest.Wait()
		first := o.store.calls()
		if len(first) < 12 || len(first) > 40 || most.Load() != 1 {
			t.Fatalf("%d tries in a minute, %d at once", len(first), most.Load())
		}
		names := map[string]bool{}
		for _, c := range first {
			names[c] = true
		}
		if len(names) < len(first)-4 {
			t.Fatalf("it tries the same again and again: %v", first)
		}
		o.store.script(nil, nil)
		<-time.After(6 * time.Second)
		synctest.Wait()
		if o.Len() != 0 {
			t.Fatalf("%d wait", o.Len())
		}
	})
}

func TestOutboxDoesNotTryAgainWhatIsSuperseded(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		h := o.held("a")
		o.store.script(silent, nil)
		o.Save(h, 1, nil, life)
		synctest.Wait()
		o.Save(h, 2, nil, life) // while the first is on its way
		<-time.After(5 * time.Second)
		synctest.Wait()
		calls := o.store.calls()
		if calls[0] != "save a 1" || slices.Contains(calls[1:], "save a 1") || !slices.Contains(calls, "save a 2") {
			t.Fatalf("%v", calls)
		}
	})
}

func TestOutboxLeavesToTheStoreWhatTheStoreHasToJudge(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		h := o.held("a")
		o.store.script(away, nil)
		o.Save(h, 1, nil, life)
		synctest.Wait()
		o.PutTurn(h, Turn{Fingerprint: "f", State: TurnCompleted, Attempt: 1}, life)
		o.PutTurn(h, Turn{Fingerprint: "f", State: TurnFailed, Attempt: 1}, life) // the first end counts
		o.AppendEvents(h, "f", 1, 0, raw("one"), life)
		o.AppendEvents(h, "f", 1, 5, raw("six"), life) // a gap
		o.store.script(nil, nil)
		<-time.After(time.Second)
		synctest.Wait()
		turns := o.store.Store.(*memory).records.of("a", time.Now())
		events, err := o.store.Transcript(t.Context(), "a", "f")
		if len(turns) != 1 || turns[0].State != TurnCompleted || err != nil || len(events) != 1 || o.Counts().Refused != 2 {
			t.Fatalf("%+v, %q, %v, %+v", turns, events, err, o.Counts())
		}
	})
}

func TestOutboxServesTheKeysThatWork(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		bad := o.held("bad")
		o.store.script(func(ctx context.Context, call string) error {
			if strings.Contains(call, "bad") {
				return silent(ctx, call)
			}
			return nil
		}, nil)
		o.Save(bad, 1, nil, life)
		var good []Held
		for i := range 50 {
			good = append(good, o.held(Key(fmt.Sprint("k", i))))
		}
		for _, h := range good {
			o.Save(h, 1, nil, life)
		}
		<-time.After(5 * time.Second)
		synctest.Wait()
		if o.Len() != 1 {
			t.Fatalf("%d wait, want the one of the part that is away", o.Len())
		}
	})
}

func TestOutboxTellsOfAFencedKeyOnce(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		old := o.held("a")
		o.store.script(silent, nil)
		o.Save(old, 1, []byte("old"), life)
		o.PutTurn(old, Turn{Fingerprint: "f", State: TurnSubmitted, Attempt: 1}, life)
		o.PutTurn(old, Turn{Fingerprint: "g", State: TurnSubmitted, Attempt: 1}, life)
		o.Save(o.held("b"), 1, []byte("b"), life)
		<-time.After(time.Second)
		synctest.Wait()
		next := o.held("a")
		o.PutTurn(next, Turn{Fingerprint: "h", State: TurnSubmitted, Attempt: 1}, life)
		o.store.script(nil, nil)
		<-time.After(10 * time.Second)
		synctest.Wait()
		equal(t, o.fenced, []Held{old})
		equal(t, o.value("b"), "1 b")
		turns := o.store.Store.(*memory).records.of("a", time.Now())
		if len(turns) != 1 || turns[0].Fingerprint != "h" || o.Len() != 0 || o.Counts().Refused != 1 {
			t.Fatalf("%+v, %+v", turns, o.Counts())
		}
	})
}

func TestScenario97_OutboxNeverCallsATranscriptWithAHoleComplete(t *testing.T) {
	done := Turn{Fingerprint: "f", State: TurnCompleted, Attempt: 1, Complete: true}
	for name, tc := range map[string]struct {
		opts    OutboxOptions
		write   func(*outboxTest, Held)
		dropped int64
	}{
		"refused by the store": {OutboxOptions{}, func(o *outboxTest, h Held) {
			o.AppendEvents(h, "f", 1, 0, raw("one"), life)
			synctest.Wait()
			o.AppendEvents(h, "f", 1, 2, raw("three"), life)
			o.PutTurn(h, done, life)
		}, 1},
		"no room": {OutboxOptions{MaxBytes: 5_000}, func(o *outboxTest, h Held) {
			o.AppendEvents(h, "f", 1, 0, raw("one"), life)
			synctest.Wait()
			o.store.script(away, nil)
			o.AppendEvents(h, "f", 1, 1, raw(strings.Repeat("x", 5_000)), life)
			synctest.Wait()
			o.AppendEvents(h, "f", 1, 2, raw("three"), life) // of the same turn: goes with it
			o.PutTurn(h, done, life)
			o.store.script(nil, nil)
		}, 1},
		"no room later": {OutboxOptions{MaxItems: 4}, func(o *outboxTest, h Held) {
			o.store.script(away, nil)
			o.Save(h, 1, nil, life) // the item that is tried
			synctest.Wait()
			o.AppendEvents(h, "f", 1, 0, raw("one"), life)
			o.PutTurn(h, done, life)
			for i := range 3 {
				o.PutAlias(fmt.Sprint(i), nil, life)
			}
			o.store.script(nil, nil)
		}, 1},
		"all there": {OutboxOptions{}, func(o *outboxTest, h Held) {
			o.store.script(away, nil)
			o.AppendEvents(h, "f", 1, 0, raw("one"), life)
			o.AppendEvents(h, "f", 1, 1, raw("two"), life)
			o.PutTurn(h, done, life)
			o.store.script(nil, nil)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, tc.opts, func(t *testing.T, o *outboxTest) {
				h := o.held("a")
				tc.write(o, h)
				<-time.After(10 * time.Second)
				synctest.Wait()
				turns := o.store.Store.(*memory).records.of("a", time.Now())
				if len(turns) != 1 || turns[0].State != TurnCompleted || turns[0].Complete != (tc.dropped == 0) {
					t.Fatalf("%+v", turns)
				}
				if n := o.Counts().DroppedTranscripts; n != tc.dropped || o.Len() != 0 {
					t.Fatalf("%d transcripts dropped, %d wait", n, o.Len())
				}
				// The next attempt begins anew.
				o.PutTurn(h, Turn{Fingerprint: "f", State: TurnSubmitted, Attempt: 2}, life)
				o.AppendEvents(h, "f", 2, 0, raw("uno"), life)
				o.PutTurn(h, Turn{Fingerprint: "f", State: TurnCompleted, Attempt: 2, Complete: true}, life)
				synctest.Wait()
				turns = o.store.Store.(*memory).records.of("a", time.Now())
				if len(turns) != 1 || !turns[0].Complete {
					t.Fatalf("%+v", turns)
				}
			})
		})
	}
}

func TestOutboxThrowsAwayWhatMattersLeast(t *testing.T) {
	inBubble(t, OutboxOptions{MaxItems: 40}, func(t *testing.T, o *outboxTest) {
		var held []Held
		for i := range 30 {
			held = append(held, o.held(Key(fmt.Sprint("k", i))))
		}
		o.store.script(silent, nil)
		for _, h := range held[:10] {
			o.AppendEvents(h, "f", 1, 0, raw("e"), life)
			o.PutAlias("alias-"+string(h.Key), nil, life)
			o.Drain(h)
			o.PutTurn(h, Turn{Fingerprint: "f", State: TurnSubmitted, Attempt: 1}, life)
		}
		if o.Counts() != (OutboxCounts{}) {
			t.Fatalf("%+v", o.Counts())
		}
		synctest.Wait()
		// Four are on their way: events, and aliases, of the first two keys.
		for i, want := range []OutboxCounts{
			9:  {DroppedTranscripts: 8, DroppedAliases: 2},
			19: {DroppedTranscripts: 8, DroppedAliases: 8},                  // and four drains
			29: {DroppedTranscripts: 8, DroppedAliases: 8, DroppedTurns: 4}, // and the other six drains
		} {
			o.Save(held[i], 1, nil, life)
			if want != (OutboxCounts{}) && want != o.Counts() {
				t.Errorf("after %d records %+v, want %+v", i+1, o.Counts(), want)
			}
			if o.Len() > 40 {
				t.Fatalf("%d wait", o.Len())
			}
		}
		o.store.script(nil, nil)
		<-time.After(10 * time.Second)
		synctest.Wait()
		for _, h := range held {
			equal(t, o.value(h.Key), "1 ")
		}
		for i := range 50 {
			o.store.script(away, nil)
			o.Save(held[i%30], int64(i+2), nil, life)
		}
		if o.Len() < 30 || o.Len() > 30+outboxWorkers || o.Counts().DroppedRecords != 0 {
			t.Fatalf("%d wait, %+v", o.Len(), o.Counts())
		}
	})
}

func TestOutboxLosesARecordOnlyWhenNothingElseIsLeft(t *testing.T) {
	inBubble(t, OutboxOptions{MaxItems: 10}, func(t *testing.T, o *outboxTest) {
		o.store.script(away, nil)
		for i := range 15 {
			o.Save(o.held(Key(fmt.Sprint("k", i))), 1, nil, life)
			synctest.Wait()
		}
		o.store.script(nil, nil)
		<-time.After(10 * time.Second)
		synctest.Wait()
		if c := o.Counts(); c.DroppedRecords != 5 || c.Written != 10 {
			t.Fatalf("%+v", c)
		}
	})
}

func TestScenario99_OutboxForgetsATurnThatWasNeverDispatched(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		h := o.held("a")
		o.store.script(away, nil)
		o.Save(h, 1, nil, life)
		synctest.Wait()
		o.PutTurn(h, Turn{Fingerprint: "f", State: TurnSubmitted, Attempt: 1}, life)
		o.AppendEvents(h, "f", 1, 0, raw("e"), life)
		o.DropTurn(h, "f", 1)
		o.store.calls()
		o.store.script(nil, nil)
		<-time.After(time.Second)
		synctest.Wait()
		equal(t, o.store.calls(), []string{"save a 1", "drop a f 1"})
	})
}

func TestOutboxDropsWhatTheStoreCannotRead(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		h := o.held("a")
		o.store.script(func(_ context.Context, call string) error {
			if strings.HasPrefix(call, "save") {
				return corrupt("a")
			}
			return nil
		}, nil)
		o.Save(h, 1, nil, life)
		o.Drain(h)
		synctest.Wait()
		if !o.Healthy() || o.Len() != 0 || o.Counts() != (OutboxCounts{Written: 1, DroppedRecords: 1}) {
			t.Fatalf("%d wait, %+v", o.Len(), o.Counts())
		}
	})
}

func TestOutboxAtTheEnd(t *testing.T) {
	inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
		h := o.held("a")
		if err := o.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.store.script(away, nil)
		o.Save(h, 1, []byte("v"), life)
		o.PutAlias("n", nil, life)
		<-time.After(time.Minute) // pauses are long by now
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := o.Await(ctx, "b"); err != nil {
			t.Fatalf("nothing waits for b: %v", err)
		}
		if err := o.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "2 writes") {
			t.Fatalf("got %v", err)
		}
		o.store.script(nil, nil)
		begun := time.Now()
		if err := o.Await(t.Context(), "a"); err != nil || o.value("a") != "1 v" {
			t.Fatalf("%v", err)
		}
		if err := o.Flush(t.Context()); err != nil || time.Since(begun) > 2*time.Second {
			t.Fatalf("%v after %s", err, time.Since(begun))
		}
		o.store.script(silent, nil)
		o.Save(h, 2, []byte("w"), life)
		waits := make(chan error)
		go func() { waits <- o.Flush(t.Context()) }()
		synctest.Wait()
		o.Close()
		if err := <-waits; err == nil {
			t.Fatal("flushed by being closed")
		}
		o.store.calls()
		o.Save(h, 3, nil, life)
		o.Close()
		if calls := o.store.calls(); len(calls) != 0 {
			t.Fatalf("after the end: %v", calls)
		}
	})
}

// TestOutboxLosesNothing: whatever fails on the way, before or after the store has
// done it, in the end the store holds what it would hold had nothing failed.
func TestOutboxLosesNothing(t *testing.T) {
	for seed := range uint64(150) {
		inBubble(t, OutboxOptions{}, func(t *testing.T, o *outboxTest) {
			random := rand.New(rand.NewPCG(seed, 1))
			direct := NewMemory(time.Now)
			var ours, theirs []Held
			for i := range 3 {
				key := Key(fmt.Sprint("k", i))
				ours = append(ours, o.held(key))
				c, err := direct.Claim(t.Context(), key, podA, 0, lease)
				if err != nil {
					t.Fatal(err)
				}
				theirs = append(theirs, c.Held)
			}
			var faults sync.Mutex // workers ask at the same time
			luck := rand.New(rand.NewPCG(seed, 2))
			fail := func(percent int) func(context.Context, string) error {
				return func(ctx context.Context, call string) error {
					faults.Lock()
					failed := luck.IntN(100) < percent
					faults.Unlock()
					if failed {
						return silent(ctx, call)
					}
					return nil
				}
			}
			o.store.script(fail(40), fail(40))
			must := func(err error) {
				if err != nil && !errors.Is(err, ErrConflict) {
					t.Fatal(err)
				}
			}
			counts := map[string]int{}
			for step := range 120 {
				i := random.IntN(3)
				fingerprint := fmt.Sprint("f", random.IntN(3))
				name := fmt.Sprint(i, fingerprint)
				attempt := 1 + step/40
				text := fmt.Append(nil, step)
				switch random.IntN(6) {
				case 0:
					o.Save(ours[i], int64(step), text, life)
					must(direct.Save(t.Context(), theirs[i], int64(step), text, life))
				case 1:
					o.PutAlias(name, text, life)
					must(direct.PutAlias(t.Context(), name, text, life))
				case 2:
					states := []TurnState{TurnSubmitted, TurnUnknown, TurnAcknowledged}
					turn := Turn{Fingerprint: fingerprint, State: states[random.IntN(3)], Attempt: attempt, ID: fmt.Sprint(attempt)}
					o.PutTurn(ours[i], turn, life)
					must(direct.PutTurn(t.Context(), theirs[i], turn, life))
				case 3, 4:
					at := fmt.Sprint(name, attempt)
					o.AppendEvents(ours[i], fingerprint, attempt, counts[at], [][]byte{text}, life)
					must(direct.AppendEvents(t.Context(), theirs[i], fingerprint, attempt, counts[at], [][]byte{text}, life))
					counts[at]++
				case 5:
					if random.IntN(4) == 0 {
						o.DropTurn(ours[i], fingerprint, attempt)
						must(direct.DropTurn(t.Context(), theirs[i], fingerprint, attempt))
						delete(counts, fmt.Sprint(name, attempt))
					}
				}
				if random.IntN(4) == 0 {
					<-time.After(time.Duration(random.IntN(2_000)) * time.Millisecond)
					synctest.Wait()
				}
			}
			if err := o.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			a, b := o.store.Store.(*memory), direct.(*memory)
			for i := range 3 {
				key := ours[i].Key
				equal(t, a.entries[key].value, b.entries[key].value)
				for f := range 3 {
					name := turnName{key, fmt.Sprint("f", f)}
					mine, _ := a.records.turns.get(name, time.Time{})
					other, _ := b.records.turns.get(name, time.Time{})
					equal(t, mine.turn, other.turn)
					said, _ := a.Transcript(t.Context(), key, name.fingerprint)
					want, _ := b.Transcript(t.Context(), key, name.fingerprint)
					equal(t, texts(said), texts(want))
					alias, _ := a.aliases.get(fmt.Sprint(i, name.fingerprint), time.Time{})
					wanted, _ := b.aliases.get(fmt.Sprint(i, name.fingerprint), time.Time{})
					equal(t, string(alias), string(wanted))
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}
