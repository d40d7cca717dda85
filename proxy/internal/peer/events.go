package peer

import (
	"bytes"

	"github.com/tidwall/gjson"
)

var (
	eventEnd     = []byte("\n\n")
	eventName    = []byte("event: ")
	eventData    = []byte("\ndata: ")
	createdEvent = []byte("event: response.created\n")
)

// peekBytes is how much of the newest event is kept: its name, its number and
// the id of its response are near its start.
const peekBytes = 2 << 10

// events watches a stream of a bridge go by, without reading more of it than it
// takes to end it properly: where events end, and which was the last.
type events struct {
	// searched is how much of what is held is known to hold no end.
	searched int
	// torn says that a part of an event has passed whose end has not.
	torn bool
	// terminal says that the last event of the response has begun.
	terminal bool
	// last is the start of the newest event.
	last       []byte
	responseID string
}

// pass says how much of held may pass: all up to the end of the last whole event
// in it, or everything if one event fills it. What it does not pass comes again,
// at the start of the next call's held.
func (e *events) pass(held []byte) int {
	from := max(0, e.searched-1)
	if at := bytes.LastIndex(held[from:], eventEnd); at >= 0 {
		end := from + at + len(eventEnd)
		e.see(held[:end])
		e.torn, e.searched = false, len(held)-end
		return end
	}
	e.searched = len(held)
	if len(held) < chunkBytes {
		return 0
	}
	if !e.torn {
		e.see(held)
		e.torn = true
	}
	e.searched = 0
	if held[len(held)-1] == '\n' {
		e.searched = 1 // it may be half of an end
	}
	return len(held) - e.searched
}

// see notes what is told by text that passes; it starts with an event, but for
// the rest of a torn one.
func (e *events) see(text []byte) {
	if e.responseID == "" {
		if at := bytes.Index(text, createdEvent); at >= 0 {
			e.responseID = gjson.GetBytes(dataOf(text[at:]), "response.id").Str
		}
	}
	start := 0
	if at := bytes.LastIndex(bytes.TrimSuffix(text, eventEnd), eventEnd); at >= 0 {
		start = at + len(eventEnd)
	} else if e.torn {
		return // only the rest of what is known already
	}
	event := text[start:]
	name, named := bytes.CutPrefix(event, eventName)
	if !named {
		return // a comment
	}
	if i := bytes.IndexByte(name, '\n'); i >= 0 {
		name = name[:i]
	}
	e.terminal = terminal[string(name)]
	e.last = append(e.last[:0], event[:min(len(event), peekBytes)]...)
}

// terminal are the events behind which none comes.
var terminal = map[string]bool{
	"response.completed": true, "response.incomplete": true, "response.failed": true, "error": true,
}

// dataOf is the data of the event that text starts with, or the start of it.
func dataOf(text []byte) []byte {
	_, data, _ := bytes.Cut(text, eventData)
	data, _, _ = bytes.Cut(data, eventEnd)
	return data
}

// nextSequence continues the stream's numbers; -1 = it has none.
func (e *events) nextSequence() int64 {
	if n := gjson.GetBytes(dataOf(e.last), "sequence_number"); n.Type == gjson.Number {
		return n.Int() + 1
	}
	return -1
}

func (e *events) idOr(requestID string) string {
	if e.responseID != "" {
		return e.responseID
	}
	return requestID
}
