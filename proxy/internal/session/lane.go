package session

import (
	"strings"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// maxOrdered bounds the turns of one session that build on each other: a client has
// one, and a second by a retry.
const maxOrdered = 8

// ordered counts the turns that wait for another one or run in its order.
func (a *actor) ordered() int {
	n := 0
	for _, f := range a.flights {
		if f.needs.Ordered && !f.gone {
			n++
		}
	}
	return n
}

// laneFor says whether a turn is better off beside this session: it needs
// another model, or it is independent of the turn that runs here. An
// independent turn is never queued behind an unrelated one.
func (a *actor) laneFor(f *flight) (affinity.Key, bool) {
	modelLane := a.key.Kind == affinity.KindModelParallel // it never forks by model again
	if f.needs.Ordered || f.turn.Keyed || a.key.Kind.Lane() && !modelLane {
		return affinity.Key{}, false
	}
	if model := f.turn.Facts.Model; !modelLane && a.record.Model != "" && model != "" && !strings.EqualFold(model, a.record.Model) {
		return affinity.Lane(affinity.KindModelParallel, a.key, strings.ToLower(model)), true
	}
	for _, other := range a.flights {
		if !other.gone {
			return affinity.Lane(affinity.KindUnanchoredParallel, a.key, f.turn.ID), true
		}
	}
	return affinity.Key{}, false
}
