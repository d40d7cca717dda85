package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"
)

// Ways to cut a connection.
const (
	cutReset = "reset"
	cutFin   = "fin"
	cutClose = "close" // a close frame; over HTTP like fin
)

const defaultPage = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"

// garbage is neither HTTP, nor SSE, nor a WebSocket frame, nor UTF-8.
var garbage = []byte{0xff, 0xfe, 0x00, 0xc3, 0x28, '\n', 'x', 0x80, '\r', '\n', 0xf7, 0x00, '}', '{'}

// inject plays a fault on an answer: the steps before its place stay, those
// after it go, stay or change, depending on the action.
func (t *turn) inject(steps []step, f *Fault) []step {
	at := position(steps, f)
	before, after := slices.Clone(steps[:at]), slices.Clone(steps[at:])
	if f.Held {
		before = append(before, step{act: t.hold})
	}
	if act := t.ending(f, at); act != nil {
		return append(before, step{act: act})
	}
	if act := t.passing(f); act != nil {
		return append(append(before, step{act: act}), after...)
	}
	return t.edited(before, after, f)
}

// ending is the act that ends the answer, nil if the action is no end.
func (t *turn) ending(f *Fault, at int) func(context.Context) error {
	switch f.Action {
	case ActReset:
		return t.cut(cutReset, OutcomeReset, f)
	case ActFin:
		return t.cut(cutFin, OutcomeFin, f)
	case ActWSClose:
		return t.cut(cutClose, OutcomeClosed, f)
	case ActMute:
		return t.mute
	case ActStatus:
		if at == 0 {
			return t.refusal(f.apiError())
		}
		return t.errorEvent(f)
	case ActErrorFrame:
		return t.errorEvent(f)
	case ActFailed:
		return func(ctx context.Context) error {
			t.comp.seq = int(t.lastSeq) + 1
			return t.last(ctx, t.comp.failed(f))
		}
	case ActIncomplete:
		return func(ctx context.Context) error {
			t.comp.seq = int(t.lastSeq) + 1
			return t.last(ctx, t.comp.incomplete(orDefault(f.Reason, "max_output_tokens")))
		}
	case ActHTML:
		return t.finalRaw(rawPage, orDefault(f.Body, defaultPage))
	case ActGarbage:
		return t.finalRaw(rawWire, orDefault(f.Body, string(garbage)))
	default:
		return nil
	}
}

// passing is an act after which the answer goes on.
func (t *turn) passing(f *Fault) func(context.Context) error {
	raw := func(kind rawKind, payloads ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			for _, p := range payloads {
				if err := t.out.raw(ctx, kind, []byte(p)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	switch f.Action {
	case ActStall:
		return func(ctx context.Context) error {
			if f.Duration == 0 {
				return t.mute(ctx)
			}
			return t.sleep(ctx, time.Duration(f.Duration))
		}
	case ActHold:
		return t.hold
	case ActSlow:
		return func(context.Context) error {
			t.out.pace().bytesPerSecond = f.BytesPerSecond
			return nil
		}
	case ActNoPong:
		return func(context.Context) error {
			if t.req.socket != nil {
				t.req.socket.silent.Store(true)
			}
			return nil
		}
	case ActNonJSON:
		return raw(rawText, orDefault(f.Body, "this is not JSON"))
	case ActBinary:
		return raw(rawBinary, orDefault(f.Body, string(garbage)))
	case ActUnmatched:
		return raw(rawText,
			`{"type":"response.output_text.delta","response_id":"resp_of_nobody","item_id":"msg_of_nobody","output_index":0,`+
				`"content_index":0,"delta":"not yours","logprobs":[],"sequence_number":0}`,
			`{"type":"response.in_progress","response":{"id":"resp_of_nobody","object":"response","status":"in_progress"},"sequence_number":1}`,
			`{"type":"response.some_future_event","sequence_number":2}`,
			`{}`)
	default:
		return nil
	}
}

// edited changes the events themselves.
func (t *turn) edited(before, after []step, f *Fault) []step {
	next := slices.IndexFunc(after, func(s step) bool { return s.ev != nil })
	switch f.Action {
	case ActDup:
		for i := len(before) - 1; i >= 0; i-- {
			if before[i].ev != nil {
				return slices.Concat(before, []step{{ev: before[i].ev}}, after)
			}
		}
		if next >= 0 {
			return slices.Concat(before, after[:next+1], []step{{ev: after[next].ev}}, after[next+1:])
		}
	case ActTruncate:
		if next >= 0 {
			e := *after[next].ev
			e.payload = e.payload[:len(e.payload)/2]
			after[next].ev = &e
		}
	case ActUntermed:
		if next >= 0 {
			return append(slices.Concat(before, after[:next]), step{act: t.finalRaw(rawPartial, string(after[next].ev.payload))})
		}
	case ActPretty:
		for i := range after {
			if after[i].ev != nil {
				e := *after[i].ev
				e.payload = pretty(e.payload)
				after[i].ev = &e
			}
		}
	case ActNoTerminal:
		after = slices.DeleteFunc(after, func(s step) bool { return s.ev != nil && s.ev.terminal() })
	case ActTwice:
		if i := slices.IndexFunc(after, func(s step) bool { return s.ev != nil && s.ev.terminal() }); i >= 0 {
			after = slices.Insert(after, i+1, step{ev: after[i].ev})
		}
	}
	return append(before, after...)
}

// closeCode is 1011, internal error, unless the script says otherwise.
func closeCode(f *Fault) int {
	if f.CloseCode == 0 {
		return 1011
	}
	return f.CloseCode
}

func (t *turn) cut(how string, o Outcome, f *Fault) func(context.Context) error {
	return func(context.Context) error {
		t.endAs(o)
		t.out.cut(how, closeCode(f), f.Reason)
		return errEnded
	}
}

// errorEvent sends an error event in the scripted shape, on a socket or in a
// stream whose head is out.
func (t *turn) errorEvent(f *Fault) func(context.Context) error {
	return func(ctx context.Context) error {
		e := f.apiError()
		t.entryUpdate(func(d *Dispatch) { d.Status, d.Code = e.status, e.code })
		if err := t.out.begin(ctx, nil); err != nil {
			return err
		}
		o := OutcomeFailed
		if t.sent == 0 {
			o = OutcomeRefused
		}
		t.sent++
		payload := e.frame(f.Shape, t.req.lane)
		if f.Action == ActErrorFrame && f.Body != "" {
			payload = []byte(f.Body)
		}
		t.sum.Write(payload)
		t.endAs(o)
		if err := t.out.send(ctx, event{"error", payload}); err != nil {
			return err
		}
		if f.CloseCode != 0 {
			t.out.cut(cutClose, f.CloseCode, f.Reason)
		}
		return errEnded
	}
}

// last sends a terminal event.
func (t *turn) last(ctx context.Context, e event) error {
	if err := t.out.begin(ctx, nil); err != nil {
		return err
	}
	if err := t.emit(ctx, e); err != nil {
		return err
	}
	return errEnded
}

func (t *turn) finalRaw(kind rawKind, b string) func(context.Context) error {
	return func(ctx context.Context) error {
		if kind == rawPartial {
			t.endAs(OutcomeUnfinished)
		}
		t.endAs(OutcomeGarbled)
		if err := t.out.raw(ctx, kind, []byte(b)); err != nil {
			return err
		}
		return errEnded
	}
}

func pretty(payload []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, payload, "", "  "); err != nil {
		return payload
	}
	return b.Bytes()
}

func orDefault(s, d string) string {
	if s == "" {
		return d
	}
	return s
}
