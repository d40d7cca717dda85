package activation

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// fleet starts two pods of each slot and waits until blue serves.
func (w *world) fleet() (blue, green []*pod) {
	w.t.Helper()
	blue = []*pod{w.start("blue", 0), w.start("blue", 1)}
	green = []*pod{w.start("green", 0), w.start("green", 1)}
	pass(time.Second)
	expect(w.t, "at first", Serve, blue...)
	expect(w.t, "at first", Relay, green...)
	return blue, green
}

func TestT34_AHandOverTakesASecond(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, green := w.fleet()
		w.ask("green")
		synctest.Wait()
		expect(t, "asked to go", Hold, blue...)
		expect(t, "not yet free", Hold, green...)
		pass(time.Second)
		expect(t, "afterwards", Relay, blue...)
		if epoch := expect(t, "afterwards", Serve, green...); epoch != 2 {
			t.Errorf("epoch %d, want 2", epoch)
		}
		w.ask("blue") // T55: and back
		pass(time.Second)
		expect(t, "back", Relay, green...)
		if epoch := expect(t, "back", Serve, blue...); epoch != 3 {
			t.Errorf("epoch %d, want 3", epoch)
		}
	})
}

// The captain dies in the moment in which it was asked to go, before or after it
// could release.
func TestT39_TheCaptainDiesWhileItReleases(t *testing.T) {
	for name, before := range map[string]time.Duration{"before": settleTime / 2, "after": settleTime + time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				blue, green := w.fleet()
				chief := w.captain(blue)
				w.ask("green")
				pass(before)
				chief.end()
				pass(terms.Lease + terms.Retry + time.Second)
				expect(t, "afterwards", Serve, green...)
				for _, p := range blue {
					if p != chief {
						expect(t, "afterwards", Relay, p)
					}
				}
			})
		})
	}
}

func (w *world) captain(pods []*pod) *pod {
	w.t.Helper()
	for _, p := range pods {
		if w.seen().Holder == p.o.Me {
			return p
		}
	}
	w.t.Fatalf("%+v is none of them", w.seen().Holder)
	return nil
}

func TestACaptainThatEndsTakesNothingFromItsSlot(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, green := w.fleet()
		chief := w.captain(blue)
		chief.leave()
		synctest.Wait()
		expect(t, "while it goes", Serve, blue...)
		pass(time.Second)
		if next := w.captain(blue); next == chief {
			t.Error("who goes is captain again")
		}
		if epoch := expect(t, "afterwards", Serve, blue...); epoch != 2 {
			t.Errorf("epoch %d, want 2", epoch)
		}
		expect(t, "all the time", Relay, green...)
	})
}

// A container that is restarted has another nonce: it waits like anybody else.
func TestT49_ARestartedContainerWaits(t *testing.T) {
	inWorld(t, func(w *world) {
		alone := w.start("blue", 0)
		pass(time.Second)
		expect(t, "at first", Serve, alone)
		alone.end()
		again := w.start("blue", 0)
		pass(terms.Lease - time.Second)
		if got := w.seen(); got.Epoch != 1 {
			t.Fatalf("it took the Lease of a captain that may be alive: %+v", got)
		}
		expect(t, "its slot has authority all the same", Serve, again)
		pass(3 * time.Second)
		if got := w.seen(); got.Epoch != 2 || got.Holder != again.o.Me {
			t.Fatalf("%+v", got)
		}
	})
}

// SIGSTOP of the captain: green takes over, and blue finds out by itself, without a
// word from anybody.
func TestT44_ACaptainThatStoodStill(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, green := w.fleet()
		chief := w.captain(blue)
		chief.freeze()
		pass(time.Second)
		w.ask("green")
		pass(terms.Lease + terms.Retry)
		expect(t, "green", Serve, green...)
		pass(20 * time.Second)
		chief.thaw()
		if v := chief.Verdict(); v.Mode == Serve {
			t.Fatal("it admits turns in the moment in which it wakes")
		}
		pass(2 * time.Second)
		expect(t, "awake", Relay, chief)
	})
}

func TestT50_TheFirstTurnAfterASuspendIsHeldWithoutAskingAnybody(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, _ := w.fleet()
		w.outage(true)
		blue[0].mu.Lock()
		blue[0].suspend = 5 * time.Minute
		blue[0].mu.Unlock()
		if v := blue[0].Verdict(); v.Mode != Hold {
			t.Fatalf("%v, before any look", v.Mode)
		}
		pass(10 * time.Second)
		expect(t, "it cannot look", Hold, blue[0])
		w.outage(false)
		pass(5 * time.Second)
		expect(t, "it has looked", Serve, blue[0])
	})
}

func TestT47_WithoutTheAPIServerEverythingGoesOn(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, green := w.fleet()
		w.outage(true)
		for range 60 {
			pass(10 * time.Second)
			expect(t, "during the outage", Serve, blue...)
			expect(t, "during the outage", Relay, green...)
		}
		late := w.start("blue", 7) // a container that is restarted meanwhile
		pass(time.Second)
		expect(t, "it cannot know, and nobody can have got authority", Serve, late)
		late.Heard(1) // the store refuses what it claims without an epoch, and shows the one there is
		pass(time.Second)
		if epoch := expect(t, "the store has shown the epoch", Serve, late); epoch != 1 || late.Epoch() != 1 {
			t.Errorf("it claims with epoch %d and %d, which the store refuses", epoch, late.Epoch())
		}
		w.outage(false)
		pass(10 * time.Second)
		expect(t, "afterwards", Serve, append(blue, late)...)
		expect(t, "afterwards", Relay, green...)
		if got := w.seen(); got.Epoch != 1 {
			t.Errorf("a captain that could not renew was robbed when the API server came back: %+v", got)
		}
	})
}

