package share

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/account"
	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// fixed is the time of a world.
type fixed struct{ w *world }

func (f fixed) Now() time.Time                     { return f.w.now }
func (f fixed) Since(t time.Time) time.Duration    { return f.w.now.Sub(t) }
func (fixed) After(time.Duration) <-chan time.Time { return nil }
func (fixed) NewTimer(d time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(d) }
func (fixed) Sleep(time.Duration)                  {}
func (fixed) Tick(time.Duration) <-chan time.Time  { return nil }

const (
	limited = "a/RateLimited"
	quota   = "a/QuotaExhausted"
)

func TestB50_ACoolDownHoldsOnTheOtherReplicasWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := store.NewMemory(time.Now)
		one, two := newCooler(time.Now), newCooler(time.Now)
		var log logged
		defer run(t, b, log.logger(), NewCoolDowns(one, "p1"))()
		defer run(t, b, log.logger(), NewCoolDowns(two, "p2"))()
		pass(10 * time.Second)
		one.cool(limited, 10*time.Minute)
		pass(2 * Every)
		synctest.Wait()
		if got := two.left(limited); got != 10*time.Minute-2*Every {
			t.Errorf("%s left on the other", got)
		}
		pass(time.Minute)
		two.cool(limited, 0) // it worked there
		pass(2 * Every)
		synctest.Wait()
		if got := one.left(limited); got != 0 {
			t.Errorf("%s left though the account works", got)
		}
		pass(20 * time.Minute)
		if one.left(limited) != 0 || two.left(limited) != 0 {
			t.Error("it has come back")
		}
	})
}

func TestB50_WhatIsLeftOfACoolDownSurvivesRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := store.NewMemory(time.Now)
		var log logged
		first := newCooler(time.Now)
		stop := run(t, b, log.logger(), NewCoolDowns(first, "p1"))
		pass(5 * time.Second)
		first.cool(quota, time.Hour)
		stop() // at once: the last exchange tells it
		pass(20 * time.Minute)
		for i := range 3 {
			again := newCooler(time.Now)
			e := New(Options{Board: b, Sources: []Source{NewCoolDowns(again, fmt.Sprint("again", i))}, Clock: clock.RealClock{}, Log: log.logger()})
			e.Once(t.Context()) // before it serves
			if got := again.left(quota); got != time.Duration(40-i*10)*time.Minute {
				t.Errorf("process %d: %s left", i, got)
			}
			pass(10 * time.Minute)
		}
	})
}

func TestB51_OneIncidentIsWrittenAtMostTwice(t *testing.T) {
	for name, lengths := range map[string][]time.Duration{
		"on one replica":             {time.Hour, 0, 0},
		"on all, for the same time":  {time.Hour, time.Hour, time.Hour},
		"on all, one a little later": {time.Hour, time.Hour + 300*time.Millisecond, time.Hour},
		"on two":                     {time.Hour, 2 * time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3)
			w.settle(t)
			longest := time.Duration(0)
			for i, d := range lengths {
				w.coolers[i].cool(quota, d)
				longest = max(longest, d)
			}
			for range 10 {
				w.settle(t)
				w.now = w.now.Add(time.Second)
			}
			if n := w.board.count(); n == 0 || n > 2 {
				t.Errorf("%d writes", n)
			}
			for i, c := range w.coolers {
				if got := c.left(quota) + 10*time.Second; got < longest-slack || got > longest {
					t.Errorf("replica %d: %s of %s", i, got, longest)
				}
			}
		})
	}
}

func TestASiblingWithoutTheAccountEndsNoCoolDown(t *testing.T) {
	w := newWorld(2)
	w.coolers[1].accounts = []string{"b"} // has another configuration for now
	w.coolers[0].cool(quota, time.Hour)
	w.settle(t)
	if w.coolers[0].left(quota) != time.Hour || w.coolers[1].left(quota) != 0 {
		t.Fatal("ended, or taken over without an account")
	}
	w.coolers[1].accounts = nil
	w.settle(t)
	if got := w.coolers[1].left(quota); got != time.Hour {
		t.Fatalf("%s left once it has the account", got)
	}
}

