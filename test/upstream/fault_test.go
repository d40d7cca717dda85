package upstream

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/tidwall/gjson"
)

// faulty serves "one two three" with one fault: created, in_progress, item
// added, part added, three deltas, then text, part and item done, completed.
func faulty(t *testing.T, f Fault) *Server {
	t.Helper()
	if err := f.validate(); err != nil {
		t.Fatal(err)
	}
	return Start(t, Options{Mode: ModePlatform, Script: Script{
		Respond: &Respond{Text: "one two three"}, Rules: []Rule{{Fault: &f}},
	}})
}

func TestFaultsOverSSE(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   Fault
		status  int // 0: no answer at all
		events  int
		last    string // type of the last event
		cut     bool   // the body ended early
		outcome Outcome
		check   func(r reply) bool
	}{
		{
			name: "status", fault: Fault{Action: ActStatus, Status: 503, Headers: map[string]string{"Retry-After": "7"}},
			status: 503, outcome: OutcomeRefused, check: func(r reply) bool {
				return r.header.Get("Retry-After") == "7" && r.get("error.code") == "server_error"
			},
		},
		{
			name:   "status body",
			fault:  Fault{Action: ActStatus, Status: 429, Body: "slow down", Headers: map[string]string{"Content-Type": "text/plain"}},
			status: 429, outcome: OutcomeRefused, check: func(r reply) bool {
				return string(r.body) == "slow down" && r.header.Get("Content-Type") == "text/plain"
			},
		},
		{name: "html", fault: Fault{Action: ActHTML}, status: 200, outcome: OutcomeGarbled, check: func(r reply) bool {
			return strings.HasPrefix(r.header.Get("Content-Type"), "text/html") && strings.HasPrefix(string(r.body), "<html>")
		}},
		{name: "reset before headers", fault: Fault{Action: ActReset}, outcome: OutcomeReset, check: wasReset},
		{name: "fin before headers", fault: Fault{Action: ActFin}, outcome: OutcomeFin},
		{name: "garbage before headers", fault: Fault{Action: ActGarbage}, outcome: OutcomeGarbled},
		{
			name: "reset after headers", fault: Fault{At: AtAfterHeaders, Action: ActReset},
			status: 200, cut: true, outcome: OutcomeReset, check: wasReset,
		},
		{
			name: "reset after 3", fault: Fault{At: AfterEvents(3), Action: ActReset},
			status: 200, events: 3, last: "response.output_item.added", cut: true, outcome: OutcomeReset,
		},
		{
			name: "fin after created", fault: Fault{At: AtAfterCreated, Action: ActFin},
			status: 200, events: 1, last: "response.created", cut: true, outcome: OutcomeFin,
		},
		{
			name: "fin after item", fault: Fault{At: AtAfterItem, Action: ActFin},
			status: 200, events: 10, last: "response.output_item.done", cut: true, outcome: OutcomeFin,
		},
		{
			name: "error event", fault: Fault{At: AtAfterCreated, Action: ActErrorFrame, Status: 429, Code: "rate_limit_exceeded"},
			status: 200, events: 2, last: "error", outcome: OutcomeFailed,
		},
		{
			name: "status is too late", fault: Fault{At: AtAfterCreated, Action: ActStatus, Status: 500},
			status: 200, events: 2, last: "error", outcome: OutcomeFailed,
		},
		{
			name: "error event first", fault: Fault{Action: ActErrorFrame, Status: 500, Shape: ShapeFlat},
			status: 200, events: 1, last: "error", outcome: OutcomeRefused,
		},
		{
			name: "failed", fault: Fault{At: AfterEvents(5), Action: ActFailed, Code: "server_is_overloaded"},
			status: 200, events: 6, last: "response.failed", outcome: OutcomeFailed, check: func(r reply) bool {
				p := last(r.events).payload
				return gjson.GetBytes(p, "response.error.code").String() == "server_is_overloaded" && gjson.GetBytes(p, "sequence_number").Int() == 5
			},
		},
		{
			name: "incomplete", fault: Fault{At: AtBeforeTerminal, Action: ActIncomplete, Reason: "content_filter"},
			status: 200, events: 11, last: "response.incomplete", outcome: OutcomeIncomplete,
		},
		{
			name: "no terminal", fault: Fault{Action: ActNoTerminal},
			status: 200, events: 10, last: "response.output_item.done", outcome: OutcomeUnfinished,
		},
		{
			name: "terminal twice", fault: Fault{Action: ActTwice},
			status: 200, events: 12, last: "response.completed", outcome: OutcomeCompleted,
		},
		{
			name: "unmatched", fault: Fault{At: AfterEvents(2), Action: ActUnmatched},
			status: 200, events: 15, last: "response.completed", outcome: OutcomeCompleted,
		},
		{
			name: "dup", fault: Fault{At: AfterEvents(5), Action: ActDup},
			status: 200, events: 12, last: "response.completed", outcome: OutcomeCompleted, check: func(r reply) bool {
				return textOf(r.events) == "one one two three"
			},
		},
		{
			name: "truncated", fault: Fault{At: AfterEvents(4), Action: ActTruncate},
			status: 200, events: 11, last: "response.completed", outcome: OutcomeCompleted, check: func(r reply) bool {
				return !json.Valid(r.events[4].payload)
			},
		},
		{
			name: "unterminated", fault: Fault{At: AtBeforeTerminal, Action: ActUntermed},
			status: 200, events: 10, last: "response.output_item.done", outcome: OutcomeUnfinished, check: func(r reply) bool {
				return strings.Contains(string(r.body), "event: response.completed\ndata: {") && !strings.HasSuffix(string(r.body), "\n")
			},
		},
		{
			name: "pretty", fault: Fault{At: AtAfterCreated, Action: ActPretty},
			status: 200, events: 11, last: "response.completed", outcome: OutcomeCompleted, check: func(r reply) bool {
				return strings.HasPrefix(string(r.events[1].payload), "{\n  \"type\"") && json.Valid(r.events[1].payload)
			},
		},
		{
			name: "not JSON", fault: Fault{At: AtAfterCreated, Action: ActNonJSON},
			status: 200, events: 12, last: "response.completed", outcome: OutcomeCompleted,
		},
		{
			name: "stall", fault: Fault{At: AtAfterCreated, Action: ActStall, Duration: Duration(30 * time.Millisecond)},
			status: 200, events: 11, last: "response.completed", outcome: OutcomeCompleted,
		},
		{
			name: "slow", fault: Fault{At: AtBeforeTerminal, Action: ActSlow, BytesPerSecond: 20000},
			status: 200, events: 11, last: "response.completed", outcome: OutcomeCompleted,
		},
		{
			name: "after terminal", fault: Fault{At: AtAfterTerminal, Action: ActReset},
			status: 200, events: 11, last: "response.completed", cut: true, outcome: OutcomeCompleted,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := faulty(t, c.fault)
			r := post(t, s, "sk", body())
			if r.status != c.status || (c.status == 0) != (r.err != nil && r.status == 0) {
				t.Fatalf("status %d, error %v; want %d", r.status, r.err, c.status)
			}
			if c.status != 0 && (r.err != nil) != c.cut {
				t.Errorf("reading the body: %v; want cut %v", r.err, c.cut)
			}
			if !c.cut || !errors.Is(r.err, syscall.ECONNRESET) { // an RST may overtake events
				if got := names(r.events); len(got) != c.events || last(r.events).name != c.last {
					t.Errorf("got %v, want %d events, the last %q", got, c.events, c.last)
				}
			}
			d := ended(t, s, 1)[0]
			if d.Outcome != c.outcome || d.Fault != c.fault.Action || d.Rule != "rule 1" {
				t.Errorf("ledger: outcome %s, fault %q, rule %q", d.Outcome, d.Fault, d.Rule)
			}
			if c.check != nil && !c.check(r) {
				t.Errorf("got %v, %v\n%s", r.err, r.header, r.body)
			}
		})
	}
}

