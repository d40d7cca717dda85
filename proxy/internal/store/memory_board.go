package store

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"
)

// maxBoards bounds the boards of a Memory; a proxy has a handful.
const maxBoards = 64

// board is one board of a Memory.
type board = shelf[string, memoryNote]

type memoryNote struct {
	value   []byte
	written time.Time
}

func (m *memory) PutNote(ctx context.Context, name, note string, value []byte, life time.Duration) error {
	if err := fits(name, note, value); err != nil {
		return err
	}
	now, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	b, ok := m.boards.get(name, now)
	if !ok {
		b = newShelf[string, memoryNote](MaxNotes, nil)
	}
	if len(b.items) >= MaxNotes {
		b.all(now) // what is over goes before what lives
	}
	b.put(note, memoryNote{bytes.Clone(value), now}, now, life)
	left := life // of the note that lives longest
	for _, n := range b.all(now) {
		left = max(left, n.until.Sub(now))
	}
	m.boards.put(name, b, now, left)
	return nil
}

func (m *memory) Notes(ctx context.Context, name string) ([]Note, error) {
	now, err := m.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	b, ok := m.boards.get(name, now)
	if !ok {
		return nil, nil
	}
	var notes []Note
	for _, n := range b.all(now) {
		notes = append(notes, Note{Name: n.key, Value: n.value.value, Age: now.Sub(n.value.written), Left: n.until.Sub(now)})
	}
	slices.SortFunc(notes, func(a, b Note) int { return cmp.Compare(a.Name, b.Name) })
	return notes, nil
}
