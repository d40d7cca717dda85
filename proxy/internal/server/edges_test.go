package server

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/bridge"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/intake"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

const oneEvent = "event: response.created\ndata: {}\n\n"

// T73: a panic ends its own stream, honestly, and no other; nothing counts on.
func TestT73_APanicEndsOneStreamOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		before string // what was written by then
		want   string
		cut    bool
	}{
		"before the head":  {"", `"code":"internal_error"`, false},
		"between events":   {oneEvent, "event: response.failed\ndata: {\"type\":\"response.failed\"", false},
		"within an event":  {"event: response.created\ndata: {", "", true},
		"right behind one": {"event: response.created\ndata: {}\n", "", true},
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(name+" "+protocol, func(t *testing.T) {
				release := make(chan struct{})
				e := start(t, setup{turns: func(w http.ResponseWriter, _ *http.Request, req *bridge.Request) {
					if strings.Contains(string(req.Body), "good") {
						w.Header().Set("Content-Type", "text/event-stream")
						_, _ = io.WriteString(w, oneEvent)
						_ = http.NewResponseController(w).Flush()
						<-release
						_, _ = io.WriteString(w, "event: response.completed\ndata: {}\n\n")
						return
					}
					if tt.before != "" {
						w.Header().Set("Content-Type", "text/event-stream")
						_, _ = io.WriteString(w, tt.before)
						_ = http.NewResponseController(w).Flush()
					}
					panic("CANARY")
				}})
				if protocol == "HTTP/2.0" {
					e.speakHTTP2()
				}
				good, err := e.client.Do(e.request(t, "POST", "/v1/responses", strings.NewReader(`{"model":"good","stream":true}`)))
				if err != nil {
					t.Fatal(err)
				}
				defer good.Body.Close()
				bad, err := e.client.Do(e.request(t, "POST", "/v1/responses", strings.NewReader(`{"model":"bad","stream":true}`)))
				if err != nil {
					t.Fatal(err)
				}
				defer bad.Body.Close()
				raw, err := io.ReadAll(bad.Body)
				if (err != nil) != tt.cut || !strings.HasPrefix(string(raw), tt.before) || !strings.Contains(string(raw), tt.want) || bad.Proto != protocol {
					t.Errorf("%s %d %q %v", bad.Proto, bad.StatusCode, raw, err)
				}
				close(release)
				rest, err := io.ReadAll(good.Body)
				if err != nil || !strings.HasSuffix(string(rest), "event: response.completed\ndata: {}\n\n") {
					t.Errorf("the other stream: %q %v", rest, err)
				}
				if err := e.Live().Wait(t.Context()); err != nil || e.Live().Count() != 0 {
					t.Error(err, e.Live().Count())
				}
				if text := e.scrape(t); strings.Count(text, `outcome="internal"`) == 0 {
					t.Error("the panic is not counted")
				}
				if strings.Contains(e.log.String(), "CANARY") || !strings.Contains(e.log.String(), "edges_test.go") {
					t.Error("the log has the panic's value or not its place")
				}
			})
		}
	}
}

// speakHTTP2 makes the client use HTTP/2 without TLS.
func (e *edge) speakHTTP2() {
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	e.client.Transport = &http.Transport{Protocols: &protocols, DisableCompression: true}
}

// T72: a disk that is full takes no log lines; it must not take clients.
func TestT72_ServingGoesOnWithoutALog(t *testing.T) {
	logger, err := telemetry.NewLogger(full{}, "debug")
	if err != nil {
		t.Fatal(err)
	}
	e := start(t, setup{logger: logger})
	for range 3 {
		if got := e.call(t, "POST", "/v1/responses", turnBody); got.StatusCode != http.StatusOK {
			t.Error(got.StatusCode, got.text)
		}
		if got := e.call(t, "POST", "/v1/responses", "{"); got.StatusCode != http.StatusBadRequest {
			t.Error(got.StatusCode, got.text)
		}
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// B63: images make requests large. What is too large is said once, in words that
// make no client change its transport, and the connection goes on.
func TestB63_TooLargeIsSaidOnceAndTheConnectionGoesOn(t *testing.T) {
	e := start(t, setup{intake: intake.Options{MaxBody: 20 << 20}, turns: func(w http.ResponseWriter, _ *http.Request, _ *bridge.Request) {
		_, _ = io.WriteString(w, "ok")
	}})
	image := func(size int) string {
		head, tail := `{"model":"m","input":[{"type":"input_image","image_url":"data:image/png;base64,`, `"}]}`
		return head + strings.Repeat("A", size-len(head)-len(tail)) + tail
	}
	limit := 20 << 20
	local := map[string]bool{}
	for _, tt := range []struct{ size, status int }{{limit, 200}, {limit + 1, 400}, {2 * limit, 400}, {limit - 1, 200}} {
		req := e.request(t, "POST", "/v1/responses", strings.NewReader(image(tt.size)))
		got := e.do(t, req.WithContext(noteConnection(req.Context(), local)))
		if got.StatusCode != tt.status || got.Close || tt.status == 400 && got.code() != failure.PayloadTooLarge {
			t.Errorf("%d bytes: %d %.200s %v", tt.size, got.StatusCode, got.text, got.Header)
		}
		if tt.status == 400 && (got.Header.Get("Retry-After") != "" || got.Header.Get("X-Causeway-Retry") != "never") {
			t.Errorf("a client is asked to send it again: %v", got.Header)
		}
	}
	if len(local) != 1 {
		t.Errorf("%d connections", len(local))
	}
}

func TestTheBudgetOfATurnComesFromItsCaller(t *testing.T) {
	e := start(t, setup{change: func(b *bundle.Bundle, _ *bundle.Credentials) { b.Circuit.Deadlines.CallerMaxSeconds = 60 }})
	for name, tt := range map[string]struct {
		headers []string
		path    string
		least   time.Duration // 0 = without end
		clamped string
	}{
		"nobody asks":         {nil, "/backend-api/codex/responses", 0, ""},
		"the caller asks":     {[]string{deadline.TimeoutHeader, "30000"}, "/backend-api/codex/responses", 30 * time.Second, ""},
		"it asks for more":    {[]string{deadline.TimeoutHeader, "3600000"}, "/backend-api/codex/responses", time.Minute, "1"},
		"an SDK's timer":      {[]string{"X-Stainless-Timeout", "20"}, "/v1/responses", 20 * time.Second, ""},
		"an SDK's, streaming": {[]string{"X-Stainless-Timeout", "20"}, "/backend-api/codex/responses", 0, ""},
		"in one piece":        {nil, "/v1/responses", 600 * time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			got := e.call(t, "POST", tt.path, turnBody, tt.headers...)
			if got.StatusCode != http.StatusOK || got.Header.Get(deadline.ClampedHeader) != tt.clamped {
				t.Fatalf("%d %s %v", got.StatusCode, got.text, got.Header)
			}
			left, bounded := e.turns.last().Budget.Remaining(before)
			if bounded != (tt.least > 0) || left < tt.least || left > tt.least+10*time.Second {
				t.Errorf("%v %v", left, bounded)
			}
		})
	}
	got := e.call(t, "POST", "/v1/responses", turnBody, deadline.TimeoutHeader, "soon")
	if got.StatusCode != http.StatusBadRequest || gjson.Get(got.text, "error.param").Str != "x-causeway-timeout-ms" {
		t.Errorf("%d %s", got.StatusCode, got.text)
	}
}
