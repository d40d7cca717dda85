package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for; nothing here should take so long.
const patience = 20 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// client is an HTTP client whose connections end with the test.
func client(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// reply is what came back over HTTP.
type reply struct {
	status int
	header http.Header
	body   []byte
	events []event
	err    error // of reading the body
}

func (r reply) get(path string) string { return gjson.GetBytes(r.body, path).String() }

func call(t *testing.T, s *Server, method, path, token, body string, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(testContext(t), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := client(t).Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, b, readSSE(b), err}
}

func post(t *testing.T, s *Server, token, body string) reply {
	t.Helper()
	return call(t, s, http.MethodPost, "/v1/responses", token, body)
}

// readSSE reads complete events, the way a strict client does.
func readSSE(b []byte) []event {
	var out []event
	var e event
	var lines []string
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, maxBody)
	for sc.Scan() {
		switch line := sc.Text(); {
		case line == "" && lines != nil:
			e.payload = []byte(strings.Join(lines, "\n"))
			out = append(out, e)
			e, lines = event{}, nil
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			lines = append(lines, line[len("data: "):])
		}
	}
	return out
}

// sock is a WebSocket client.
type sock struct {
	t   *testing.T
	ctx context.Context // the life of the test
	*websocket.Conn
}

// open dials a socket; the reply is the answer to the upgrade.
func open(ctx context.Context, s *Server, d websocket.Dialer, path, token string) (*websocket.Conn, reply, error) {
	if s.dial != nil {
		d.NetDialContext = s.Dial
	}
	url := "ws" + strings.TrimPrefix(s.URL, "http") + path
	c, res, err := d.DialContext(ctx, url, http.Header{"Authorization": {"Bearer " + token}, "Originator": {"test"}})
	if res == nil {
		return c, reply{}, err
	}
	_ = res.Body.Close()
	return c, reply{status: res.StatusCode, header: res.Header}, err
}

func dialAt(t *testing.T, s *Server, path, token string) *sock {
	t.Helper()
	ctx := testContext(t)
	c, _, err := open(ctx, s, websocket.Dialer{HandshakeTimeout: patience}, path, token)
	if err != nil {
		t.Fatalf("dialing: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return &sock{t, ctx, c}
}

func dial(t *testing.T, s *Server, token string) *sock {
	t.Helper()
	return dialAt(t, s, "/v1/responses", token)
}

func (k *sock) say(frame string) {
	k.t.Helper()
	if err := k.WriteMessage(websocket.TextMessage, []byte(frame)); err != nil {
		k.t.Fatalf("writing: %v", err)
	}
}

func (k *sock) next() string {
	k.t.Helper()
	_, b, err := k.ReadMessage()
	if err != nil {
		k.t.Fatalf("reading: %v", err)
	}
	return string(b)
}

// answer reads up to the end of one response.
func (k *sock) answer() []event {
	k.t.Helper()
	var out []event
	for {
		b := k.next()
		e := event{gjson.Get(b, "type").String(), []byte(b)}
		out = append(out, e)
		if e.terminal() || e.name == "error" {
			return out
		}
	}
}

// turn sends a response.create and reads its answer.
func (k *sock) turn(pairs ...any) []event {
	k.t.Helper()
	k.say(create(pairs...))
	return k.answer()
}

// create is a frame with the usual fields; pairs overwrite them.
func create(pairs ...any) string {
	return body(append([]any{"type", "response.create"}, pairs...)...)
}

func body(pairs ...any) string {
	m := map[string]any{"model": "gpt-5.5", "store": false, "stream": true, "input": "hello"}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func last(events []event) event {
	if len(events) == 0 {
		return event{}
	}
	return events[len(events)-1]
}

func idOf(events []event) string { return gjson.GetBytes(last(events).payload, "response.id").String() }

func codeOf(events []event) string {
	return gjson.GetBytes(last(events).payload, "error.code").String()
}

func names(events []event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.name)
	}
	return out
}

func textOf(events []event) string {
	var b strings.Builder
	for _, e := range events {
		if e.name == "response.output_text.delta" {
			b.WriteString(gjson.GetBytes(e.payload, "delta").String())
		}
	}
	return b.String()
}

// ended waits for n dispatches to end and returns all.
func ended(t *testing.T, s *Server, n int) []Dispatch {
	t.Helper()
	if err := s.Ledger().WaitEnded(testContext(t), n); err != nil {
		t.Fatalf("%v; have %+v", err, s.Ledger().Dispatches())
	}
	return s.Ledger().Dispatches()
}

func toolOutput(callID, output string) map[string]any {
	return map[string]any{"type": "function_call_output", "call_id": callID, "output": output}
}

func message(role, s string) map[string]any {
	part := "input_text"
	if role == "assistant" {
		part = "output_text"
	}
	return map[string]any{"type": "message", "role": role, "content": []any{map[string]any{"type": part, "text": s}}}
}

func bodyOf(s string) io.ReadCloser { return io.NopCloser(strings.NewReader(s)) }
