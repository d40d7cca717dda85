package upstream

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gorilla/websocket"
)

// writeWait bounds one frame to a peer that does not read.
const writeWait = time.Minute

// close sends a close frame and ends the connection.
func (k *socket) close(code int, reason string) {
	if k.tracked != nil {
		k.tracked.closing(code, "server")
	}
	msg := websocket.FormatCloseMessage(code, reason)
	_ = k.ws.WriteControl(websocket.CloseMessage, msg, time.Now().Add(writeWait)) // the peer may have gone
	fin(k.ws.NetConn())
}

// text sends one message, as fragments if the pace asks for pieces.
func (k *socket) text(ctx context.Context, b []byte, p *pace) error {
	return k.message(ctx, websocket.TextMessage, b, p)
}

func (k *socket) message(ctx context.Context, opcode int, b []byte, p *pace) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("writing a frame: %w", err)
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if p.whole() {
		_ = k.ws.SetWriteDeadline(time.Now().Add(writeWait)) // gorilla only stores it
		if err := k.ws.WriteMessage(opcode, b); err != nil {
			return fmt.Errorf("writing a frame: %w", err)
		}
		return nil
	}
	return p.pieces(ctx, b, func(piece []byte, last bool) error {
		err := k.wire(fragment(opcode, piece, last))
		opcode = 0 // continuation
		return err
	})
}

// wire writes bytes past gorilla, which knows no fragments and no nonsense.
func (k *socket) wire(b []byte) error {
	_ = k.ws.NetConn().SetWriteDeadline(time.Time{}) // gorilla leaves that of its last frame
	if _, err := k.ws.NetConn().Write(b); err != nil {
		return fmt.Errorf("writing a frame: %w", err)
	}
	return nil
}

// fragment is one unmasked frame (RFC 6455, section 5.2).
func fragment(opcode int, payload []byte, last bool) []byte {
	first := byte(opcode)
	if last {
		first |= 0x80
	}
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n <= 0xffff:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}

// wsSink answers one response.create on its socket.
type wsSink struct {
	k    *socket
	lane string
	rate pace
}

func (w *wsSink) pace() *pace { return &w.rate }

func (w *wsSink) begin(context.Context, map[string]string) error { return nil }

func (w *wsSink) form(e event) []byte { return e.payload }

func (w *wsSink) send(ctx context.Context, e event) error { return w.k.text(ctx, e.payload, &w.rate) }

func (w *wsSink) raw(ctx context.Context, kind rawKind, b []byte) error {
	switch kind {
	case rawBinary:
		return w.k.message(ctx, websocket.BinaryMessage, b, &w.rate)
	case rawWire, rawPartial:
		w.k.writing.Lock()
		defer w.k.writing.Unlock()
		if kind == rawPartial {
			b = fragment(websocket.TextMessage, b, false)
		}
		return w.k.wire(b)
	default:
		return w.k.text(ctx, b, &w.rate)
	}
}

func (w *wsSink) refuse(ctx context.Context, e *apiError) error {
	return w.k.text(ctx, e.frame(ShapeNested, w.lane), &w.rate)
}

func (w *wsSink) cut(how string, code int, reason string) {
	if how == cutClose {
		w.k.close(code, reason)
		return
	}
	if w.k.tracked != nil {
		w.k.tracked.closing(websocket.CloseAbnormalClosure, "server")
	}
	if how == cutReset {
		reset(w.k.ws.NetConn())
		return
	}
	fin(w.k.ws.NetConn())
}