func TestWhatHappensDuringAnExchangeIsNotLost(t *testing.T) {
	w := newWorld(2)
	w.coolers[0].cool(limited, time.Minute)
	w.once(t, 0)
	// Between the look at the cool-downs and the take-over the upstream says more.
	late := &lateCooler{cooler: w.coolers[1]}
	late.before = func() { w.coolers[1].cool(limited, time.Hour) }
	w.all[1] = New(Options{Board: w.board, Sources: []Source{NewCoolDowns(late, "late")}, Clock: fixed{w}})
	w.settle(t)
	for i, c := range w.coolers {
		if got := c.left(limited); got != time.Hour {
			t.Errorf("replica %d: %s", i, got)
		}
	}
}

type lateCooler struct {
	*cooler
	before func()
}

func (l *lateCooler) SwapCoolDown(account, reason string, was, until time.Time) bool {
	if l.before != nil {
		l.before()
		l.before = nil
	}
	return l.cooler.SwapCoolDown(account, reason, was, until)
}

func TestAStoreThatIsAwayTeachesNothingAndBlocksNobody(t *testing.T) {
	for name, silent := range map[string]bool{"it refuses": false, "it is silent": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &counting{Board: store.NewMemory(time.Now)}
				one, two := newCooler(time.Now), newCooler(time.Now)
				var log1, log2 logged
				stop := run(t, b, log1.logger(), NewCoolDowns(one, "p1"))
				defer run(t, b, log2.logger(), NewCoolDowns(two, "p2"))()
				pass(3 * time.Second)
				b.set(fmt.Errorf("%w: refused", store.ErrUnavailable), silent)
				one.cool(limited, time.Hour)
				pass(time.Minute)
				if one.left(limited) == 0 || two.left(limited) != 0 {
					t.Error("something was learned, or forgotten")
				}
				b.set(nil, false)
				pass(2*Every + patience)
				synctest.Wait()
				if two.left(limited) == 0 {
					t.Error("it is not told after the outage")
				}
				if lines := log1.lines(); len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[1], "level=INFO") {
					t.Errorf("%q", lines)
				}
				b.set(nil, silent)
				begun := time.Now()
				stop()
				if took := time.Since(begun); took > 2*patience {
					t.Errorf("stopping took %s", took)
				}
			})
		})
	}
}

func TestAStopIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		b := &counting{Board: store.NewMemory(time.Now), silent: true}
		e := New(Options{Board: b, Clock: clock.RealClock{}, Log: log.logger(), Sources: []Source{NewCoolDowns(newCooler(time.Now), "p")},
			Failed: func() { t.Error("counted") }})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.Once(ctx)
		if lines := log.lines(); lines[0] != "" {
			t.Errorf("%q", lines)
		}
	})
}

func TestWhatCannotBeReadIsIgnored(t *testing.T) {
	w := newWorld(2)
	w.coolers[0].cool(quota, time.Hour)
	for name, value := range map[string]string{
		limited: "", "a": "1 cooling 1 b", "a/": "1 cooling 1 b", "/x": "1 cooling 1 b", "a/b/c": "1 cooling 1 b", "a/Other": "1 warming 1 b",
		"b/RateLimited": "0 cooling 1 b", "c/RateLimited": "99999999999999999999 cooling 1 b", "d/RateLimited": "{}", "e/x": "1 cooling 1 b c",
		"f/x": "1 cooling 604800001 b", "g/x": "281474976710657 cooling 1 b",
	} {
		if err := w.board.Board.PutNote(t.Context(), "cooldowns", name, []byte(value), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	w.settle(t)
	if got := w.coolers[1].CoolDowns(); len(got) != 1 || got[0].Reason != "QuotaExhausted" {
		t.Errorf("%v", got)
	}
}

func TestALearnedCoolDownIsBounded(t *testing.T) {
	w := newWorld(1)
	if err := w.board.Board.PutNote(t.Context(), "cooldowns", quota, []byte("1 cooling 1000 b"), 1000*time.Hour); err != nil {
		t.Fatal(err)
	}
	w.settle(t)
	if got := w.coolers[0].left(quota); got != account.MaxCoolDown {
		t.Errorf("%s", got)
	}
}
