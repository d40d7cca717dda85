// Package intake turns an HTTP request's body into a checked JSON object:
// bounded in bytes, in time and in what its compression may unfold to.
//
// Shape checks are pure (shape.go). Reading is the one part with IO.
package intake

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// MaxBody is the largest body accepted, in bytes: 128 MiB, before and after
// decompression. A body of exactly MaxBody bytes is accepted. After a reconnect
// Codex resends a whole conversation with its images, tens of MiB.
const MaxBody = 128 << 20

const (
	// drainTime bounds how long the rest of a refused body is read, so that the
	// client, still writing, gets to read the answer.
	drainTime = 5 * time.Second
	// trusted is the largest announced length that is allocated at once. Of a
	// longer body an eighth has to arrive first, so that a client cannot make
	// us hold much more than it sends.
	trusted = 1 << 20
	// readSize bounds one read; the deadline moves between reads.
	readSize = 256 << 10
)

// Options of a Reader. Zero values stand for MaxBody and for the limits that
// package deadline names. A client that stays above the floor is given the whole
// time; one that trickles is cut early.
type Options struct {
	MaxBody    int
	Total      time.Duration
	FloorAfter time.Duration
}

// Reader reads request bodies. It is safe for concurrent use.
type Reader struct {
	options  Options
	decoders *decoders
	// scratch holds small compressed bodies while they are decompressed.
	scratch sync.Pool
}

// NewReader returns a Reader.
func NewReader(o Options) (*Reader, error) {
	if o.MaxBody == 0 {
		o.MaxBody = MaxBody
	}
	if o.Total == 0 {
		o.Total = deadline.InboundBodyTime
	}
	if o.FloorAfter == 0 {
		o.FloorAfter = deadline.InboundBodyGrace
	}
	d, err := newDecoders(o.MaxBody)
	if err != nil {
		return nil, fmt.Errorf("setting up decompression: %w", err)
	}
	return &Reader{options: o, decoders: d}, nil
}

// Read returns the decompressed body. Its errors are *failure.Failure. A body
// whose length was announced is held once; a compressed one is held next to its
// compressed form while it is decompressed. After an error the rest of the body
// has been read, or the connection closes after the answer.
func (in *Reader) Read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	src := in.source(w, r)
	codings, err := parseCodings(r.Header.Values("Content-Encoding"))
	if err == nil && r.ContentLength > int64(in.options.MaxBody) {
		err = tooLarge(in.options.MaxBody)
	}
	if err != nil {
		in.drain(w, r, src)
		return nil, err
	}
	if len(codings) > 0 {
		return in.readCoded(w, r, src, codings)
	}
	body, err := in.readRaw(src, r.ContentLength, nil)
	if err != nil {
		in.drain(w, r, src)
		return nil, err
	}
	src.unbound()
	return body, nil
}

// Discard ends the reading of a request that is refused for another reason than
// its body, within the bounds of a body that is too large.
func (in *Reader) Discard(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		in.drain(w, r, in.source(w, r))
	}
}

func (in *Reader) source(w http.ResponseWriter, r *http.Request) *source {
	return &source{body: r.Body, control: http.NewResponseController(w), start: time.Now(), options: in.options}
}

