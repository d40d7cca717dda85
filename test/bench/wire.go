package main

import (
	"bytes"
	"strconv"
	"strings"
)

// Models tell the origin what a request wants.
const (
	modelTurn  = "bench-turn"  // a short answer at once
	modelPaced = "bench-paced" // events at the origin's pace until it is told to finish
)

// What the origin answers and the client recognises. Sizes are those of real
// events: a delta of one token has some 300 bytes.
const (
	itemDone      = `{"type":"message","id":"msg_0123456789abcdef0123456789abcdef","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"Certainly."}]}`
	eventDelta    = "response.output_text.delta"
	stampMember   = `"sent":`
	stampDigits   = 19 // of Unix nanoseconds from 2001 to 2286
	firstSequence = 100000
	lastSequence  = 999999
)

var (
	stampKey      = []byte(stampMember)
	dataPrefix    = []byte("data:")
	completedMark = []byte(`{"type":"response.completed"`)
)

// frame is one delta with places for its number and its time, made once and
// filled in for each stream. One goroutine uses it.
type frame struct {
	sse             []byte
	from, to        int // the JSON in it
	sequence, stamp int // where they start
}

func newFrame() *frame {
	const sequence, stamp = `"sequence_number":`, stampMember
	payload := `{"type":"` + eventDelta + `","item_id":"msg_0123456789abcdef0123456789abcdef","output_index":0,"content_index":0,` +
		`"delta":" certainly","logprobs":[],"obfuscation":"q7Yw2kPz",` + sequence + strconv.Itoa(firstSequence) + `,` + stamp + strings.Repeat("0", stampDigits) + `}`
	text := "event: " + eventDelta + "\ndata: " + payload + "\n\n"
	from := strings.IndexByte(text, '{')
	return &frame{
		sse: []byte(text), from: from, to: from + len(payload),
		sequence: strings.Index(text, sequence) + len(sequence),
		stamp:    strings.LastIndex(text, stamp) + len(stamp),
	}
}

// fill writes number and time, both of fixed width.
func (f *frame) fill(sequence, nanos int64) {
	strconv.AppendInt(f.sse[:f.sequence], sequence, 10)
	// The append above overwrites the digits in place: there is room for them, and
	// they are always as many.
	strconv.AppendInt(f.sse[:f.stamp], nanos, 10)
}

func (f *frame) payload() []byte { return f.sse[f.from:f.to] }

// stampOf is the time in a line of an event stream; 0 = it has none.
func stampOf(line []byte) int64 {
	i := bytes.Index(line, stampKey)
	if i < 0 || len(line) < i+len(stampKey)+stampDigits {
		return 0
	}
	var n int64
	for _, c := range line[i+len(stampKey):][:stampDigits] {
		n = n*10 + int64(c-'0')
	}
	return n
}

// requestBody is a Responses request with the whole conversation. Its size is
// that of instructions and tools of a small agent.
func requestBody(model, session string, items []string) []byte {
	var b bytes.Buffer
	b.WriteString(`{"model":"` + model + `","stream":true,"store":false,"instructions":"`)
	b.WriteString(instructions)
	b.WriteString(`","prompt_cache_key":"` + session + `","input":[`)
	b.WriteString(strings.Join(items, ","))
	b.WriteString(`]}`)
	return b.Bytes()
}

var instructions = strings.Repeat("You are a coding agent. Keep answers short. ", 180) // 8 KiB

func userItem(text string) string {
	return `{"type":"message","role":"user","content":[{"type":"input_text","text":"` + text + `"}]}`
}
