package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

const (
	// chunkBytes bounds what is held of a stream: most events are smaller, and
	// larger ones go through in parts.
	chunkBytes = 32 << 10
	// silentBeats is after how many keepalives that did not come a stream counts as
	// lost, and silentExtra the time for the first of them. A node that is gone is
	// noticed by the connection itself; this is for a process that stands still, and one
	// that does so for a minute ends its streams well.
	silentBeats = 5
	silentExtra = 10 * time.Second
)

var errSilent = errors.New("the peer has gone silent")

// silence notices that the owner of a stream is gone: it sends a keepalive when
// it has nothing else to send, so that longer silence is not the upstream's. The
// zero value never does: a turn without a stream is silent to its end.
type silence struct {
	after time.Duration
	timer *time.Timer
}

// newSilence starts counting.
func newSilence(req *bridge.Request, lost func()) *silence {
	beat := req.Runtime.Deadlines.Keepalive
	if !req.Stream || beat <= 0 {
		return &silence{}
	}
	after := silentBeats*beat + silentExtra
	return &silence{after: after, timer: time.AfterFunc(after, lost)}
}

func (s *silence) restart() {
	if s.timer != nil {
		s.timer.Reset(s.after)
	}
}

// stop pauses: while the client does not read, the peer is not waited for.
func (s *silence) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

// ownHeaders are of one hop, or made anew for the next.
var ownHeaders = map[string]bool{"Connection": true, "Keep-Alive": true, "Transfer-Encoding": true, "Trailer": true,
	"Te": true, "Upgrade": true, "Proxy-Connection": true, "Content-Length": true, "Date": true}

// relay brings a peer's answer to the client.
type relay struct {
	w     http.ResponseWriter
	req   *bridge.Request
	quiet *silence
	ctx   context.Context //nolint:containedctx // of this one answer; its cause is why it ends
}

func (a relay) run(res *http.Response) (telemetry.ForwardOutcome, string) {
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		a.head(res)
		return telemetry.ForwardAcknowledged, a.stream(res.Body)
	}
	// An answer in one piece was whole before its first byte came. Only when it is
	// whole here is its status true.
	body, err := io.ReadAll(io.LimitReader(res.Body, intake.MaxBody+1))
	if err == nil && len(body) > intake.MaxBody {
		err = errors.New("the answer is too large")
	}
	if err != nil {
		a.w.Header().Set("X-Request-Id", a.req.ID)
		lostPeer().WriteHTTP(a.w)
		return telemetry.ForwardAmbiguous, fmt.Sprintf("reading the answer: %v", err)
	}
	a.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	a.head(res)
	_, _ = a.w.Write(body)
	return telemetry.ForwardAcknowledged, ""
}

func (a relay) head(res *http.Response) {
	h := a.w.Header()
	for name, values := range res.Header {
		if !ownHeaders[name] && !strings.HasPrefix(name, headerPrefix) {
			h[name] = values
		}
	}
	a.w.WriteHeader(res.StatusCode)
}

// chunks are the buffers of streams.
var chunks = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// stream relays server-sent events as they come. It keeps back the start of an
// event whose end has not come, so that the stream can be ended properly when
// the peer is lost. It says how it ended, if not well.
func (a relay) stream(body io.Reader) string {
	buffer, _ := chunks.Get().(*[chunkBytes]byte)
	defer chunks.Put(buffer)
	control := http.NewResponseController(a.w)
	if control.Flush() != nil {
		return "the client is gone"
	}
	var seen events
	held := 0
	for {
		a.quiet.restart()
		n, err := body.Read(buffer[held:])
		a.quiet.stop()
		held += n
		if whole := seen.pass(buffer[:held]); whole > 0 {
			if _, err := a.w.Write(buffer[:whole]); err != nil || control.Flush() != nil {
				return "the client is gone"
			}
			held = copy(buffer[:], buffer[whole:held])
		}
		if err != nil {
			return a.end(control, &seen, err)
		}
	}
}

// end writes the terminal event that is missing, if it can be written.
func (a relay) end(control *http.ResponseController, seen *events, err error) string {
	if seen.terminal && !seen.torn {
		return ""
	}
	if !seen.torn { // a terminal event inside of another would be read as part of it
		why := lostPeer()
		if errors.Is(context.Cause(a.ctx), errLeaving) {
			why = failure.New(failure.Draining, "This proxy is going away; send the request again.", failure.Reason("stopping"))
		}
		event := why.Event(seen.idOr(a.req.ID), seen.nextSequence(), time.Now())
		_, _ = fmt.Fprintf(a.w, "event: response.failed\ndata: %s\n\n", event)
		_ = control.Flush()
	}
	if errors.Is(err, io.EOF) {
		return "the stream ended without its last event"
	}
	return "the stream broke"
}
