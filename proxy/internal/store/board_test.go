package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func (s subject) note(board, name, value string, life time.Duration) {
	s.t.Helper()
	s.ok(s.PutNote(s.t.Context(), board, name, []byte(value), life))
}

// notes are what is on a board; ages and lives have to be about what the test says.
func (s subject) notes(board string, want ...Note) {
	s.t.Helper()
	got, err := s.Notes(s.t.Context(), board)
	s.ok(err)
	const slack = 5 * time.Second // of a real server
	for i := range min(len(got), len(want)) {
		g, w := &got[i], want[i]
		if g.Age < w.Age || g.Age > w.Age+slack || g.Left > w.Left || g.Left < w.Left-slack {
			s.t.Errorf("%s: age %s and %s left, want %s and %s", g.Name, g.Age, g.Left, w.Age, w.Left)
		}
		g.Age, g.Left = w.Age, w.Left
	}
	equal(s.t, got, want)
}

var boards = map[string]func(subject){
	"notes come by name, with age and what is left": func(s subject) {
		s.notes("b")
		s.note("b", "two", "2", time.Hour)
		s.advance(time.Minute)
		s.note("b", "one", "a\x00\xff\nb", 10*time.Minute)
		s.note("c", "one", "", time.Minute)
		s.advance(30 * time.Second)
		s.notes("b", Note{"one", []byte("a\x00\xff\nb"), 30 * time.Second, 9*time.Minute + 30*time.Second},
			Note{"two", []byte("2"), 90 * time.Second, 58*time.Minute + 30*time.Second})
		s.notes("c", Note{"one", []byte{}, 30 * time.Second, 30 * time.Second})
	},
	"the last write of a note wins, for its life too": func(s subject) {
		s.note("b", "n", "long", time.Hour)
		s.advance(time.Minute)
		s.note("b", "n", "short", time.Minute)
		s.notes("b", Note{"n", []byte("short"), 0, time.Minute})
		s.advance(time.Minute)
		s.notes("b")
		s.note("b", "n", "again", time.Minute)
		s.advance(time.Second)
		s.note("b", "n", "longer", time.Hour)
		s.advance(10 * time.Minute)
		s.notes("b", Note{"n", []byte("longer"), 10 * time.Minute, 50 * time.Minute})
	},
	"each note ends by itself": func(s subject) {
		s.note("b", "long", "l", time.Hour)
		s.note("b", "short", "s", time.Minute) // must not shorten the board
		s.advance(time.Minute - 10*time.Second)
		s.notes("b", Note{"long", []byte("l"), 50 * time.Second, time.Hour - 50*time.Second}, Note{"short", []byte("s"), 50 * time.Second, 10 * time.Second})
		s.advance(10 * time.Second)
		s.notes("b", Note{"long", []byte("l"), time.Minute, 59 * time.Minute})
		s.advance(time.Hour)
		s.notes("b")
	},
	"a full board takes the new and loses the oldest": func(s subject) {
		s.note("b", "oldest", "", time.Hour)
		s.advance(time.Second)
		s.note("b", "old", "", time.Hour)
		s.advance(time.Second)
		s.note("b", "over", "", time.Second)
		s.advance(2 * time.Second)
		for i := range MaxNotes - 2 {
			s.note("b", fmt.Sprintf("n%03d", i), "", time.Hour)
		}
		is := func(oldest, old bool) {
			s.t.Helper()
			notes, err := s.Notes(s.t.Context(), "b")
			s.ok(err)
			there := map[string]bool{}
			for _, n := range notes {
				there[n.Name] = true
			}
			if len(notes) > MaxNotes || there["oldest"] != oldest || there["old"] != old || !there["n000"] || there["over"] {
				s.t.Fatalf("%d notes, oldest %t, old %t", len(notes), there["oldest"], there["old"])
			}
		}
		is(true, true) // what is over goes before what lives
		s.note("b", "old", "written again", time.Hour)
		is(true, true) // takes no more room
		s.note("b", "new", "", time.Hour)
		is(false, true)
	},
	"what is too large is refused, and changes nothing": func(s subject) {
		ctx, long := s.t.Context(), strings.Repeat("x", MaxNoteName+1)
		for i, err := range []error{
			s.PutNote(ctx, "b", long, nil, life), s.PutNote(ctx, long, "n", nil, life), s.PutNote(ctx, "b", "", nil, life),
			s.PutNote(ctx, "", "n", nil, life), s.PutNote(ctx, "b", "n", make([]byte, MaxNoteValue+1), life),
		} {
			if !errors.Is(err, ErrTooLarge) {
				s.t.Errorf("%d: %v", i, err)
			}
		}
		s.notes("b")
		s.ok(s.PutNote(ctx, long[1:], long[1:], make([]byte, MaxNoteValue), life))
		s.notes(long[1:], Note{long[1:], make([]byte, MaxNoteValue), 0, life})
	},
	"a note is not what its writer does with the bytes later": func(s subject) {
		value := []byte("abc")
		s.ok(s.PutNote(s.t.Context(), "b", "n", value, life))
		value[0] = 'x'
		s.notes("b", Note{"n", []byte("abc"), 0, life})
	},
	"a board has a time, too": func(s subject) {
		ctx, cancel := context.WithCancel(s.t.Context())
		cancel()
		_, read := s.Notes(ctx, "b")
		for i, err := range []error{read, s.PutNote(ctx, "b", "n", nil, life)} {
			if !errors.Is(err, ErrUnavailable) || !errors.Is(err, context.Canceled) {
				s.t.Errorf("%d: %v", i, err)
			}
		}
		s.notes("b")
	},
}