func (in *Reader) readCoded(w http.ResponseWriter, r *http.Request, src *source, codings []string) ([]byte, error) {
	scratch, _ := in.scratch.Get().(*[]byte)
	if scratch == nil {
		scratch = new([]byte)
	}
	defer func() {
		if cap(*scratch) <= trusted {
			in.scratch.Put(scratch)
		}
	}()
	raw, err := in.readRaw(src, r.ContentLength, (*scratch)[:0])
	if err != nil {
		in.drain(w, r, src)
		return nil, err
	}
	src.unbound()
	*scratch = raw[:0]
	// Codings are named in the order they were applied.
	for i := len(codings) - 1; i >= 0; i-- {
		if raw, err = in.decoders.decode(codings[i], raw); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// readRaw reads the body as it is on the wire. It may use the memory of into.
func (in *Reader) readRaw(src *source, length int64, into []byte) ([]byte, error) {
	body := grow(into, initialSize(length))
	for {
		if len(body) == cap(body) {
			body = grow(body, nextSize(len(body), length, in.options.MaxBody))
		}
		n, err := src.Read(body[len(body):min(cap(body), len(body)+readSize)])
		body = body[:len(body)+n]
		switch {
		case len(body) > in.options.MaxBody:
			return nil, tooLarge(in.options.MaxBody)
		case errors.Is(err, io.EOF):
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, failure.New(failure.RequestTimeout, fmt.Sprintf(
				"The request body did not arrive in time: %d bytes in %s.", len(body), src.elapsed().Round(time.Second/10)),
				failure.Reason(string(deadline.InboundBody)), failure.Deadline(string(deadline.InboundBody), string(deadline.Operator)),
				failure.Dispatched(deadline.InboundBody.Dispatch()))
		case err != nil:
			return nil, failure.New(failure.InvalidRequest, "The request body ended early or is not framed as HTTP demands.")
		}
	}
}

// initialSize is what is allocated before the first byte has arrived. One more
// than the body: the read that finds its end needs room.
func initialSize(length int64) int {
	switch {
	case length < 0:
		return 16 << 10
	case length <= trusted:
		return int(length) + 1
	default:
		return int(length / 8)
	}
}

// nextSize is the capacity after size bytes have filled it. Growth by a quarter
// keeps what a body of unknown length wastes below a quarter of it.
func nextSize(size int, length int64, limit int) int {
	if length > int64(size) {
		return int(length) + 1
	}
	if size < trusted {
		return min(2*size+1, limit+1)
	}
	return min(size+size/4, limit+1)
}

func grow(b []byte, size int) []byte {
	if cap(b) >= size {
		return b
	}
	grown := make([]byte, len(b), max(size, len(b)+1))
	copy(grown, b)
	return grown
}

// drain reads the rest of a refused body within bounds, because a client that
// is still writing when the connection closes may never see the answer. A
// client that waits for "100 Continue" is not asked for its body.
func (in *Reader) drain(w http.ResponseWriter, r *http.Request, src *source) {
	bound := 2 * int64(in.options.MaxBody)
	expects := strings.EqualFold(r.Header.Get("Expect"), "100-continue") && src.count == 0
	if !expects && !src.late && r.ContentLength <= bound && src.drain(bound) {
		src.unbound()
		return
	}
	w.Header().Set("Connection", "close")
	// The server would read on after the answer, without end.
	_ = src.control.SetReadDeadline(time.Now())
}

// Deadlines is a connection whose reads can be bounded.
type Deadlines interface {
	SetReadDeadline(deadline time.Time) error
}

// source is a request's body, or a message, under the inbound deadlines.
type source struct {
	body    io.Reader
	control Deadlines
	start   time.Time
	options Options
	count   int
	late    bool
}

func (s *source) Read(p []byte) (int, error) {
	deadline := s.start.Add(allowance(s.options, s.count))
	// A writer without deadlines is a test's; a dead connection fails the read.
	_ = s.control.SetReadDeadline(deadline)
	n, err := s.body.Read(p)
	s.count += n
	s.late = errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// drain reads to the end of a body of at most bound bytes.
func (s *source) drain(bound int64) bool {
	if s.control.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		return false
	}
	left := bound - int64(s.count)
	n, err := io.Copy(io.Discard, io.LimitReader(s.body, left+1))
	return err == nil && n <= left
}

func (s *source) elapsed() time.Duration { return time.Since(s.start) }

// unbound lifts the deadline. Of a request without a body it would end the
// connection's background read, and with it the context, during the answer.
func (s *source) unbound() { _ = s.control.SetReadDeadline(time.Time{}) }

// allowance is the time, from the start, by which more than count bytes must
// have arrived.
func allowance(o Options, count int) time.Duration {
	floor := o.FloorAfter + time.Duration(count)*time.Second/deadline.InboundBodyFloor
	return min(floor, o.Total)
}

func tooLarge(limit int) *failure.Failure {
	return failure.New(failure.PayloadTooLarge, fmt.Sprintf(
		"The request body is larger than %d bytes, before or after decompression.", limit), failure.Reason("body_limit"))
}
