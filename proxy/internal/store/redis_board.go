package store

import (
	"cmp"
	"context"
	"slices"
	"time"
)

func (r *redisStore) board(name string) string { return r.prefix + "{board:" + name + "}:notes" }

func (r *redisStore) PutNote(ctx context.Context, board, name string, value []byte, life time.Duration) error {
	if err := fits(board, name, value); err != nil {
		return err
	}
	_, err := r.run(ctx, boardKey(board), scriptPutNote, []string{r.board(board)}, name, value, milliseconds(life), MaxNotes)
	return err
}

func (r *redisStore) Notes(ctx context.Context, board string) ([]Note, error) {
	a, err := r.run(ctx, boardKey(board), scriptNotes, []string{r.board(board)})
	if err != nil {
		return nil, err
	}
	notes := a.notes()
	if a.bad {
		return nil, corrupt(boardKey(board))
	}
	return notes, nil
}

// boardKey is a board's name as errors show it.
func boardKey(board string) Key { return Key("board:" + board) }

// notes reads what notes.lua returns; a note that no version of the proxy can
// have written is left out.
func (a *answer) notes() []Note {
	list := a.list()
	var notes []Note
	for len(list.rest) > 0 {
		one := list.list()
		n := Note{Name: one.text(), Value: []byte(one.text()), Age: one.duration(), Left: one.duration()}
		if !one.bad && n.Left > 0 && fits("board", n.Name, n.Value) == nil {
			notes = append(notes, n)
		}
	}
	slices.SortFunc(notes, func(a, b Note) int { return cmp.Compare(a.Name, b.Name) })
	return notes
}