// Two believe that they lead: the one that is cut off claims nothing that the other
// has seen, and drops what it believes with the first word of a higher epoch.
func TestB90_APodThatAloneIsCutOffHearsItFromOthers(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, green := w.fleet()
		chief := w.captain(blue)
		chief.partition(true)
		w.ask("green")
		pass(terms.Lease + terms.Retry + time.Second)
		epoch := expect(t, "green", Serve, green...)
		expect(t, "it cannot know", Serve, chief)
		chief.Heard(epoch)
		expect(t, "the store or a peer has told it", Hold, chief)
		chief.partition(false)
		pass(2 * time.Second)
		expect(t, "back", Relay, chief)
	})
}

func TestT48_ALeaseThatIsEditedByHand(t *testing.T) {
	for name, tc := range map[string]func(w *world){
		"deleted, and made anew": func(w *world) {
			w.remove()
			pass(2 * time.Second)
			for _, p := range w.pods {
				if v := p.Verdict(); p.slot == "blue" && v.Mode != Serve {
					w.t.Errorf("%s has %v while there is no Lease: nobody else can have authority", p.name, v.Mode)
				}
			}
			w.remake("blue", 1)
		},
		"deleted, and made anew without its epoch": func(w *world) { w.remove(); w.remake("blue", 0) },
		"its epoch lowered":                        func(w *world) { w.edit(func(s *Sight) { s.Epoch = 0 }) },
		"its holder taken away":                    func(w *world) { w.edit(func(s *Sight) { s.Holder = bundle.Holder{} }) },
		"given to a stranger":                      func(w *world) { w.edit(func(s *Sight) { s.Holder, s.Foreign = bundle.Holder{}, true }) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				blue, green := w.fleet()
				tc(w)
				pass(terms.Lease + 2*terms.Retry)
				if epoch := expect(t, "afterwards", Serve, blue...); epoch != 2 {
					t.Errorf("epoch %d, want 2", epoch)
				}
				expect(t, "afterwards", Relay, green...)
			})
		})
	}
}

// The store remembers a higher epoch than the Lease, which somebody made anew: whoever
// hears of it first puts it right.
func TestT48_AStoreThatRemembersMore(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, green := w.fleet()
		for _, p := range blue {
			if w.seen().Holder != p.o.Me {
				p.Heard(50)
			}
		}
		pass(2 * time.Second)
		if epoch := expect(t, "afterwards", Serve, blue...); epoch != 51 {
			t.Errorf("epoch %d, want 51", epoch)
		}
		expect(t, "afterwards", Relay, green...)
	})
}

// Calls that fail now and then do not keep a captain alive that is dead.
func TestADeadCaptainIsNotSavedByFailingCalls(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, green := w.fleet()
		w.ask("green")
		w.captain(blue).end()
		for range 12 {
			w.outage(true)
			pass(2 * time.Second)
			w.outage(false)
			pass(8 * time.Second)
		}
		expect(t, "two minutes later", Serve, green...)
	})
}

// A pod that cannot read takes nothing, even if it can write by then.
func TestNobodyTakesWithoutALook(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.start("blue", 0)
		pass(time.Second)
		p.end()
		p.known.Sight, p.looked = Sight{Holder: captain("green", "n"), Next: "blue", Epoch: 1, Version: w.seen().Version}, -time.Hour
		p.partition(true)
		if wait := p.step(w.t.Context()); wait <= 0 || p.o.Now() > time.Hour {
			t.Errorf("waits %v", wait)
		}
		p.partition(false)
		if got := w.seen(); got.Epoch != 1 {
			t.Errorf("it took the Lease: %+v", got)
		}
	})
}

func TestWithoutALeaseForLongEverybodyServes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.remove()
		p := w.start("blue", 0)
		pass(time.Second)
		expect(t, "the operator may be about to make it", Hold, p)
		pass(terms.Lease + 2*time.Second)
		expect(t, "nobody makes it", Serve, p)
		w.remake("blue", 0)
		pass(10 * time.Second)
		if epoch := expect(t, "it is there", Serve, p); epoch != 1 {
			t.Errorf("epoch %d", epoch)
		}
	})
}

func TestWhoWaitsIsWoken(t *testing.T) {
	inWorld(t, func(w *world) {
		_, green := w.fleet()
		changed := green[0].Changed()
		pass(3 * terms.Retry)
		select {
		case <-changed:
			t.Fatal("a renewal wakes who waits")
		default:
		}
		w.ask("green")
		pass(time.Second)
		select {
		case <-changed:
		default:
			t.Fatal("a hand-over does not")
		}
	})
}

// Nobody asks for anything for an hour, as when the operator is down: captains come
// and go, and the slot serves all the time.
func TestB89_WithoutAnOperatorNothingEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		blue, green := w.fleet()
		for n := range 12 {
			old := blue[n%2]
			old.leave()
			pass(2 * time.Second)
			old.end()
			blue[n%2] = w.start("blue", 10+n)
			pass(5 * time.Minute)
			expect(t, "all the time", Serve, blue...)
			expect(t, "all the time", Relay, green...)
		}
	})
}

func TestAWatchThatIsBehindIsNoNews(t *testing.T) {
	inWorld(t, func(w *world) {
		w.remove()
		p := w.start("blue", 0)
		p.end() // so that the keeper is ours
		p.learn(Sight{Holder: captain("green", "n"), Epoch: 7, Version: "10"})
		for _, old := range []string{"9", "10", "not a version"} {
			p.overhear(Sight{Holder: captain("blue", "n"), Epoch: 6, Version: old})
		}
		expect(t, "an old word", Relay, p)
		p.overhear(Sight{Holder: captain("blue", "n"), Epoch: 8, Version: "11"})
		expect(t, "news", Serve, p)
	})
}
