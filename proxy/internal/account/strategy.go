package account

import (
	"iter"
	"math/bits"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
)

// choose is the strategy's choice among accounts that are equal in all that comes
// before it; there is at least one.
func (s Strategy) choose(view []Candidate, among iter.Seq[int], cursor uint64) int {
	if s.Type == bundle.StrategyCapacityWeighted {
		return s.weighted(view, among, cursor)
	}
	better := s.order(view, among)
	best := -1
	for i := range among {
		if best < 0 || better(&view[i], &view[best]) {
			best = i
		}
	}
	return best
}

// order says which of two accounts the strategy prefers. Those that drain or fill
// keep the manifest's order among equals: spread over replicas they would drain
// all accounts at once.
func (s Strategy) order(view []Candidate, among iter.Seq[int]) func(a, b *Candidate) bool {
	switch s.Type {
	case bundle.StrategyRoundRobin:
		return s.longerIdle
	case bundle.StrategyFillFirst:
		return func(a, b *Candidate) bool { return a.LongUsed > max(b.LongUsed, 0) }
	case bundle.StrategySequentialDrain:
		return func(*Candidate, *Candidate) bool { return false }
	case bundle.StrategyResetDrain:
		return func(a, b *Candidate) bool { return sooner(a.Reset, b.Reset) }
	default:
		byShare := allBounded(view, among)
		return func(a, b *Candidate) bool {
			if d := lighter(a, b, byShare); d != 0 {
				return d < 0
			}
			return s.longerIdle(a, b)
		}
	}
}

// longerIdle: whose last turn is longer ago; among those who had none, by a
// number that each replica draws differently.
func (s Strategy) longerIdle(a, b *Candidate) bool {
	if a.Idle != b.Idle {
		return a.Idle > b.Idle
	}
	return s.draw(a.Name) < s.draw(b.Name)
}

// sooner treats the zero time as "not known", which comes last.
func sooner(a, b time.Time) bool { return !a.IsZero() && (b.IsZero() || a.Before(b)) }

// allBounded says whether shares of limits can be compared. With one unlimited
// account among the choices only plain counts give an order without cycles.
func allBounded(view []Candidate, among iter.Seq[int]) bool {
	for i := range among {
		if view[i].MaxConcurrent == 0 {
			return false
		}
	}
	return true
}

// lighter is negative if a has the smaller load.
func lighter(a, b *Candidate, byShare bool) int {
	if byShare {
		return a.Inflight*b.MaxConcurrent - b.Inflight*a.MaxConcurrent
	}
	return a.Inflight - b.Inflight
}

// weighted draws an account by weight and by what is left of its long window. The
// draw is no dice but a sequence that fills the shares as evenly as can be (each
// step is the golden ratio of the circle), from a start that differs per replica.
func (s Strategy) weighted(view []Candidate, among iter.Seq[int], cursor uint64) int {
	var total uint64
	for i := range among {
		total += view[i].share()
	}
	const golden = 0x9e3779b97f4a7c15
	point, _ := bits.Mul64(mix(s.Salt)+cursor*golden, total) // in [0, total)
	last := -1
	for i := range among {
		last = i
		part := view[i].share()
		if point < part {
			break
		}
		point -= part
	}
	return last
}

// inflightPenalty is how many live turns halve the share of an account: the first
// of them costs 2.5 % of it.
const inflightPenalty = 40

// share is the part of new turns that an account should get, never 0. An account
// whose use is not known counts as unused.
func (c *Candidate) share() uint64 {
	left := uint64(max(1, 10*(fullPercent-max(c.LongUsed, 0)))) // per mille
	weight := uint64(max(c.Weight, 1))
	return max(1, weight*left*1000*inflightPenalty/uint64(inflightPenalty+max(c.Inflight, 0)))
}

// draw is a number that differs by name and by replica.
func (s Strategy) draw(name string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	return mix(h ^ s.Salt)
}

// mix spreads the bits of a number over all of it (the finaliser of MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
