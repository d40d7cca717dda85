package store

import (
	"context"
	"time"
)

// Bounds of a board.
const (
	// MaxNotes bounds the notes of one board; the one written longest ago goes.
	MaxNotes = 512
	// MaxNoteName and MaxNoteValue bound one note, in bytes.
	MaxNoteName  = 128
	MaxNoteValue = 4 << 10
)

// Note is a small value that replicas show each other.
type Note struct {
	Name string
	// Value must not be changed by who gets it.
	Value []byte
	// Age is how long ago it was written, Left how long it will still be there,
	// both by the store's clock. Left is above zero.
	Age, Left time.Duration
}

// Board holds notes that replicas show each other: hints whose loss costs
// nothing but time. Nobody owns one. Its methods keep what Store says of all
// methods.
type Board interface {
	// PutNote writes a note and keeps it for life; the last write wins. board and
	// name are text of 1 to MaxNoteName bytes without spaces or braces, value has at
	// most MaxNoteValue bytes: ErrTooLarge if not.
	PutNote(ctx context.Context, board, name string, value []byte, life time.Duration) error
	// Notes returns what is on a board, by name; nothing is not an error. What
	// cannot be read is left out.
	Notes(ctx context.Context, board string) ([]Note, error)
}

// Backend is all that a server, or the memory of one process, does for replicas.
type Backend interface {
	Store
	Board
	Permits
	// SetPassword takes over another password of the server. Where server and proxy
	// learn of it at different times, only connections that are opened in between
	// are refused.
	SetPassword(password string)
}

func fits(board, name string, value []byte) error {
	if !nameFits(board) || !nameFits(name) || len(value) > MaxNoteValue {
		return ErrTooLarge
	}
	return nil
}

func nameFits(text string) bool { return text != "" && len(text) <= MaxNoteName }
