package account

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/causeway-dev/causeway/api/bundle"
)

// with changes a usable account that has the default weight and unknown usage.
func with(name string, change func(*Candidate)) Candidate {
	c := Candidate{Name: name, State: Usable, Weight: 100, LongUsed: -1, Idle: never}
	if change != nil {
		change(&c)
	}
	return c
}

var allStrategies = []string{
	bundle.StrategyCapacityWeighted, bundle.StrategyRoundRobin, bundle.StrategyLeastLoaded, bundle.StrategyFillFirst,
	bundle.StrategySequentialDrain, bundle.StrategyResetDrain,
}

func tiered(strategy string) bool {
	return strategy != bundle.StrategySequentialDrain && strategy != bundle.StrategyResetDrain
}

// TestPickRanks holds for every strategy, whatever the strategy would like.
func TestPickRanks(t *testing.T) {
	a := func(change func(*Candidate)) Candidate { return with("a", change) }
	b := func(change func(*Candidate)) Candidate { return with("b", change) }
	full := func(c *Candidate) { c.Inflight, c.MaxConcurrent = 1, 1 }
	probe := func(c *Candidate) { c.State, c.Reason, c.Probe = QuotaExhausted, ReasonQuotaExhausted, true }
	cases := []struct {
		name   string
		view   []Candidate
		want   Want
		tiered bool // holds only where tiers count
		picked string
	}{
		{"weight 0 comes last", []Candidate{a(func(c *Candidate) { c.Weight = 0 }), b(nil)}, Want{}, false, "b"},
		{"weight 0 spills", []Candidate{a(func(c *Candidate) { c.Weight = 0 }), b(full)}, Want{}, false, "a"},
		{"weight 0 comes after a higher priority number", []Candidate{a(func(c *Candidate) { c.Weight = 0 }), b(func(c *Candidate) { c.Priority = 9 })}, Want{}, false, "b"},
		{"lower priority first", []Candidate{a(func(c *Candidate) { c.Priority = 1 }), b(nil)}, Want{}, false, "b"},
		{"priority spills when none is usable", []Candidate{a(func(c *Candidate) { c.Priority = 1 }), b(func(c *Candidate) { c.State = CoolingDown })}, Want{}, false, "a"},
		{"priority spills when full", []Candidate{a(func(c *Candidate) { c.Priority = 1 }), b(full)}, Want{}, false, "a"},
		{"priority counts more than health", []Candidate{a(func(c *Candidate) { c.Priority = 1 }), b(func(c *Candidate) { c.Tier = Sick })}, Want{}, false, "b"},
		{"healthy before probing", []Candidate{a(func(c *Candidate) { c.Tier = Probing }), b(nil)}, Want{}, true, "b"},
		{"probing before sick", []Candidate{a(func(c *Candidate) { c.Tier = Sick }), b(func(c *Candidate) { c.Tier = Probing })}, Want{}, true, "b"},
		{"a sick one is better than none", []Candidate{a(func(c *Candidate) { c.Tier = Sick }), b(full)}, Want{}, false, "a"},
		{"a trial comes first", []Candidate{a(func(c *Candidate) { c.Tier, c.Trial = Probing, true }), b(nil)}, Want{}, true, "a"},
		{"no trial of a worse priority", []Candidate{a(func(c *Candidate) { c.Tier, c.Trial, c.Priority = Probing, true, 1 }), b(nil)}, Want{}, false, "b"},
		{"no trial with a turn that has failed", []Candidate{a(func(c *Candidate) { c.Tier, c.Trial = Probing, true }), b(nil)},
			Want{Exclude: []string{"x"}}, true, "b"},
		{"B42: a probe comes first", []Candidate{a(probe), b(nil)}, Want{}, false, "a"},
		{"B42: no probe with a turn that has failed", []Candidate{a(probe), b(nil)}, Want{Exclude: []string{"x"}}, false, "b"},
		{"B42: unless there is nothing else", []Candidate{a(probe), b(full)}, Want{Exclude: []string{"x"}}, false, "a"},
		{"B42: not even before weight 0", []Candidate{a(probe), b(func(c *Candidate) { c.Weight = 0 })}, Want{Exclude: []string{"x"}}, false, "b"},
		{"prefer outranks priority, weight and health", []Candidate{a(func(c *Candidate) { c.Priority, c.Weight, c.Tier = 9, 0, Sick }), b(nil)},
			Want{Prefer: "a"}, false, "a"},
		{"only outranks prefer", []Candidate{a(nil), b(nil)}, Want{Only: "b", Prefer: "a"}, false, "b"},
		{"only goes on during an ejection", []Candidate{a(func(c *Candidate) { c.State, c.Reason = CoolingDown, ReasonEjected }), b(nil)}, Want{Only: "a"}, false, "a"},
		{"prefer does not", []Candidate{a(func(c *Candidate) { c.State, c.Reason = CoolingDown, ReasonEjected }), b(nil)}, Want{Prefer: "a"}, false, "b"},
		{"a model that the plan lacks", []Candidate{a(func(c *Candidate) { c.Lacks = []string{"m"} }), b(nil)}, Want{Model: "m"}, false, "b"},
		{"another model than the plan lacks", []Candidate{a(func(c *Candidate) { c.Lacks = []string{"n"} }), b(full)}, Want{Model: "m"}, false, "a"},
		{"a limit per minute leaves no room", []Candidate{a(func(c *Candidate) { c.NotBefore = noon }), b(nil)}, Want{}, false, "b"},
	}
	for _, strategy := range allStrategies {
		for _, c := range cases {
			if c.tiered && !tiered(strategy) {
				continue
			}
			for cursor := range uint64(8) {
				i, ok := Pick(c.view, Strategy{Type: strategy, Salt: 7}, c.want, cursor)
				if !ok || c.view[i].Name != c.picked {
					t.Errorf("%s, %s: picked %v %d, want %s", strategy, c.name, ok, i, c.picked)
					break
				}
			}
		}
	}
}

