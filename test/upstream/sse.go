package upstream

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/tidwall/gjson"
)

// httpSink answers over HTTP: a stream of events, or one JSON body.
type httpSink struct {
	w       http.ResponseWriter
	r       *http.Request
	rc      *http.ResponseController
	json    bool // stream: false
	begun   bool
	hijack  net.Conn
	headers map[string]string
	rate    pace
}

func newHTTPSink(w http.ResponseWriter, r *http.Request, stream bool) *httpSink {
	return &httpSink{w: w, r: r, rc: http.NewResponseController(w), json: !stream}
}

func (k *httpSink) pace() *pace { return &k.rate }

func (k *httpSink) begin(_ context.Context, headers map[string]string) error {
	if k.begun || k.json {
		if k.headers == nil {
			k.headers = headers
		}
		return nil
	}
	k.begun = true
	h := k.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	setHeaders(h, headers)
	k.w.WriteHeader(http.StatusOK)
	return k.flush()
}

func (k *httpSink) form(e event) []byte {
	if !k.json {
		return e.payload
	}
	if !e.terminal() {
		return nil
	}
	if r := gjson.GetBytes(e.payload, "response"); r.Exists() {
		return []byte(r.Raw)
	}
	return e.payload
}

func (k *httpSink) send(ctx context.Context, e event) error {
	if k.json {
		if e.name == "error" {
			return k.answer(ctx, int(gjson.GetBytes(e.payload, "status").Int()), "application/json", e.payload)
		}
		if body := k.form(e); body != nil {
			return k.answer(ctx, http.StatusOK, "application/json", body)
		}
		return ctx.Err()
	}
	return k.write(ctx, sseBlock(e))
}

// sseBlock is an event on the wire. A payload of several lines becomes several
// data lines, which a reader joins again.
func sseBlock(e event) []byte {
	var b bytes.Buffer
	b.Grow(len(e.name) + len(e.payload) + 24)
	if e.name != "" {
		b.WriteString("event: ")
		b.WriteString(e.name)
		b.WriteByte('\n')
	}
	for line := range bytes.SplitSeq(e.payload, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}

func (k *httpSink) raw(ctx context.Context, kind rawKind, b []byte) error {
	switch {
	case kind == rawPage && !k.begun:
		return k.answer(ctx, http.StatusOK, "text/html; charset=utf-8", b)
	case kind == rawWire && !k.begun:
		if c := k.take(); c != nil {
			_, _ = c.Write(b) // the peer may have gone; it gets no answer either way
			fin(c)
		}
		return nil
	case kind == rawPartial && k.json:
		return k.answer(ctx, http.StatusOK, "application/json", b[:len(b)/2])
	case k.json:
		return nil // one body has no room for stray frames
	case kind == rawPartial:
		b = bytes.TrimSuffix(sseBlock(event{gjson.GetBytes(b, "type").String(), b}), []byte("\n\n"))
	case kind == rawText:
		b = sseBlock(event{payload: b})
	}
	return k.write(ctx, b)
}

func (k *httpSink) refuse(ctx context.Context, e *apiError) error {
	setHeaders(k.w.Header(), e.headers)
	return k.answer(ctx, e.status, "application/json", e.body())
}

func (k *httpSink) answer(ctx context.Context, status int, contentType string, body []byte) error {
	if k.begun {
		return k.write(ctx, body)
	}
	k.begun = true
	setHeaders(k.w.Header(), k.headers)
	if k.w.Header().Get("Content-Type") == "" {
		k.w.Header().Set("Content-Type", contentType)
	}
	k.w.WriteHeader(max(status, http.StatusOK))
	return k.write(ctx, body)
}

func (k *httpSink) write(ctx context.Context, b []byte) error {
	return k.rate.pieces(ctx, b, func(piece []byte, _ bool) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := k.w.Write(piece); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
		return k.flush()
	})
}

func (k *httpSink) flush() error {
	if err := k.rc.Flush(); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

func (k *httpSink) cut(how string, _ int, _ string) {
	c := k.take()
	switch {
	case c == nil:
	case how == cutReset:
		reset(c)
	default:
		fin(c)
	}
}

// take hijacks the connection, so that net/http cannot end the answer well.
func (k *httpSink) take() net.Conn {
	if k.hijack == nil {
		c, _, err := k.rc.Hijack()
		if err != nil {
			return nil // the client is gone already
		}
		k.hijack = c
	}
	return k.hijack
}

func setHeaders(h http.Header, pairs map[string]string) {
	for name, value := range pairs {
		h.Set(name, value)
	}
}
