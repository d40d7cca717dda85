// Package report keeps the BridgeReplica of this pod up to date: what
// configuration it serves, how many sessions it has, how its accounts are.
//
// What is written and when (statusOf, next) is pure. Traffic never waits for a
// report, and nothing in a report identifies a client or a key.
package report

import (
	"time"

	"github.com/causeway-dev/causeway/api/v1alpha1"
)

// Snapshot is the state of the proxy at one moment.
type Snapshot struct {
	Config Config
	// Version and Revision identify the binary.
	Version, Revision string
	// Role is one of v1alpha1.Role*; empty = RoleServing.
	Role     v1alpha1.ReplicaRole
	Epoch    int64
	Sessions Sessions
	// Turns are those that ended in the last minute.
	Turns    Turns
	Accounts []Account
	// Routes and Lanes are all there are, in any order.
	Routes []Route
	Lanes  []Lane
	// MinInterval between two reports; 0 = DefaultMinInterval.
	MinInterval time.Duration
	// NumbersOmitted leaves all but configuration and role out (bundle's
	// Reporting.Mode Metrics): they come from metrics then.
	NumbersOmitted bool
}

// Config is the configuration that the proxy saw last.
type Config struct {
	// Generation, Hash and CredentialsHash are those of the configuration the
	// answer is about.
	Generation      int64
	Hash            string
	CredentialsHash string
	// Rejected is the reason why it is not served, one CamelCase word; empty = it is.
	Rejected string
}

// Caps of the schema.
const (
	maxHash   = 64
	maxWord   = 64
	maxAgeSec = 86400
)

// ageBuckets, in seconds: a report must not change only because time passes.
var ageBuckets = [...]int32{60, 600, 3600, 21600, maxAgeSec}

// statusOf is the snapshot as the API takes it, within the caps of the schema.
// Sequence and time are set by the writer.
func statusOf(s Snapshot) v1alpha1.BridgeReplicaStatus {
	out := v1alpha1.BridgeReplicaStatus{
		ObservedConfig: &v1alpha1.ObservedConfig{
			Generation: max(s.Config.Generation, 0), Hash: cut(s.Config.Hash, maxHash),
			CredentialsHash: cut(s.Config.CredentialsHash, maxHash), State: v1alpha1.ConfigApplied,
		},
		Build: &v1alpha1.Build{Version: cut(s.Version, maxWord), Revision: cut(s.Revision, maxWord)},
		Role:  s.Role, Epoch: max(s.Epoch, 0),
	}
	if s.Config.Rejected != "" {
		out.ObservedConfig.State = v1alpha1.ConfigRejected
		out.ObservedConfig.Reason = cut(s.Config.Rejected, maxWord)
	}
	if out.Role == "" {
		out.Role = v1alpha1.RoleServing
	}
	if s.NumbersOmitted {
		return out
	}
	setSessions(&out, s.Sessions, routeCircuits(s.Routes))
	out.Turns = turnsOf(s.Turns)
	setAccounts(&out, s.Accounts)
	out.Routes, out.RoutesOmitted = routesOf(s.Routes)
	out.Lanes = lanesOf(s.Lanes)
	return out
}

func count(n int) int32 { return int32(min(max(n, 0), 1<<31-1)) }

func bucket(age time.Duration) *int32 {
	if age <= 0 {
		return nil
	}
	for _, b := range ageBuckets {
		if age <= time.Duration(b)*time.Second {
			return &b
		}
	}
	last := ageBuckets[len(ageBuckets)-1]
	return &last
}

// cut shortens text, all of which is ASCII, to the schema's cap.
func cut(text string, limit int) string { return text[:min(len(text), limit)] }
