package route

import (
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

func key(i int) affinity.Digest {
	return affinity.TurnStateKey("client", fmt.Sprint("token-", i)).Digest
}

func pods(names ...string) []Member {
	list := make([]Member, 0, len(names))
	for _, n := range names {
		list = append(list, Member{Pod: n, Address: n + ":8081"})
	}
	return list
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("chat-blue-%d", i)
	}
	return names
}

// Replicas of different versions run side by side: what this test pins never changes.
func TestWeightsAreForever(t *testing.T) {
	for i := range 3 {
		k := affinity.Digest{0: byte(i), 31: 0xff}
		w := weight(k, "chat-blue-5d4f8c7b9-x2x7q")
		want := []string{"2083e46b", "c1c07dea", "6b12de98"}[i]
		if got := hex.EncodeToString(w[:4]); got != want {
			t.Errorf("key %d has weight %s, want %s", i, got, want)
		}
	}
}

func TestOwner(t *testing.T) {
	table := New("b", pods("c", "a", "b"))
	for i := range 100 {
		owner, self := table.Owner(key(i), nil)
		if self != (owner.Pod == "b") || owner.Address != owner.Pod+":8081" {
			t.Fatalf("%+v, self %v", owner, self)
		}
		if other, _ := New("c", pods("a", "b", "c")).Owner(key(i), nil); other != owner {
			t.Fatalf("b says %v, c says %v", owner, other)
		}
	}
	for name, alone := range map[string]*Table{"nil": nil, "empty": New("b", nil), "self is not in it": New("d", pods("a", "b", "c"))} {
		for i := range 100 {
			if owner, self := alone.Owner(key(i), nil); !self || owner != (Member{}) {
				t.Fatalf("%s: %v, self %v", name, owner, self)
			}
		}
	}
}

func TestTableTakesEachPodOnce(t *testing.T) {
	table := New("a", []Member{{"b", "10.0.0.3:1"}, {"a", "10.0.0.2:1"}, {"b", "10.0.0.1:1"}})
	if table.Len() != 2 || table.Pod("10.0.0.1:1") != "b" || table.Pod("10.0.0.3:1") != "" || (*Table)(nil).Pod("") != "" {
		t.Errorf("%+v", table)
	}
}

// A skipped member's keys go where they would go without it, and no other key moves.
func TestSkippedMembersKeysHaveOneNextOwner(t *testing.T) {
	all, without := New("a", pods("a", "b", "c", "d")), New("a", pods("a", "b", "d"))
	skip := func(m Member) bool { return m.Pod == "c" }
	for i := range 1000 {
		got, _ := all.Owner(key(i), skip)
		want, _ := without.Owner(key(i), nil)
		if got != want {
			t.Fatalf("key %d: %v, want %v", i, got, want)
		}
	}
	if owner, self := New("a", pods("a", "b")).Owner(key(1), func(Member) bool { return true }); !self || owner.Pod != "a" {
		t.Errorf("a replica skipped itself: %v", owner)
	}
}

func TestKeysAreSpreadEvenly(t *testing.T) {
	const keys, members = 30_000, 10
	table := New("chat-blue-0", pods(numbered(members)...))
	counts := map[string]int{}
	for i := range keys {
		owner, _ := table.Owner(key(i), nil)
		counts[owner.Pod]++
	}
	for pod, n := range counts {
		if n < keys/members*9/10 || n > keys/members*11/10 {
			t.Errorf("%s has %d of %d keys", pod, n, keys)
		}
	}
	if len(counts) != members {
		t.Errorf("%d members have keys", len(counts))
	}
}

// When a replica comes or goes, its keys move and no others.
func TestOnlyTheKeysOfTheChangedMemberMove(t *testing.T) {
	names := numbered(7)
	seven, six := New(names[0], pods(names...)), New(names[0], pods(names[:6]...))
	moved := 0
	for i := range 10_000 {
		with, _ := seven.Owner(key(i), nil)
		without, _ := six.Owner(key(i), nil)
		if with != without {
			moved++
			if with.Pod != names[6] {
				t.Fatalf("key %d moved between %s and %s", i, with.Pod, without.Pod)
			}
		}
	}
	if moved < 1000 || moved > 2000 {
		t.Errorf("%d of 10000 keys moved, want about a seventh", moved)
	}
}

func BenchmarkOwner(b *testing.B) {
	table, k := New("chat-blue-0", pods(numbered(3)...)), key(1)
	b.ReportAllocs()
	for b.Loop() {
		table.Owner(k, nil)
	}
}
