package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

func relayed(body io.Reader) (string, string) {
	w := httptest.NewRecorder()
	why := relay{w: w, req: &bridge.Request{ID: "req-1"}, quiet: &silence{}, ctx: context.Background()}.stream(body)
	return w.Body.String(), why
}

func event(name string, sequence, size int) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,\"x\":\"%s\"}\n\n", name, name, sequence, strings.Repeat("y", size))
}

// What comes goes, byte for byte, however it was cut, and however large it is.
func TestStreamsPassUnchanged(t *testing.T) {
	streams := map[string]string{
		"plain":    created + delta + completed,
		"comments": created + ": keepalive\n\n" + delta + completed,
		"large":    created + event("a", 1, 3*chunkBytes) + delta + event("response.completed", 3, 2*chunkBytes),
		"edges":    created + event("a", 1, chunkBytes-len(event("a", 1, 0))) + event("b", 2, chunkBytes-1-len(event("b", 2, 0))) + event("c", 3, chunkBytes+1-len(event("c", 3, 0))) + completed,
	}
	random := rand.New(rand.NewPCG(1, 2))
	var mixed strings.Builder
	mixed.WriteString(created)
	for i := range 200 {
		mixed.WriteString(event("x", i, random.IntN(1000)*random.IntN(100)))
	}
	streams["mixed"] = mixed.String() + completed
	for name, text := range streams {
		for cut, reader := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r },
			"bytes": iotest.OneByteReader,
			"parts": func(r io.Reader) io.Reader { return &partReader{r, random} },
		} {
			if cut == "bytes" && name == "mixed" {
				continue
			}
			if got, why := relayed(reader(strings.NewReader(text))); got != text || why != "" {
				t.Errorf("%s in %s: %d of %d bytes, %s", name, cut, len(got), len(text), why)
			}
		}
	}
}

type partReader struct {
	r      io.Reader
	random *rand.Rand
}

func (p *partReader) Read(b []byte) (int, error) {
	return p.r.Read(b[:min(len(b), 1+p.random.IntN(5000))])
}

// Wherever a stream breaks, its client gets whole events and one terminal event.
func TestABrokenStreamEndsWithOneTerminalEvent(t *testing.T) {
	text := created + delta + completed
	for at := range len(text) + 1 {
		got, why := relayed(io.MultiReader(strings.NewReader(text[:at]), iotest.ErrReader(errors.New("broken"))))
		events := strings.SplitAfter(got, "\n\n")
		events = events[:len(events)-1] // what follows the last end is nothing
		if !strings.HasSuffix(got, "\n\n") || len(events) == 0 {
			t.Fatalf("cut at %d: %q", at, got)
		}
		last := events[len(events)-1]
		before := strings.Join(events[:len(events)-1], "")
		if at == len(text) {
			if got != text || why != "" {
				t.Fatalf("broken behind the end: %q %s", got, why)
			}
			continue
		}
		if !strings.HasPrefix(last, "event: response.failed\n") || !strings.HasPrefix(text, before) || why == "" {
			t.Fatalf("cut at %d: %q", at, got)
		}
		data := gjson.Parse(string(dataOf([]byte(last))))
		id, sequence := "req-1", -1
		if len(events) > 1 {
			id, sequence = "resp_1", len(events)-1
		}
		if data.Get("response.id").Str != id || data.Get("response.error.code").Str != "stream_incomplete" || data.Get("response.error.reason").Str != "peer_lost" {
			t.Fatalf("cut at %d: %s", at, last)
		}
		if n := data.Get("sequence_number"); n.Exists() != (sequence >= 0) || n.Exists() && int(n.Int()) != sequence {
			t.Fatalf("cut at %d: %s, want number %d", at, last, sequence)
		}
	}
}

func TestAStreamThatEndsWithoutItsEndIsGivenOne(t *testing.T) {
	got, why := relayed(strings.NewReader(created + delta))
	if !strings.HasPrefix(got, created+delta+"event: response.failed\n") || why == "" {
		t.Errorf("%q %s", got, why)
	}
}

