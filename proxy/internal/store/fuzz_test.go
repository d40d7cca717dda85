package store

import (
	"errors"
	"testing"
)

// reply makes a value as a server can send it out of arbitrary bytes.
func reply(data []byte, depth int) (any, []byte) {
	if len(data) == 0 {
		return nil, nil
	}
	kind, data := data[0], data[1:]
	switch kind % 6 {
	case 0:
		return nil, data
	case 1:
		return int64(len(data)), data
	case 2, 3:
		if len(data) == 0 {
			return "", nil
		}
		n := min(int(data[0]), len(data)-1)
		return string(data[1 : 1+n]), data[1+n:]
	case 4:
		return []string{"ok", "fenced", "conflict", "missing", "corrupt", "0", "1", "12345"}[int(kind/6)%8], data
	default:
		list := []any{}
		for range int(kind / 6 % 11) {
			if depth == 0 || len(data) == 0 {
				break
			}
			var v any
			v, data = reply(data, depth-1)
			list = append(list, v)
		}
		return list, data
	}
}

// FuzzAnswer: whatever a server says, reading it ends with values that can be
// acted upon, or with an error.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{5 + 6*3, 4, 2, 1, '7', 5 + 6*8, 2, 1, 'p', 2, 1, 'q', 2, 0, 4 + 6*7, 4 + 6*5, 4 + 6*7, 4 + 6*5, 4 + 6*6, 2, 1, 'v', 5})
	f.Add([]byte("\x05\x04"))
	f.Add([]byte{5 + 6*2, 4 + 6*1, 5 + 6*8})
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, _ := reply(data, 4)
		a := decode(key, raw)
		var fenced *Fenced
		switch {
		case a.err == nil, errors.Is(a.err, ErrConflict), errors.Is(a.err, ErrNotFound), errors.Is(a.err, ErrCorrupt):
		case errors.As(a.err, &fenced):
			if fenced.Current.Lease < 0 || fenced.Current.Epoch < 0 || fenced.Current.Fence < 0 {
				t.Errorf("%+v", fenced.Current)
			}
		default:
			t.Errorf("%v is not in the contract", a.err)
		}
		epoch, entry := a.number(), a.entry()
		value, turns := a.value(entry.Version), a.turns()
		if a.bad {
			return
		}
		if epoch < 0 || entry.Lease < 0 || entry.Version < 0 || entry.Version == 0 && value != nil {
			t.Errorf("epoch %d, entry %+v, value %q", epoch, entry, value)
		}
		for _, turn := range turns {
			if !turn.sound() || turn.Age < 0 {
				t.Errorf("turn %+v", turn)
			}
		}
	})
}

func FuzzTurnRecord(f *testing.F) {
	f.Add("f", "60000", "1", `{"fp":"f","id":"r","state":"completed","attempt":2,"complete":true}`)
	f.Add("f", "-1", "2", `{"fp":"g"}`)
	f.Add("", "", "", `{"attempt":1e99}`)
	f.Fuzz(func(t *testing.T, fingerprint, age, delivered, body string) {
		a := answer{rest: []any{[]any{[]any{fingerprint, age, delivered, body}}}}
		turns := a.turns()
		if a.bad != (len(turns) == 0) {
			t.Errorf("bad %t, turns %v", a.bad, turns)
		}
		for _, turn := range turns {
			if !turn.sound() || turn.Age < 0 || turn.Fingerprint != fingerprint || turn.Delivered != (delivered == "1") {
				t.Errorf("turn %+v", turn)
			}
		}
	})
}

func FuzzTranscript(f *testing.F) {
	f.Add("1 6", "one", "two")
	f.Add("1 -6", "", "")
	f.Add("9223372036854775808 1", "x", "")
	f.Fuzz(func(t *testing.T, head, one, two string) {
		events, err := decodeTranscript(key, []string{head, one, two})
		if err == nil && (len(events) != 2 || string(events[0]) != one || string(events[1]) != two) {
			t.Errorf("%q", events)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
	})
}
