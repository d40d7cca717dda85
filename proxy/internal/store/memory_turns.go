package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"
)

// turnName names a turn in the whole store.
type turnName struct {
	key         Key
	fingerprint string
}

// records are the turns and transcripts of a memory, which guards them.
type records struct {
	turns *shelf[turnName, memoryTurn]
	// byKey holds the fingerprints of a key's turns.
	byKey       map[Key]map[string]struct{}
	transcripts *shelf[turnName, *memoryTranscript]
	bytes       int // of all transcripts
}

type memoryTurn struct {
	turn  Turn
	begun time.Time
}

type memoryTranscript struct {
	attempt, bytes int
	events         [][]byte
}

func newRecords() *records {
	r := &records{byKey: map[Key]map[string]struct{}{}}
	r.turns = newShelf(maxRecords, func(name turnName, _ memoryTurn) {
		delete(r.byKey[name.key], name.fingerprint)
		if len(r.byKey[name.key]) == 0 {
			delete(r.byKey, name.key)
		}
	})
	r.transcripts = newShelf(maxRecords, func(_ turnName, t *memoryTranscript) { r.bytes -= t.bytes })
	return r
}

func (m *memory) PutTurn(ctx context.Context, h Held, t Turn, life time.Duration) error {
	return m.write(ctx, h, func(_ *memoryEntry, now time.Time) error {
		return m.records.put(turnName{h.Key, t.Fingerprint}, t, now, life)
	})
}

func (m *memory) DropTurn(ctx context.Context, h Held, fingerprint string, attempt int) error {
	return m.write(ctx, h, func(_ *memoryEntry, now time.Time) error {
		return m.records.drop(turnName{h.Key, fingerprint}, attempt, now)
	})
}

func (m *memory) AppendEvents(
	ctx context.Context, h Held, fingerprint string, attempt, from int, events [][]byte, life time.Duration,
) error {
	return m.write(ctx, h, func(_ *memoryEntry, now time.Time) error {
		return m.records.add(turnName{h.Key, fingerprint}, attempt, from, events, now, life)
	})
}

func (m *memory) Transcript(ctx context.Context, key Key, fingerprint string) ([][]byte, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if t, ok := m.records.transcripts.get(turnName{key, fingerprint}, now); ok {
		return slices.Clone(t.events), nil
	}
	return nil, ErrNotFound
}

// of returns the turns of a key, newest first.
func (r *records) of(key Key, now time.Time) []Turn {
	var turns []Turn
	for fingerprint := range r.byKey[key] {
		if t, ok := r.turns.get(turnName{key, fingerprint}, now); ok {
			t.turn.Age = now.Sub(t.begun)
			turns = append(turns, t.turn)
		}
	}
	slices.SortFunc(turns, newestFirst)
	return turns
}

func newestFirst(a, b Turn) int {
	return cmp.Or(cmp.Compare(a.Age, b.Age), cmp.Compare(a.Fingerprint, b.Fingerprint))
}

func (r *records) put(name turnName, t Turn, now time.Time, life time.Duration) error {
	t.Age = 0
	begun := now
	if last, ok := r.turns.get(name, now); ok {
		switch {
		case last.turn.Attempt > t.Attempt:
			return ErrConflict
		case last.turn.Attempt < t.Attempt: // begins anew
		case last.turn.State.Final() && undelivered(last.turn) != undelivered(t):
			return ErrConflict
		case t.State.stage() < last.turn.State.stage():
			return nil
		default:
			begun = last.begun
			t.Delivered = t.Delivered || last.turn.Delivered
		}
	} else if len(r.byKey[name.key]) >= MaxTurns {
		r.evictOf(name.key)
	}
	r.dropTranscript(name, t.Attempt-1)
	r.turns.put(name, memoryTurn{turn: t, begun: begun}, now, life)
	if r.byKey[name.key] == nil {
		r.byKey[name.key] = map[string]struct{}{}
	}
	r.byKey[name.key][name.fingerprint] = struct{}{}
	return nil
}

func undelivered(t Turn) Turn {
	t.Delivered = false
	return t
}

// evictOf removes the turn of a key that matters least, and its transcript.
func (r *records) evictOf(key Key) {
	var victim turnName
	var least memoryTurn
	for fingerprint := range r.byKey[key] {
		name := turnName{key, fingerprint}
		t, ok := r.turns.get(name, time.Time{})
		if ok && (victim.fingerprint == "" || t.lessThan(least)) {
			victim, least = name, t
		}
	}
	r.turns.remove(victim)
	r.transcripts.remove(victim)
}

// lessThan says which turn matters less: a final one, then the one begun first.
func (t memoryTurn) lessThan(o memoryTurn) bool {
	if t.turn.State.Final() != o.turn.State.Final() {
		return t.turn.State.Final()
	}
	return t.begun.Before(o.begun)
}

func (r *records) drop(name turnName, attempt int, now time.Time) error {
	if t, ok := r.turns.get(name, now); ok {
		if t.turn.Attempt > attempt {
			return ErrConflict
		}
		r.turns.remove(name)
	}
	r.dropTranscript(name, attempt)
	return nil
}

// dropTranscript removes a transcript of an attempt up to this one.
func (r *records) dropTranscript(name turnName, attempt int) {
	if t, ok := r.transcripts.get(name, time.Time{}); ok && t.attempt <= attempt {
		r.transcripts.remove(name)
	}
}

func (r *records) add(name turnName, attempt, from int, events [][]byte, now time.Time, life time.Duration) error {
	if t, ok := r.turns.get(name, now); ok && t.turn.Attempt > attempt {
		return ErrConflict
	}
	t, ok := r.transcripts.get(name, now)
	switch {
	case ok && t.attempt > attempt:
		return ErrConflict
	case !ok || t.attempt < attempt || from == 0 && !begins(t.events, events):
		if from != 0 {
			return ErrConflict
		}
		r.transcripts.remove(name)
		t = &memoryTranscript{attempt: attempt}
	case from > len(t.events):
		return ErrConflict
	}
	news := events[min(len(events), len(t.events)-from):]
	size := 0
	for _, e := range news {
		size += len(e)
	}
	if t.bytes+size > MaxTranscript {
		r.transcripts.remove(name)
		return ErrConflict
	}
	for _, e := range news {
		t.events = append(t.events, bytes.Clone(e))
	}
	t.bytes += size
	r.bytes += size
	r.transcripts.put(name, t, now, life)
	for r.bytes > maxTranscripts {
		r.transcripts.remove(r.transcripts.oldest().key)
	}
	return nil
}

// begins says whether a transcript starts with these events, as far as both go.
func begins(have, events [][]byte) bool {
	for i := range min(len(have), len(events)) {
		if !bytes.Equal(have[i], events[i]) {
			return false
		}
	}
	return true
}
