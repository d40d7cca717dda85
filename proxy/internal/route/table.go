// Package route decides which replica serves a session: rendezvous hashing over
// the ready pods of the slot, which the EndpointSlices of its Service list.
//
// Ownership by hashing is an optimisation. Replicas may see different lists for
// a moment; what a turn must not break is guarded elsewhere.
package route

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// Member is one ready replica.
type Member struct {
	// Pod names the replica; the hash is taken over it, so that a replica keeps its
	// keys when its address changes.
	Pod string
	// Address of its peer port, host:port.
	Address string
}

// Table is who serves which key. It does not change; the nil Table has no
// members.
type Table struct {
	self    string
	members []Member // sorted by pod, each pod once
}

// New makes a table as the replica named self sees it. Of several members of
// one name the first in the order of addresses counts.
func New(self string, members []Member) *Table {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Address, b.Address))
	})
	sorted = slices.CompactFunc(sorted, func(a, b Member) bool { return a.Pod == b.Pod })
	return &Table{self: self, members: sorted}
}

// Len is the number of members.
func (t *Table) Len() int {
	if t == nil {
		return 0
	}
	return len(t.members)
}

// Stays says whether this replica is among those that serve. One that is not while
// others are is about to end, or not able to serve; while nobody is known it is not
// known either.
func (t *Table) Stays() bool { return t.Len() == 0 || t.contains(t.self) }

// Rank is the place of this replica among all, from 0, and how many they are. One
// that is not in its own table counts itself as the last.
func (t *Table) Rank() (rank, replicas int) {
	if t == nil {
		return 0, 1
	}
	if !t.contains(t.self) {
		return len(t.members), len(t.members) + 1
	}
	rank, _ = slices.BinarySearchFunc(t.members, t.self, func(m Member, pod string) int { return cmp.Compare(m.Pod, pod) })
	return rank, len(t.members)
}

// Owner is the member that should hold the session of a key, and whether that
// is this replica. A replica that is not in its own table, because it is not
// ready yet or no longer, keeps what it gets.
//
// Members of which skip says true are passed over, so that all who cannot reach
// one turn to the same next one; nil skips none. This replica is never skipped.
func (t *Table) Owner(key affinity.Digest, skip func(Member) bool) (owner Member, self bool) {
	if t == nil || !t.contains(t.self) {
		return Member{}, true
	}
	var best [sha256.Size]byte
	for _, m := range t.members {
		if skip != nil && m.Pod != t.self && skip(m) {
			continue
		}
		if w := weight(key, m.Pod); owner.Pod == "" || bytes.Compare(w[:], best[:]) > 0 {
			owner, best = m, w
		}
	}
	return owner, owner.Pod == t.self
}

// Pick is Owner among replicas of which this one is none; false = none is left.
func (t *Table) Pick(key affinity.Digest, skip func(Member) bool) (owner Member, ok bool) {
	if t == nil {
		return Member{}, false
	}
	var best [sha256.Size]byte
	for _, m := range t.members {
		if skip(m) {
			continue
		}
		if w := weight(key, m.Pod); owner.Pod == "" || bytes.Compare(w[:], best[:]) > 0 {
			owner, best = m, w
		}
	}
	return owner, owner.Pod != ""
}

// Pod names the member at an address; empty = none is there.
func (t *Table) Pod(address string) string {
	if t == nil {
		return ""
	}
	for _, m := range t.members {
		if m.Address == address {
			return m.Pod
		}
	}
	return ""
}

func (t *Table) contains(pod string) bool {
	_, found := slices.BinarySearchFunc(t.members, pod, func(m Member, pod string) int { return cmp.Compare(m.Pod, pod) })
	return found
}

// weight is how much a pod is wanted for a key. All versions of the proxy must
// agree on it: replicas of two versions run side by side during an upgrade.
func weight(key affinity.Digest, pod string) [sha256.Size]byte {
	// The name of a pod has at most 253 bytes; longer ones only cost an allocation.
	var space [sha256.Size + 253]byte
	return sha256.Sum256(append(append(space[:0], key[:]...), pod...))
}
