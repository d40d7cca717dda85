package report

import "github.com/causeway-dev/causeway/api/v1alpha1"

// Turns are how turns fared in the last minute: how many ended, how many of them
// failed, and how many of those by the proxy's own fault.
type Turns struct{ Ended, Failed, Internal int }

func turnsOf(t Turns) *v1alpha1.ReplicaTurns {
	if t == (Turns{}) {
		return nil
	}
	return &v1alpha1.ReplicaTurns{Ended: count(t.Ended), Failed: count(t.Failed), Internal: count(t.Internal)}
}

// failing says whether so many turns fail that the operator has to know soon.
func failing(s v1alpha1.BridgeReplicaStatus) bool { return s.Turns != nil && s.Turns.Failing() }

// turnsMoved says whether the turns are worth a write: while they fail, and those of
// a slot without authority, which tell the operator whether it fared better. Turns of
// a proxy that serves well change all the time, and nobody asks.
func turnsMoved(a, b v1alpha1.BridgeReplicaStatus) bool {
	if failing(b) {
		return true // as long as it does
	}
	return b.Role != v1alpha1.RoleServing && !same(a.Turns, b.Turns)
}