// Inside of an event that has partly passed nothing can be said; the client sees
// a stream without its end.
func TestAStreamThatBreaksInsideALargeEvent(t *testing.T) {
	large := event("response.completed", 1, 3*chunkBytes)
	got, why := relayed(strings.NewReader(created + large[:2*chunkBytes]))
	if strings.Contains(got, "response.failed") || !strings.HasPrefix(created+large, got) || why == "" {
		t.Errorf("%d bytes, %s", len(got), why)
	}
	// Behind one that has passed whole it can, and its number is known.
	got, _ = relayed(strings.NewReader(created + event("x", 41, 3*chunkBytes)))
	last := got[strings.LastIndex(strings.TrimSuffix(got, "\n\n"), "\n\n")+2:]
	if !strings.HasPrefix(last, "event: response.failed\n") || gjson.GetBytes(dataOf([]byte(last)), "sequence_number").Int() != 42 {
		t.Errorf("%q", last)
	}
}

// A peer that lives says so; one that does not, even within an open connection,
// is lost after five beats and ten seconds.
func TestSilenceOfAStreamIsALostPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read, write := io.Pipe()
		req := &bridge.Request{ID: "req-1", Stream: true, Runtime: &config.Runtime{Deadlines: config.Deadlines{Keepalive: 15 * time.Second}}}
		quiet := newSilence(req, func() { _ = read.CloseWithError(errSilent) })
		w := httptest.NewRecorder()
		done := make(chan telemetry.ForwardOutcome, 1)
		go func() {
			outcome, _ := relay{w: w, req: req, quiet: quiet, ctx: t.Context()}.run(&http.Response{StatusCode: http.StatusOK,
				Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: read})
			done <- outcome
		}()
		_, _ = io.WriteString(write, created)
		for range 20 {
			<-time.After(84 * time.Second)
			_, _ = io.WriteString(write, ": keepalive\n\n")
		}
		start := time.Now()
		if outcome := <-done; outcome != telemetry.ForwardAcknowledged || time.Since(start) != 85*time.Second {
			t.Errorf("%s after %s", outcome, time.Since(start))
		}
		if !strings.HasSuffix(w.Body.String(), "\n\n") || strings.Count(w.Body.String(), "event: response.failed\n") != 1 {
			t.Errorf("%q", w.Body)
		}
	})
	for _, req := range []*bridge.Request{ // these are silent to their end
		{Runtime: &config.Runtime{Deadlines: config.Deadlines{Keepalive: time.Second}}},
		{Stream: true, Runtime: &config.Runtime{}},
	} {
		if newSilence(req, nil).timer != nil {
			t.Errorf("%+v", req)
		}
	}
}

func TestOwnerDiesInTheMiddle(t *testing.T) {
	die := func() { panic(http.ErrAbortHandler) }
	t.Run("of a stream", func(t *testing.T) {
		o := newOwner(t, func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
			say(w, created, delta, completed[:30])
			die()
		})
		in := newOrigin(t, o.address)
		got := in.post(t, "{}")
		if got.err != nil || !strings.HasPrefix(got.body, created+delta+"event: response.failed\n") || strings.Count(got.body, "event: ") != 3 {
			t.Errorf("%q %v", got.body, got.err)
		}
		in.outcome(t, telemetry.ForwardAcknowledged)
	})
	t.Run("of an answer in one piece", func(t *testing.T) {
		o := newOwner(t, func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
			die()
		})
		in := newOrigin(t, o.address)
		if got := in.post(t, "{}", "X-Test-Stream", "no"); got.status != http.StatusBadGateway || got.err != nil || got.header.Get("Retry-After") != "" {
			t.Errorf("%d %v", got.status, got.err)
		}
		in.outcome(t, telemetry.ForwardAmbiguous)
	})
}