func wasReset(r reply) bool { return errors.Is(r.err, syscall.ECONNRESET) }

func TestFaultsOverWebSocket(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   Fault
		frames  int // read until the socket ends or a terminal event
		last    string
		close   int // close code seen; 0: the socket lives
		outcome Outcome
	}{
		{
			"status", Fault{Action: ActStatus, Status: 503},
			1, `{"type":"error","status":503,"error":{"type":"server_error","code":"server_error","message":"Scripted error server_error."}}`,
			0, OutcomeRefused,
		},
		{
			"nested", Fault{Action: ActErrorFrame, Status: 429, Headers: map[string]string{"retry-after": "3"}, Message: "rl"},
			1, `{"type":"error","status":429,"error":{"type":"rate_limit_error","code":"rate_limit_exceeded","message":"rl"},` +
				`"headers":{"retry-after":"3"}}`,
			0, OutcomeRefused,
		},
		{
			"flat", Fault{At: AtAfterCreated, Action: ActErrorFrame, Shape: ShapeFlat, Code: "c", Message: "m"},
			2, `{"type":"error","code":"c","message":"m","param":null}`,
			0, OutcomeFailed,
		},
		{
			"type only", Fault{Action: ActErrorFrame, Shape: ShapeTypeOnly, Status: 400},
			1, `{"type":"error","status":400,"error":{"type":"invalid_request_error"}}`,
			0, OutcomeRefused,
		},
		{
			"no status", Fault{Action: ActErrorFrame, Shape: ShapeNoStatus, Type: "t", Message: "m"},
			1, `{"type":"error","error":{"type":"t","message":"m"}}`,
			0, OutcomeRefused,
		},
		{
			"status code", Fault{Action: ActErrorFrame, Shape: ShapeStatusCode, Status: 503, Type: "t", Message: "m"},
			1, `{"type":"error","status_code":503,"error":{"type":"t","message":"m"}}`,
			0, OutcomeRefused,
		},
		{"error then close", Fault{Action: ActErrorFrame, CloseCode: 1008}, 1, "", 1008, OutcomeRefused},
		{"close", Fault{At: AfterEvents(2), Action: ActWSClose, CloseCode: 1012, Reason: "restart"}, 2, "", 1012, OutcomeClosed},
		{"close, no code", Fault{Action: ActWSClose}, 0, "", 1011, OutcomeClosed},
		{"fin", Fault{At: AfterEvents(2), Action: ActFin}, 2, "", 1006, OutcomeFin},
		{"reset", Fault{Action: ActReset}, 0, "", 1006, OutcomeReset},
		{"not JSON", Fault{At: AtAfterCreated, Action: ActNonJSON, Body: "hm"}, 12, "", 0, OutcomeCompleted},
		{"binary", Fault{At: AtAfterCreated, Action: ActBinary}, 12, "", 0, OutcomeCompleted},
		{"html", Fault{At: AtAfterCreated, Action: ActHTML, Body: "<html>"}, 2, "<html>", -1, OutcomeGarbled},
		{"garbage", Fault{At: AtAfterCreated, Action: ActGarbage}, 1, "", -2, OutcomeGarbled},
		{"dup", Fault{At: AtAfterCreated, Action: ActDup}, 12, "", 0, OutcomeCompleted},
		{"unmatched", Fault{At: AtAfterCreated, Action: ActUnmatched}, 15, "", 0, OutcomeCompleted},
		{"pretty", Fault{Action: ActPretty}, 11, "", 0, OutcomeCompleted},
		{"no terminal", Fault{Action: ActNoTerminal}, 10, "", -1, OutcomeUnfinished},
		{"unterminated", Fault{At: AtBeforeTerminal, Action: ActUntermed}, 10, "", -1, OutcomeUnfinished},
		{"mute", Fault{At: AtAfterCreated, Action: ActMute}, 1, "", -1, OutcomeMuted},
		{"stall for ever", Fault{At: AtAfterCreated, Action: ActStall}, 1, "", -1, OutcomeMuted},
		{"pong silence", Fault{Action: ActNoPong}, 11, "", 0, OutcomeCompleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := faulty(t, c.fault)
			k := dial(t, s, "sk")
			k.say(create())
			var frames []string
			var err error
			for err == nil && (c.close >= 0 || len(frames) < c.frames) {
				var b []byte
				if _, b, err = k.ReadMessage(); err == nil {
					frames = append(frames, string(b))
					if e := gjson.GetBytes(b, "type").String(); c.close == 0 && (e == "error" || e == "response.completed") {
						break
					}
				}
			}
			if len(frames) != c.frames && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %d frames, want %d: %v", len(frames), c.frames, err)
			}
			if c.last != "" && (len(frames) == 0 || frames[len(frames)-1] != c.last) {
				t.Errorf("got  %v\nwant %s", frames, c.last)
			}
			checkEnd(t, s, k, c.close, err)
			if err := s.Ledger().Wait(k.ctx, func(ds []Dispatch) bool { return ds[0].Outcome == c.outcome }); err != nil {
				t.Errorf("ledger: %s, want %s", s.Ledger().Dispatches()[0].Outcome, c.outcome)
			}
		})
	}
}

