package account

import (
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
)

func usable(name string, inflight, limit int, models ...string) Candidate {
	return Candidate{Name: name, State: Usable, Inflight: inflight, MaxConcurrent: limit, Models: models}
}

func idle(name string, turns uint64) Candidate {
	return Candidate{Name: name, State: Usable, Idle: turns}
}

func inState(name, state string) Candidate { return Candidate{Name: name, State: state} }

func TestPick(t *testing.T) {
	roundRobin := Strategy{Type: bundle.StrategyRoundRobin}
	leastLoaded := Strategy{Type: bundle.StrategyLeastLoaded}
	single := Strategy{Type: bundle.StrategySingleAccount, SingleAccount: "b"}
	cases := []struct {
		name     string
		view     []Candidate
		strategy Strategy
		want     Want
		cursor   uint64
		picked   string // empty = none
	}{
		{"no accounts", nil, leastLoaded, Want{}, 7, ""},
		{"round robin takes whose turn is longest ago", []Candidate{idle("a", 1), idle("b", 3), idle("c", 2)}, roundRobin, Want{}, 9, "b"},
		{"round robin takes who had none", []Candidate{idle("a", 1), idle("b", never), idle("c", 2)}, roundRobin, Want{}, 9, "b"},
		{"round robin passes over the full", []Candidate{usable("a", 0, 0), usable("b", 2, 2)}, roundRobin, Want{}, 1, "a"},
		{"round robin passes over the unusable", []Candidate{inState("a", CoolingDown), usable("b", 0, 0)}, roundRobin, Want{}, 0, "b"},
		{"least loaded by count", []Candidate{usable("a", 3, 0), usable("b", 2, 0)}, leastLoaded, Want{}, 0, "b"},
		{"least loaded by share", []Candidate{usable("a", 2, 2*10), usable("b", 1, 2)}, leastLoaded, Want{}, 1, "a"},
		{"by count if one is unlimited", []Candidate{usable("a", 2, 20), usable("b", 1, 2), usable("c", 5, 0)}, leastLoaded, Want{}, 0, "b"},
		{"tie goes to whose turn is longest ago", []Candidate{idle("a", 1), idle("b", 1), idle("c", 2)}, leastLoaded, Want{}, 5, "c"},
		{"all full", []Candidate{usable("a", 1, 1), usable("b", 3, 2)}, leastLoaded, Want{}, 0, ""},
		{"single account", []Candidate{usable("a", 0, 0), usable("b", 5, 0)}, single, Want{}, 0, "b"},
		{"single account is full", []Candidate{usable("a", 0, 0), usable("b", 5, 5)}, single, Want{}, 0, ""},
		{"a strategy of later spreads by load", []Candidate{usable("a", 1, 0), usable("b", 0, 0)}, Strategy{Type: "Later"}, Want{}, 0, "b"},
		{"prefer", []Candidate{usable("a", 0, 0), usable("b", 5, 6)}, leastLoaded, Want{Prefer: "b"}, 0, "b"},
		{"prefer a full one", []Candidate{usable("a", 0, 0), usable("b", 6, 6)}, leastLoaded, Want{Prefer: "b"}, 0, "a"},
		{"prefer a draining one", []Candidate{usable("a", 0, 0), inState("b", Draining)}, leastLoaded, Want{Prefer: "b"}, 0, "a"},
		{"prefer one that has failed", []Candidate{usable("a", 0, 0), usable("b", 0, 0)}, leastLoaded, Want{Prefer: "b", Exclude: []string{"b"}}, 0, "a"},
		{"only", []Candidate{usable("a", 0, 0), usable("b", 5, 6)}, leastLoaded, Want{Only: "b"}, 0, "b"},
		{"only a full one", []Candidate{usable("a", 0, 0), usable("b", 6, 6)}, leastLoaded, Want{Only: "b"}, 0, ""},
		{"only a draining one", []Candidate{usable("a", 0, 0), inState("b", Draining)}, leastLoaded, Want{Only: "b"}, 0, "b"},
		{"only a disabled one", []Candidate{usable("a", 0, 0), inState("b", Disabled)}, leastLoaded, Want{Only: "b"}, 0, ""},
		{"only, beside a single account", []Candidate{usable("a", 0, 0), usable("b", 0, 0)}, single, Want{Only: "a"}, 0, "a"},
		{"model", []Candidate{usable("a", 0, 0, "m1"), usable("b", 5, 0, "m2")}, leastLoaded, Want{Model: "m2"}, 0, "b"},
		{"no model asked", []Candidate{usable("a", 0, 0, "m1"), usable("b", 5, 0)}, leastLoaded, Want{}, 0, "a"},
		{"all tried", []Candidate{usable("a", 0, 0)}, leastLoaded, Want{Exclude: []string{"a"}}, 0, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			i, ok := Pick(c.view, c.strategy, c.want, c.cursor)
			picked := ""
			if ok {
				picked = c.view[i].Name
			}
			if picked != c.picked {
				t.Errorf("picked %q, want %q", picked, c.picked)
			}
		})
	}
}

func TestPickTakesNothingNewOnUnusableAccounts(t *testing.T) {
	for _, state := range AllStates() {
		for _, strategy := range []string{bundle.StrategyRoundRobin, bundle.StrategyLeastLoaded} {
			_, ok := Pick([]Candidate{inState("a", state)}, Strategy{Type: strategy}, Want{}, 0)
			if ok != (state == Usable) {
				t.Errorf("%s with an account that is %s: picked = %v", strategy, state, ok)
			}
		}
	}
}
