package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/bridge"
)

// wait lets time go by, as a silent upstream or a slow client does.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// B77: a client that takes nothing gets nothing more, and its handler ends though
// the connection never does.
func TestB77_WhoTakesNothingIsCut(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			e := start(t, setup{stallTime: 200 * time.Millisecond, turns: func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				event := []byte("data: " + strings.Repeat("x", 1<<20) + "\n\n")
				for range 200 {
					if _, err := w.Write(event); err != nil {
						ended <- err
						return
					}
				}
				ended <- nil
			}})
			if protocol == "HTTP/2.0" {
				e.speakHTTP2()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			res, err := e.client.Do(e.request(t, "POST", "/backend-api/codex/responses", strings.NewReader(turnBody)).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("200 MiB went to nobody")
				}
			case <-ctx.Done():
				t.Fatal("the handler waits for ever")
			}
			if err := e.Live().Wait(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// Neither a stream that is silent for long nor a client that takes a large event
// piece by piece is cut.
func TestB77_WhoTakesSomethingIsNot(t *testing.T) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			const large = 24 << 20
			e := start(t, setup{stallTime: 300 * time.Millisecond, turns: func(w http.ResponseWriter, r *http.Request, _ *bridge.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, oneEvent)
				_ = http.NewResponseController(w).Flush()
				wait(r.Context(), 1200*time.Millisecond)
				_, _ = io.WriteString(w, strings.Repeat("x", large))
				_ = http.NewResponseController(w).Flush()
				wait(r.Context(), 1200*time.Millisecond) // and ends without a word
			}})
			if protocol == "HTTP/2.0" {
				e.speakHTTP2()
			}
			res, err := e.client.Do(e.request(t, "POST", "/backend-api/codex/responses", strings.NewReader(turnBody)))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			read, paused := 0, 0
			buffer := make([]byte, 1<<20)
			for {
				n, err := res.Body.Read(buffer)
				read += n
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("after %d bytes: %v", read, err)
				}
				if read-paused > 1<<20 { // some 15 MiB a second
					paused = read
					wait(t.Context(), 60*time.Millisecond)
				}
			}
			if read != len(oneEvent)+large {
				t.Errorf("%d bytes", read)
			}
		})
	}
}

// What net/http writes when the handler has ended is bounded too, and nothing of an
// answer that had no body is.
func TestAFinishedAnswerIsStillBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		serve func(a *answer)
		want  bool
	}{
		"a body": {func(a *answer) { _, _ = io.WriteString(a, "x") }, true},
		"a head": {func(a *answer) { a.WriteHeader(http.StatusNoContent) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := &bounding{ResponseRecorder: httptest.NewRecorder()}
			a := newAnswer(w, time.Minute)
			tt.serve(a)
			if !w.until.IsZero() {
				t.Error("a deadline for a write that gets on")
			}
			before := time.Now()
			a.stall.finish()
			if w.until.IsZero() == tt.want || tt.want && w.until.Before(before.Add(time.Minute)) {
				t.Error(w.until)
			}
			a.stall.look() // too late: the writer may be another's by now
			if got := w.calls; got > 1 {
				t.Errorf("%d deadlines", got)
			}
		})
	}
}

// bounding remembers its write deadline.
type bounding struct {
	*httptest.ResponseRecorder
	until time.Time
	calls int
}

func (b *bounding) SetWriteDeadline(t time.Time) error {
	b.until = t
	b.calls++
	return nil
}
