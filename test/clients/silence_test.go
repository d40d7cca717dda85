package clients

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/test/upstream"
)

// The real clients give up after 300 s without an event (Codex) or a byte (fetch
// of Node), the upstream thinks for 400 s, and the proxy sends a keepalive every
// 15 s. Here all of it is shorter, by about a hundred; keepalives, of whole
// seconds, come at a third of the clients' patience instead of a twentieth.
const (
	clientTimerMS = 3000
	silence       = 6500 * time.Millisecond // 2 s of it are the proxy's hold, before the head
	// headHeld is how long the proxy holds an answer's head back for an error
	// that may come; clients' timers begin after it.
	headHeld = 2 * time.Second
)

func silenceAt(at string) time.Duration {
	if at == upstream.AtBeforeHeaders {
		return headHeld + silence
	}
	return silence
}

// quiet is a proxy before an upstream that falls silent at the given place.
func quiet(t *testing.T, at string, keepalive int) *stage {
	t.Helper()
	return start(t, setup{keepalive: keepalive, idle: 120, script: upstream.Script{
		Respond: &upstream.Respond{Text: "Thought it over."},
		Rules: []upstream.Rule{{Fault: &upstream.Fault{
			At: at, Action: upstream.ActStall, Duration: upstream.Duration(silenceAt(at)),
		}}},
	}})
}

// places of the silence.
var places = []string{upstream.AtBeforeHeaders, upstream.AtAfterCreated, upstream.AfterEvents(5), upstream.AtBeforeTerminal}

func impatientCodex(t *testing.T, base string) *codex {
	t.Helper()
	return newCodex(t, codexSettings{base: base + "/v1", idleMS: clientTimerMS, retries: "0"})
}

// B06: the real Codex waits through a silence longer than its timer.
func TestB06_CodexStaysThroughSilence(t *testing.T) {
	for _, at := range places {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			s := quiet(t, at, 1)
			run := impatientCodex(t, s.data).exec(t, "Think.")
			run.finished(t, 0, "Thought it over.")
			if run.took < silenceAt(at) {
				t.Errorf("it took %s, less than the silence", run.took)
			}
			if n := len(s.up.Ledger().Dispatches()); n != 1 {
				t.Errorf("%d dispatches, want 1", n)
			}
		})
	}
}

// B06, the counter-proof: without keepalives that Codex sees, the same silence
// ends its turn. Comments are none: this is why the proxy sends events.
func TestB06_CodexLeavesWithoutEvents(t *testing.T) {
	t.Run("nothing", func(t *testing.T) {
		t.Parallel()
		s := quiet(t, upstream.AtAfterCreated, 60)
		if run := impatientCodex(t, s.data).exec(t, "Think."); !run.failed {
			t.Error(run.raw)
		}
	})
	t.Run("comments", func(t *testing.T) {
		t.Parallel()
		s := quiet(t, upstream.AtAfterCreated, 1)
		base, comments := startCommenter(t, s.data)
		if run := impatientCodex(t, base).exec(t, "Think."); !run.failed {
			t.Error(run.raw)
		}
		if comments() == 0 {
			t.Error("no comment was sent")
		}
	})
}

// B06: the SDKs' parsers take the same keepalives, and the timers around them
// are content.
func TestB06_SDKsStayThroughSilence(t *testing.T) {
	for _, at := range places {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			st := quiet(t, at, 1)
			forEach(t, func(t *testing.T, s sdk) {
				// An answer in one piece leaves nothing to send before it.
				j := job{IdleMS: clientTimerMS}
				for _, kind := range s.kinds()[1:] {
					j.Calls = append(j.Calls, call{Kind: kind, Request: ask("Think.")})
				}
				for i, o := range s.run(t, st.data, j) {
					if o.Error != nil || o.Text != "Thought it over." || o.last() != "response.completed" || o.ElapsedMS < int(silenceAt(at).Milliseconds()) {
						t.Errorf("%s: %s", j.Calls[i].Kind, o)
					}
					// Before response.created the SDKs take no event at all.
					if at != upstream.AtBeforeHeaders && o.count("keepalive") < 3 {
						t.Errorf("%s: %d keepalives: %s", j.Calls[i].Kind, o.count("keepalive"), o)
					}
				}
			})
			st.noDuplicates(t)
		})
	}
}

// B06, the counter-proof.
func TestB06_SDKsLeaveWithoutKeepalives(t *testing.T) {
	st := quiet(t, upstream.AtAfterCreated, 60)
	forEach(t, func(t *testing.T, s sdk) {
		o := s.run(t, st.data, job{IdleMS: clientTimerMS, Calls: []call{{Kind: stream, Request: ask("Think.")}}})[0]
		if o.Error == nil || o.ElapsedMS < clientTimerMS-500 {
			t.Errorf("the timer does not bite: %s", o)
		}
	})
}

// startCommenter serves the proxy's answers with every keepalive event replaced
// by a comment, and counts these.
func startCommenter(t *testing.T, target string) (base string, comments func() int) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	made := make(chan struct{}, 1000)
	front := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
			FlushInterval: -1, Transport: transport,
			ModifyResponse: func(res *http.Response) error {
				res.Body = &commented{Closer: res.Body, events: bufio.NewReader(res.Body), made: made}
				return nil
			},
		},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = front.Serve(ln)
	}()
	t.Cleanup(func() {
		front.Close()
		<-ended
		transport.CloseIdleConnections()
	})
	return "http://" + ln.Addr().String(), func() int { return len(made) }
}

// commented is a body with comments in the place of keepalives.
type commented struct {
	io.Closer
	events *bufio.Reader
	rest   bytes.Buffer
	made   chan<- struct{}
}

func (c *commented) Read(p []byte) (int, error) {
	for c.rest.Len() == 0 {
		line, err := c.events.ReadString('\n')
		switch {
		case strings.HasPrefix(line, "event: keepalive"):
			c.rest.WriteString(": keepalive\n")
			c.made <- struct{}{}
		case strings.HasPrefix(line, `data: {"type":"keepalive"`):
		default:
			c.rest.WriteString(line)
		}
		if err != nil && c.rest.Len() == 0 {
			return 0, err
		}
	}
	return c.rest.Read(p)
}