// checkEnd compares how a socket ended: -1 it must still be there, silent;
// -2 it must break.
func checkEnd(t *testing.T, s *Server, k *sock, want int, err error) {
	t.Helper()
	var ce *websocket.CloseError
	switch {
	case want == -2:
		if _, _, err := k.ReadMessage(); err == nil {
			t.Error("the garbage was a frame")
		}
	case want <= 0:
		if err != nil {
			t.Errorf("the socket ended: %v", err)
		}
	case want == 1006:
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.ErrUnexpectedEOF) && (!errors.As(err, &ce) || ce.Code != want) {
			t.Errorf("got %v, want an end without close frame", err)
		}
	default:
		if !errors.As(err, &ce) || ce.Code != want {
			t.Errorf("got %v, want close code %d", err, want)
		}
	}
	if want <= 0 {
		return
	}
	ended(t, s, 1)
	if rec := s.Ledger().Connections()[0]; rec.CloseCode != want || rec.ClosedBy != "server" {
		t.Errorf("ledger: closed with %d by %s, want %d by server", rec.CloseCode, rec.ClosedBy, want)
	}
}

func TestFaultsAtTheUpgrade(t *testing.T) {
	for _, c := range []struct {
		fault  Fault
		status int
	}{
		{Fault{At: AtUpgrade, Action: ActStatus, Status: 426}, 426},
		{Fault{At: AtUpgrade, Action: ActStatus, Status: 429, Headers: map[string]string{"Retry-After": "1"}}, 429},
		{Fault{At: AtUpgrade, Action: ActHTML}, 200},
		{Fault{At: AtUpgrade, Action: ActReset}, 0},
		{Fault{At: AtUpgrade, Action: ActFin}, 0},
		{Fault{At: AtUpgrade, Action: ActStall, Duration: Duration(time.Millisecond)}, 101},
		{Fault{At: AtUpgrade, Action: ActWSClose}, 101},
		{Fault{At: AtUpgrade, Action: ActNoPong}, 101},
	} {
		t.Run(c.fault.Action, func(t *testing.T) {
			s := faulty(t, c.fault)
			ws, head, err := open(testContext(t), s, websocket.Dialer{}, "/v1/responses", "sk")
			if ws != nil {
				_ = ws.Close()
			}
			status := head.status
			if status != c.status || (err == nil) != (c.status == 101) {
				t.Errorf("got %d, %v; want %d", status, err, c.status)
			}
		})
	}
}