func TestPickByStrategy(t *testing.T) {
	used := func(p float64) func(*Candidate) { return func(c *Candidate) { c.LongUsed = p } }
	resets := func(d time.Duration) func(*Candidate) { return func(c *Candidate) { c.Reset = noon.Add(d) } }
	pressed := func(p float64) func(*Candidate) {
		return func(c *Candidate) { c.LongUsed, c.Pressed = p, true }
	}
	for _, c := range []struct {
		name, strategy string
		view           []Candidate
		picked         string
	}{
		{"the most used first", bundle.StrategyFillFirst, []Candidate{with("a", used(10)), with("b", used(60)), with("c", used(30))}, "b"},
		{"used before unknown", bundle.StrategyFillFirst, []Candidate{with("a", nil), with("b", used(1))}, "b"},
		{"unknown counts as unused", bundle.StrategyFillFirst, []Candidate{with("a", nil), with("b", used(0))}, "a"},
		{"filling goes on to the end", bundle.StrategyFillFirst, []Candidate{with("a", used(10)), with("b", pressed(97))}, "b"},
		{"filling spares the sick", bundle.StrategyFillFirst, []Candidate{with("a", nil), with("b", func(c *Candidate) { c.LongUsed, c.Tier = 50, Sick })}, "a"},
		{"the manifest's order", bundle.StrategySequentialDrain, []Candidate{with("z", nil), with("a", used(99))}, "z"},
		{"draining bypasses tiers", bundle.StrategySequentialDrain, []Candidate{with("z", func(c *Candidate) { c.Tier = Sick }), with("a", nil)}, "z"},
		{"the soonest reset", bundle.StrategyResetDrain, []Candidate{with("a", resets(48*time.Hour)), with("b", resets(5*time.Hour)), with("c", nil)}, "b"},
		{"no reset known", bundle.StrategyResetDrain, []Candidate{with("a", nil), with("b", nil)}, "a"},
		{"reset drain bypasses tiers", bundle.StrategyResetDrain, []Candidate{with("a", nil), with("b", func(c *Candidate) { c.Reset, c.Tier, c.Pressed = noon, Sick, true })}, "b"},
		{"pressed accounts are spared", bundle.StrategyLeastLoaded, []Candidate{with("a", pressed(95)), with("b", func(c *Candidate) { c.Inflight = 9 })}, "b"},
	} {
		t.Run(c.strategy+": "+c.name, func(t *testing.T) {
			for salt := range uint64(4) {
				if i, ok := Pick(c.view, Strategy{Type: c.strategy, Salt: salt}, Want{}, salt); !ok || c.view[i].Name != c.picked {
					t.Fatalf("picked %s, want %s", c.view[i].Name, c.picked)
				}
			}
		})
	}
}

