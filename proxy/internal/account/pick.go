package account

import (
	"math"
	"slices"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// Candidate is one account as the selection sees it at one moment.
type Candidate struct {
	Name string
	// State is what this account is good for now: one of the states.
	State string
	// Reason and Until are those of State.
	Reason string
	Until  time.Time
	// Inflight counts live turns, never idle sockets.
	Inflight int
	// MaxConcurrent 0 = unlimited.
	MaxConcurrent int
	// Full: what this replica may run of it runs, though the account may have room
	// for other replicas.
	Full bool
	// NotBefore is when a limit per minute lets the next turn through; zero = now.
	NotBefore time.Time
	// Models is the allow-list; empty = all. Lacks are models that the upstream
	// does not serve on this account.
	Models, Lacks []string

	// Weight 0 = only if nothing else has room. Priority: lower ones first.
	Weight, Priority int
	// Tier is by errors. Pressed: a quota window is nearly used up.
	Tier    Tier
	Pressed bool
	// Trial: a turn should go there to see whether the account is well again.
	Trial bool
	// Probe: it cools down, and one turn may see whether the limit still holds.
	Probe bool
	// Ejected is the end of an ejection that the pool may or may not afford; zero =
	// none.
	Ejected time.Time
	// LongUsed is the use of the long quota window in percent; below 0 = unknown.
	LongUsed float64
	// Reset is when the window begins anew that ResetDrain goes by; zero = unknown.
	Reset time.Time
	// Idle counts the turns that others got since this account's last; the largest
	// number if it never had one.
	Idle uint64
}

// never is Idle of an account without turns.
const never = math.MaxUint64

// Strategy is how a pool spreads new turns.
type Strategy struct {
	// Type is one of bundle.Strategy*; any other is LeastLoaded.
	Type string
	// SingleAccount is the one account of bundle.StrategySingleAccount.
	SingleAccount string
	// Salt is random in each process: equal choices are made differently by each
	// replica, so that a fleet that starts does not fall upon one account.
	Salt uint64
}

// Pick returns the index of the account that takes the turn now, or false if
// none can. cursor advances by one with each turn taken. In order:
//
//  1. what the turn is bound to (Only), then what it prefers;
//  2. accounts with a weight before those of weight 0, lower priorities before
//     higher ones. Accounts that are merely full are passed over: weight and
//     priority order who is asked, they are no reason to wait;
//  3. an account that is due for a trial, so that it can come back; not for a turn
//     that has failed elsewhere already;
//  4. the best tier of health (see Strategy.tier);
//  5. the strategy.
func Pick(view []Candidate, s Strategy, w Want, cursor uint64) (int, bool) {
	best, preferred := math.MaxInt, -1
	for i := range view {
		if c := &view[i]; c.takes(s, w) && c.hasRoom() {
			best = min(best, s.rank(c, w))
			if w.Prefer == c.Name && w.Prefer != "" {
				preferred = i
			}
		}
	}
	switch {
	case preferred >= 0:
		return preferred, true
	case best == math.MaxInt:
		return 0, false
	}
	among := func(yield func(int) bool) {
		for i := range view {
			if c := &view[i]; c.takes(s, w) && c.hasRoom() && s.rank(c, w) == best && !yield(i) {
				return
			}
		}
	}
	return s.choose(view, among, cursor), true
}

// rank orders accounts by all that comes before the strategy; lower is better.
func (s Strategy) rank(c *Candidate, w Want) int {
	retry, due := len(w.Exclude) > 0, c.Trial && s.tier(c) == Probing
	digits := [...]int{
		one(c.Probe && retry), // better anything than to fail twice
		one(c.Weight == 0),
		c.Priority,
		one(retry || !c.Probe && !due),
		int(s.tier(c)),
	}
	rank := 0
	for _, d := range digits {
		rank = rank<<8 | d&0xff
	}
	return rank
}

// tier is the account's tier for this strategy. Strategies that use accounts up
// one after the other want none spared because it is nearly used up, and those
// that drain keep their order whatever happens.
func (s Strategy) tier(c *Candidate) Tier {
	switch s.Type {
	case bundle.StrategySequentialDrain, bundle.StrategyResetDrain:
		return Healthy
	case bundle.StrategyFillFirst:
		return c.Tier
	default:
		if c.Pressed {
			return Sick
		}
		return c.Tier
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// takes says whether the account may take the turn, now or when it has room.
func (c *Candidate) takes(s Strategy, w Want) bool {
	if !c.allows(w.Model) || slices.Contains(w.Exclude, c.Name) {
		return false
	}
	if w.Only != "" {
		return c.Name == w.Only && c.serves()
	}
	return (c.State == Usable || c.Probe) && s.permits(c.Name)
}

// serves says whether the account goes on with what it has begun. A draining
// account takes nothing new, but ends that; and to wait for the end of an ejection
// helps no turn that nobody else can take.
func (c *Candidate) serves() bool {
	return c.State == Usable || c.State == Draining || c.Reason == ReasonEjected || c.Probe
}

func (c *Candidate) hasRoom() bool {
	return c.NotBefore.IsZero() && !c.Full && (c.MaxConcurrent == 0 || c.Inflight < c.MaxConcurrent)
}

func (c *Candidate) allows(model string) bool {
	return model == "" || (len(c.Models) == 0 || slices.Contains(c.Models, model)) && !slices.Contains(c.Lacks, model)
}

// permits says whether the strategy lets the account take turns at all.
func (s Strategy) permits(name string) bool {
	return s.Type != bundle.StrategySingleAccount || s.SingleAccount == name
}