func TestFaultsOfAJSONAnswer(t *testing.T) {
	for _, c := range []struct {
		fault  Fault
		status int
		valid  bool
	}{
		{Fault{Action: ActStatus, Status: 500}, 500, true},
		{Fault{At: AtAfterCreated, Action: ActErrorFrame, Status: 503}, 503, true},
		{Fault{At: AtAfterCreated, Action: ActFailed}, 200, true},
		{Fault{At: AtBeforeTerminal, Action: ActUntermed}, 200, false},
		{Fault{Action: ActHTML}, 200, false},
		{Fault{At: AtAfterCreated, Action: ActReset}, 0, false},
		{Fault{Action: ActPretty}, 200, true},
	} {
		t.Run(c.fault.Action, func(t *testing.T) {
			r := post(t, faulty(t, c.fault), "sk", body("stream", false))
			if r.status != c.status || json.Valid(r.body) != c.valid {
				t.Errorf("got %d %s", r.status, r.body)
			}
		})
	}
}

func TestChunksSplitCharacters(t *testing.T) {
	const s3 = "grüße 日本 🙂"
	s := Start(t, Options{Script: Script{Respond: &Respond{Deltas: []string{s3}, ChunkBytes: 1}}})
	if got := textOf(post(t, s, "sk", body()).events); got != s3 {
		t.Errorf("SSE: got %q", got)
	}
	k := dial(t, s, "sk")
	if got := textOf(k.turn()); got != s3 {
		t.Errorf("WebSocket: got %q", got)
	}
	ds := ended(t, s, 2)
	if ds[0].Events != 9 || ds[1].Events != 9 {
		t.Errorf("ledger: %d and %d events", ds[0].Events, ds[1].Events)
	}
}