func TestCapacityWeighted(t *testing.T) {
	for _, c := range []struct {
		name string
		view []Candidate
		want map[string]int // per 1000 turns, within 15
	}{
		{"by weight", []Candidate{with("a", func(c *Candidate) { c.Weight = 300 }), with("b", nil)}, map[string]int{"a": 750, "b": 250}},
		{"by what is left", []Candidate{with("a", func(c *Candidate) { c.LongUsed = 80 }), with("b", func(c *Candidate) { c.LongUsed = 40 })}, map[string]int{"a": 250, "b": 750}},
		{"unknown counts as full", []Candidate{with("a", func(c *Candidate) { c.LongUsed = 50 }), with("b", nil)}, map[string]int{"a": 333, "b": 667}},
		{"weight times what is left", []Candidate{with("a", func(c *Candidate) { c.Weight, c.LongUsed = 400, 75 }), with("b", nil)}, map[string]int{"a": 500, "b": 500}},
		{"all of weight 0 are equal", []Candidate{with("a", func(c *Candidate) { c.Weight = 0 }), with("b", func(c *Candidate) { c.Weight = 0 })}, map[string]int{"a": 500, "b": 500}},
		{"live turns press", []Candidate{with("a", func(c *Candidate) { c.Inflight = 40 }), with("b", nil)}, map[string]int{"a": 333, "b": 667}},
		{"used up is the last choice", []Candidate{with("a", func(c *Candidate) { c.LongUsed = 100 }), with("b", nil)}, map[string]int{"a": 1, "b": 999}},
		{"used up all", []Candidate{with("a", func(c *Candidate) { c.LongUsed = 100 }), with("b", func(c *Candidate) { c.LongUsed = 100 })}, map[string]int{"a": 500, "b": 500}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for salt := range uint64(5) {
				got := map[string]int{}
				for cursor := range uint64(1000) {
					i, ok := Pick(c.view, Strategy{Type: bundle.StrategyCapacityWeighted, Salt: salt}, Want{}, cursor+salt<<40)
					if !ok {
						t.Fatal("none picked")
					}
					got[c.view[i].Name]++
				}
				for name, want := range c.want {
					if d := got[name] - want; d < -15 || d > 15 {
						t.Errorf("salt %d: %v, want %v", salt, got, c.want)
						break
					}
				}
			}
		})
	}
}

// The same cursor and salt draw the same account: what happened can be told.
func TestCapacityWeightedIsDeterministic(t *testing.T) {
	view := []Candidate{with("a", nil), with("b", nil), with("c", nil)}
	draw := func() (picks []int) {
		for cursor := range uint64(20) {
			i, _ := Pick(view, Strategy{Type: bundle.StrategyCapacityWeighted, Salt: 42}, Want{}, cursor)
			picks = append(picks, i)
		}
		return picks
	}
	if diff := cmp.Diff(draw(), draw()); diff != "" {
		t.Error(diff)
	}
}

// TestB81_ColdReplicasSpread: three replicas that know nothing and each other
// neither place their first turns evenly, with every strategy that spreads.
func TestB81_ColdReplicasSpread(t *testing.T) {
	for _, strategy := range []string{bundle.StrategyCapacityWeighted, bundle.StrategyRoundRobin, bundle.StrategyLeastLoaded} {
		herds := 0
		for seed := range uint64(50) {
			firsts, all := map[int]bool{}, make([]int, 6)
			for replica := range uint64(3) {
				view := make([]Candidate, len(all))
				for i := range view {
					view[i] = with(fmt.Sprintf("account-%d", i), func(c *Candidate) { c.MaxConcurrent = 8 })
				}
				s := Strategy{Type: strategy, Salt: mix(seed*3 + replica + 1)}
				for cursor := range uint64(10) {
					i, _ := Pick(view, s, Want{}, cursor)
					if cursor == 0 {
						firsts[i] = true
					}
					view[i].Inflight++
					for j := range view {
						if view[j].Idle != never {
							view[j].Idle++
						}
					}
					view[i].Idle = 1
					all[i]++
				}
			}
			for i, n := range all {
				if n < 2 || n > 9 {
					t.Errorf("%s, seed %d: %d of the first 30 turns on account %d: %v", strategy, seed, n, i, all)
				}
			}
			herds += one(len(firsts) == 1)
		}
		if herds > 5 { // by chance 1 of 36
			t.Errorf("%s: %d of 50 times all replicas begin with the same account", strategy, herds)
		}
	}
}