func TestMemoryBoundsItsBoards(t *testing.T) {
	clock := newClock()
	m := NewMemory(clock.read).(*memory)
	for i := range 2 * maxBoards {
		clock.advance(time.Millisecond)
		must(t, m.PutNote(t.Context(), fmt.Sprint("b", i), "n", nil, life))
	}
	if n := len(m.boards.items); n != maxBoards {
		t.Fatalf("%d boards", n)
	}
	if notes, err := m.Notes(t.Context(), fmt.Sprint("b", 2*maxBoards-1)); err != nil || len(notes) != 1 {
		t.Fatal(notes, err)
	}
}

func TestForeignNotesBreakNobody(t *testing.T) {
	srv := startServer(t)
	c := srv.client()
	for name, value := range map[string]string{
		"text": "hello", "empty": "", "a negative time": "-1 0 x", "a time without end": strings.Repeat("9", 400) + " 0 x",
		"no value": "9000000000000 0", "a large value": "9000000000000 0 " + strings.Repeat("x", MaxNoteValue+1),
		"an age beyond all": "9000000000000 " + strings.Repeat("9", 300) + " x",
	} {
		t.Run(name, func(t *testing.T) {
			s := srv.store(t)
			must(t, s.PutNote(t.Context(), "b", "good", []byte("v"), life))
			must(t, c.HSet(t.Context(), s.board("b"), "foreign", value).Err())
			notes, err := s.Notes(t.Context(), "b")
			for _, n := range notes {
				if n.Name == "foreign" && n.Age == 0 && string(n.Value) == "x" { // read as one of a clock that is ahead
					continue
				}
				if n.Name != "good" || !bytes.Equal(n.Value, []byte("v")) {
					t.Errorf("%+v", n)
				}
			}
			if err != nil || len(notes) == 0 {
				t.Fatal(notes, err)
			}
		})
	}
	t.Run("foreign notes make room", func(t *testing.T) {
		s := srv.store(t)
		for i := range 2 * MaxNotes {
			must(t, c.HSet(t.Context(), s.board("b"), fmt.Sprint("f", i), "x").Err())
		}
		must(t, s.PutNote(t.Context(), "b", "n", nil, life))
		if n := c.HLen(t.Context(), s.board("b")).Val(); n != 1 {
			t.Errorf("%d left", n)
		}
	})
	t.Run("a note is not lost to those of a clock that went back", func(t *testing.T) {
		s := srv.store(t)
		for i := range MaxNotes {
			must(t, c.HSet(t.Context(), s.board("b"), fmt.Sprint("f", i), "9000000000000 9000000000000 x").Err())
		}
		must(t, s.PutNote(t.Context(), "b", "n", nil, life))
		if n := c.HLen(t.Context(), s.board("b")).Val(); n != MaxNotes || !c.HExists(t.Context(), s.board("b"), "n").Val() {
			t.Errorf("%d notes, and not the new one", n)
		}
	})
	t.Run("a board of another type", func(t *testing.T) {
		s := srv.store(t)
		must(t, c.Set(t.Context(), s.board("b"), "x", 0).Err())
		if notes, err := s.Notes(t.Context(), "b"); err != nil || len(notes) != 0 {
			t.Fatal(notes, err)
		}
		must(t, s.PutNote(t.Context(), "b", "n", nil, life))
		if notes, err := s.Notes(t.Context(), "b"); err != nil || len(notes) != 1 {
			t.Fatal(notes, err)
		}
	})
}

func FuzzNotes(f *testing.F) {
	f.Add("n", "v", "1", "2")
	f.Add("", "", "-1", "9223372036854775807")
	f.Fuzz(func(t *testing.T, name, value, age, left string) {
		a := answer{rest: []any{[]any{[]any{name, value, age, left}, "stray", []any{"good", "v", "1", "1"}}}}
		notes := a.notes()
		if a.bad || len(notes) == 0 {
			t.Fatalf("bad %t, %d notes", a.bad, len(notes))
		}
		for _, n := range notes {
			if n.Age < 0 || n.Left <= 0 || fits("b", n.Name, n.Value) != nil {
				t.Errorf("%+v", n)
			}
		}
	})
}
