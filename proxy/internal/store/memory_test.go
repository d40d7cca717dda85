package store

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// fakeClock is a clock that a test moves.
type fakeClock struct{ now time.Time }

func (c *fakeClock) read() time.Time         { return c.now }
func (c *fakeClock) advance(d time.Duration) { c.now = c.now.Add(d) }

func newClock() *fakeClock { return &fakeClock{now: time.Unix(1_800_000_000, 0)} }

func TestMemory(t *testing.T) {
	testContract(t, func(*testing.T) (Backend, func(time.Duration)) {
		clock := newClock()
		return NewMemory(clock.read), clock.advance
	})
}

// filled is a memory with n keys; those that keep says stay held.
func filled(t *testing.T, n int, keep func(int) bool) (*memory, *fakeClock) {
	t.Helper()
	clock := newClock()
	m := NewMemory(clock.read).(*memory)
	for i := range n {
		clock.advance(time.Millisecond)
		h := claimed(t, m, Key(fmt.Sprint("k", i)))
		if !keep(i) {
			must(t, m.Save(t.Context(), h, 1, nil, 24*time.Hour))
			must(t, m.Release(t.Context(), h))
		}
	}
	return m, clock
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *memory) has(i int) bool { return m.entries[Key(fmt.Sprint("k", i))] != nil }

func TestMemoryEvictsTheOldestKeyThatNobodyHolds(t *testing.T) {
	m, _ := filled(t, maxEntries, func(i int) bool { return i < 10 })
	for i := range 5 {
		claimed(t, m, Key(fmt.Sprint("new", i)))
	}
	if len(m.entries) != maxEntries || m.free.Len()+m.held.Len() != maxEntries {
		t.Fatalf("%d entries, %d and %d listed", len(m.entries), m.free.Len(), m.held.Len())
	}
	for i := range 20 {
		if want := i < 10 || i >= 15; m.has(i) != want {
			t.Errorf("key %d is there: %t, want %t", i, m.has(i), want)
		}
	}
}

func TestMemoryEvictsALeaseThatIsOverBeforeOneThatLives(t *testing.T) {
	m, clock := filled(t, maxEntries, func(int) bool { return true })
	m.entries["k0"].leaseUntil = clock.now.Add(time.Hour) // the oldest asked for more than the others
	clock.advance(lease)
	claimed(t, m, "new")
	if !m.has(0) || m.has(1) {
		t.Error("a live lease was evicted before one that is over")
	}
	// When all live, the oldest goes, and its owner is told with its next write.
	m, _ = filled(t, maxEntries, func(int) bool { return true })
	first := Held{Key: "k0", Holder: podA, Epoch: m.entries["k0"].epoch}
	claimed(t, m, "new")
	if err := m.Drain(t.Context(), first); err == nil || len(m.entries) != maxEntries {
		t.Errorf("%v, %d entries", err, len(m.entries))
	}
}

func TestMemoryForgetsWhatHasExpiredWithoutBeingAsked(t *testing.T) {
	m, clock := filled(t, 1_000, func(i int) bool { return i%2 == 0 })
	clock.advance(48 * time.Hour)
	for i := range 600 {
		claimed(t, m, Key(fmt.Sprint("new", i)))
		must(t, m.PutAlias(t.Context(), fmt.Sprint(i), nil, time.Hour))
	}
	if len(m.entries) > 600 {
		t.Errorf("%d entries", len(m.entries))
	}
	clock.advance(2 * time.Hour)
	for i := range 300 {
		must(t, m.PutAlias(t.Context(), fmt.Sprint("new", i), nil, time.Hour))
	}
	if n := len(m.aliases.items); n != 300 || m.aliases.order.Len() != n {
		t.Errorf("%d aliases", n)
	}
}

func TestMemoryBoundsAliasesAndTurns(t *testing.T) {
	clock := newClock()
	m := NewMemory(clock.read).(*memory)
	for i := range maxAliases + 10 {
		must(t, m.PutAlias(t.Context(), fmt.Sprint(i), nil, life))
	}
	if _, err := m.Alias(t.Context(), "9"); err == nil || len(m.aliases.items) != maxAliases {
		t.Errorf("%d aliases", len(m.aliases.items))
	}
	if _, err := m.Alias(t.Context(), "10"); err != nil {
		t.Error(err)
	}
	for k := range maxRecords/MaxTurns + 1 {
		h := claimed(t, m, Key(fmt.Sprint("k", k)))
		for i := range MaxTurns {
			must(t, m.PutTurn(t.Context(), h, Turn{Fingerprint: fmt.Sprint(i), State: TurnCompleted, Attempt: 1}, life))
		}
	}
	if n := len(m.records.turns.items); n != maxRecords || len(m.records.byKey) != maxRecords/MaxTurns {
		t.Errorf("%d turns of %d keys", n, len(m.records.byKey))
	}
	if turns := m.records.of("k0", clock.now); len(turns) != 0 {
		t.Errorf("%d turns of the oldest key", len(turns))
	}
}

func TestScenario97_MemoryBoundsTranscriptsTogether(t *testing.T) {
	clock := newClock()
	m := NewMemory(clock.read).(*memory)
	h := claimed(t, m, key)
	big := raw(strings.Repeat("x", MaxTranscript))
	for i := range 20 {
		name := fmt.Sprint(i)
		must(t, m.AppendEvents(t.Context(), h, name, 1, 0, big, life))
		must(t, m.PutTurn(t.Context(), h, Turn{Fingerprint: name, State: TurnCompleted, Attempt: 1, Complete: true}, life))
	}
	count := func() int {
		sum := 0
		for _, e := range m.records.transcripts.items {
			sum += at[turnName, *memoryTranscript](e).value.bytes
		}
		return sum
	}
	if m.records.bytes != maxTranscripts || count() != maxTranscripts {
		t.Errorf("%d bytes, really %d", m.records.bytes, count())
	}
	if _, err := m.Transcript(t.Context(), key, "3"); err == nil {
		t.Error("an old transcript is kept")
	}
	if _, err := m.Transcript(t.Context(), key, "4"); err != nil {
		t.Error(err)
	}
	if n := len(m.records.of(key, clock.now)); n != 20 {
		t.Errorf("%d records: they go with transcripts", n)
	}
	must(t, m.DropTurn(t.Context(), h, "19", 1))
	clock.advance(life)
	h = claimed(t, m, key)
	must(t, m.AppendEvents(t.Context(), h, "x", 1, 0, raw("y"), life))
	must(t, m.AppendEvents(t.Context(), h, "x", 1, 0, raw("zz"), life))
	for i := range 40 {
		must(t, m.AppendEvents(t.Context(), h, fmt.Sprint("small", i), 1, 0, raw("y"), life))
	}
	if m.records.bytes != 42 || count() != 42 {
		t.Errorf("%d bytes, really %d, want 42", m.records.bytes, count())
	}
}

func BenchmarkMemoryOfANewSession(b *testing.B) {
	m := NewMemory(time.Now)
	ctx, value, i := b.Context(), make([]byte, 1_000), 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		c, err := m.Claim(ctx, Key(fmt.Sprintf("turn_state:%032d", i)), podA, 0, lease)
		if err == nil {
			err = m.Save(ctx, c.Held, 1, value, life)
		}
		must(b, err)
	}
}