func TestLedgerKnowsWhatTheClientGot(t *testing.T) {
	s := Start(t, Options{Script: Script{Respond: &Respond{Fill: Fill{Deltas: 3, Bytes: 50_000}, Reasoning: "R"}}})
	r := post(t, s, "sk", body())
	k := dial(t, s, "sk")
	frames := k.turn()
	one := post(t, s, "sk", body("stream", false))
	for i, d := range ended(t, s, 3) {
		got := [][]byte{payloads(r.events), payloads(frames), one.body}[i]
		if d.EventsDigest != Digest(got) {
			t.Errorf("dispatch %d: %d events with digest %s, client has %s", i, d.Events, d.EventsDigest, Digest(got))
		}
	}
}

func payloads(events []event) []byte {
	var all [][]byte
	for _, e := range events {
		all = append(all, e.payload)
	}
	return slices.Concat(all...)
}

func TestInterruptEndsAResponse(t *testing.T) {
	s := faulty(t, Fault{At: AtAfterCreated, Action: ActStall, Duration: Duration(time.Hour)})
	k := dial(t, s, "sk")
	k.say(create())
	id := gjson.Get(k.next(), "response.id").String()
	k.say(`{"type":"response.interrupt","response_id":"` + id + `","mode":"discard_partial_items"}`)
	e := last(k.answer())
	if e.name != "response.incomplete" || gjson.GetBytes(e.payload, "response.incomplete_details.reason").String() != "interrupted" {
		t.Errorf("got %s", e.payload)
	}
	if err := s.Script(Script{}); err != nil {
		t.Fatal(err)
	}
	if got := last(k.turn("previous_response_id", id)).name; got != "response.completed" {
		t.Errorf("an interrupted response is no anchor: %s", got)
	}
}

func TestSocketOutOfTime(t *testing.T) {
	s := Start(t, Options{Script: Script{Connection: Connection{MaxAge: Duration(20 * time.Millisecond)}}})
	k := dial(t, s, "sk")
	if got := gjson.Get(k.next(), "error.code").String(); got != "websocket_connection_limit_reached" {
		t.Errorf("got %s", got)
	}
	if _, _, err := k.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("got %v, want a close", err)
	}
}
