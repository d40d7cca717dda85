package v1alpha1

// ReplicaTurns are how the turns fared that ended in the minute before a report.
// What clients or quotas are to blame for, and turns that clients left, do not count.
type ReplicaTurns struct {
	// ended turns.
	// +required
	// +kubebuilder:validation:Minimum=0
	Ended int32 `json:"ended"`

	// failed ones among them.
	// +required
	// +kubebuilder:validation:Minimum=0
	Failed int32 `json:"failed"`

	// internal failures among those are the proxy's own fault.
	// +required
	// +kubebuilder:validation:Minimum=0
	Internal int32 `json:"internal"`
}

// A minute's turns say that something is wrong when at least burstTurns have ended
// and at least half of them failed: the smallest number, and the share, at which the
// circuit breakers of the built-in profile act as well.
const burstTurns = 20

// Failing says whether so many turns of a proxy fail that something is wrong.
func (t ReplicaTurns) Failing() bool { return t.Ended >= burstTurns && 2*t.Failed >= t.Ended }

// Plus adds the turns of another replica.
func (t ReplicaTurns) Plus(o ReplicaTurns) ReplicaTurns {
	return ReplicaTurns{Ended: t.Ended + o.Ended, Failed: t.Failed + o.Failed, Internal: t.Internal + o.Internal}
}
