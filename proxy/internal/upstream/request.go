package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// exchange is a Conn over HTTP: one POST, answered by server-sent events. It
// carries one request and ends with its answer.
type exchange struct {
	client *http.Client
	target Target
	ctx    context.Context //nolint:containedctx // the life of the exchange, ended by Close
	cancel context.CancelFunc
	closed atomic.Bool

	mu       sync.Mutex // guards response and failed
	response *http.Response
	answered chan struct{} // closed when response or failed is set
	failed   error
	sse      *sseReader
	refusal  *Event
}

// HTTP makes a connection that sends its one request as a POST. No IO happens
// before Send.
func (d *Dialer) HTTP(t Target) Conn {
	ctx, cancel := context.WithCancel(context.Background())
	return &exchange{client: d.http, target: t, ctx: ctx, cancel: cancel, answered: make(chan struct{})}
}

func (x *exchange) Header() http.Header {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.response == nil {
		return nil
	}
	return x.response.Header
}

// Send returns when the response's head is there: before that, HTTP does not
// say whether a request was read.
func (x *exchange) Send(request Request) error {
	readers := make([]io.Reader, len(request.Segments))
	for i, s := range request.Segments {
		readers[i] = bytes.NewReader(s)
	}
	started := &onceReader{r: io.MultiReader(readers...)}
	r, err := http.NewRequestWithContext(x.ctx, http.MethodPost, x.target.responsesURL(), started)
	if err != nil {
		return x.fail(errors.Join(ErrNotSent, err))
	}
	// Without GetBody the transport cannot send a POST twice on its own.
	r.GetBody, r.ContentLength = nil, request.Size()
	r.Header = x.target.Header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	Authorize(r.Header, x.target.Credential)
	response, err := x.client.Do(r) //nolint:bodyclose // Close closes it
	if err != nil {
		var dial *DialError
		if errors.As(err, &dial) || !started.read.Load() {
			err = errors.Join(ErrNotSent, err)
		}
		return x.fail(err)
	}
	x.accept(response)
	return nil
}

func (x *exchange) fail(err error) error {
	x.mu.Lock()
	x.failed = err
	x.mu.Unlock()
	close(x.answered)
	return err
}

func (x *exchange) accept(response *http.Response) {
	kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	ok := response.StatusCode == http.StatusOK && strings.EqualFold(strings.TrimSpace(kind), "text/event-stream")
	if !ok {
		body, err := io.ReadAll(io.LimitReader(response.Body, refusalBytes))
		if err != nil {
			body = nil
		}
		refusal := httpFault(response.StatusCode, response.Header, body)
		x.refusal = &refusal
	}
	x.mu.Lock()
	x.response = response
	x.sse = newSSEReader(response.Body)
	x.mu.Unlock()
	close(x.answered)
}

func (x *exchange) Receive() (Event, error) {
	select {
	case <-x.answered:
	case <-x.ctx.Done():
		return Event{}, x.ended(x.ctx.Err())
	}
	if x.failed != nil {
		return Event{}, x.ended(x.failed)
	}
	if x.refusal != nil {
		e := *x.refusal
		x.refusal = nil
		x.sse = newSSEReader(strings.NewReader("")) // nothing follows a refusal
		return e, nil
	}
	for {
		b := newBuffer()
		var err error
		if b.b, err = x.sse.next(b.b[:0]); err != nil {
			b.release()
			return Event{}, x.ended(err)
		}
		if string(b.b) == "[DONE]" || len(b.b) == 0 {
			b.release()
			continue
		}
		e, ok := parse(b)
		if !ok {
			b.release()
			return Event{}, &Ended{Cause: CauseGarbage, Err: errors.New("event data is not a JSON object")}
		}
		return e, nil
	}
}

func (x *exchange) ended(err error) error {
	switch {
	case x.closed.Load():
		return &Ended{Cause: CauseLocal, Err: err}
	case errors.Is(err, io.EOF):
		return &Ended{Cause: CauseClean, Err: err}
	case errors.Is(err, errTooLarge):
		return &Ended{Cause: CauseTooLarge, Err: err}
	}
	return &Ended{Cause: CauseAbrupt, Err: err}
}

func (x *exchange) Close() {
	if x.closed.Swap(true) {
		return
	}
	x.cancel()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.response != nil {
		_ = x.response.Body.Close()
	}
}

// onceReader notes whether anything was read of a request: what the transport
// has taken may be on the wire.
type onceReader struct {
	r    io.Reader
	read atomic.Bool
}

func (o *onceReader) Read(p []byte) (int, error) {
	o.read.Store(true)
	return o.r.Read(p)
}

// Heard is never: HTTP has no sign of life but its events.
func (x *exchange) Heard() time.Time { return time.Time{} }
