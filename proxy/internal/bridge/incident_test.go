package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/test/upstream"
)

// The incident that this product was made for: the upstream has lost what a
// conversation is anchored on, and answers every turn that names it with an
// error, with half an answer, or with nothing.

// talk is a conversation in which every message leads to one tool call first.
var talk = &upstream.Conversation{ToolTurns: 1, Tool: "shell", Arguments: `{"cmd":"step {{turn}}"}`, FinalText: "done"}

// brief deadlines make silence a failure after a second.
var brief = bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, FirstEventSeconds: 1, IdleSeconds: 1, KeepaliveSeconds: 15, CancelGraceSeconds: 1}

// lost is one way in which an upstream treats an anchor that it has lost.
type lost struct {
	name    string
	rule    upstream.Rule
	forget  bool // the upstream does by itself what it does with an unknown anchor
	verdict string
	cause   string
	// inTurn: a whole payload is served in the same turn; else in the next one.
	inTurn bool
	status int // of a turn that is not served
	code   string
}

// denials are the words of an upstream that says so.
func denials() []lost {
	const notFound, terse = "Previous response with id 'x' not found.", "Invalid `previous_response_id`."
	undotted := strings.TrimSuffix(terse, ".")
	faults := map[string]upstream.Fault{}
	for _, status := range []int{400, 404} {
		for _, shape := range []string{upstream.ShapeNested, upstream.ShapeFlat, upstream.ShapeNoStatus, upstream.ShapeStatusCode} {
			faults[fmt.Sprintf("%s %d", shape, status)] = upstream.Fault{Action: upstream.ActErrorFrame, Shape: shape, Status: status,
				Code: "previous_response_not_found", Type: "invalid_request_error", Param: "previous_response_id", Message: notFound}
		}
		faults[fmt.Sprintf("only the type %d", status)] = upstream.Fault{Action: upstream.ActErrorFrame, Shape: upstream.ShapeTypeOnly,
			Status: status, Type: "previous_response_not_found"}
		faults[fmt.Sprintf("terse %d", status)] = upstream.Fault{Action: upstream.ActErrorFrame, Status: status, Type: "invalid_request_error", Message: terse}
	}
	for name, f := range map[string]upstream.Fault{
		"terse, no dot":     {Action: upstream.ActErrorFrame, Status: 400, Type: "invalid_request_error", Message: undotted},
		"terse with param":  {Action: upstream.ActErrorFrame, Status: 400, Type: "invalid_request_error", Param: "previous_response_id", Message: terse},
		"no type at all":    {Action: upstream.ActErrorFrame, Body: `{"error":{"code":"previous_response_not_found","message":"gone"}}`},
		"only code at top":  {Action: upstream.ActErrorFrame, Body: `{"type":"error","code":"previous_response_not_found"}`},
		"words with param":  {Action: upstream.ActErrorFrame, Status: 400, Type: "invalid_request_error", Param: "previous_response_id", Message: notFound},
		"failed, code":      {Action: upstream.ActFailed, Code: "previous_response_not_found", Message: notFound},
		"failed, only type": {Action: upstream.ActFailed, Body: `{"type":"previous_response_not_found"}`},
		"failed, terse":     {Action: upstream.ActFailed, Body: `{"type":"invalid_request_error","code":null,"message":"` + terse + `","param":null}`},
		"failed, no dot":    {Action: upstream.ActFailed, Body: `{"code":"invalid_request_error","message":"` + undotted + `"}`},
	} {
		faults[name] = f
	}
	var out []lost
	for name, f := range faults {
		out = append(out, lost{name: name, rule: upstream.Rule{Fault: &f}, verdict: "denied", cause: "AnchorDenied", inTurn: true,
			status: http.StatusBadRequest, code: "previous_response_not_found"})
	}
	slices.SortFunc(out, func(a, b lost) int { return strings.Compare(a.name, b.name) })
	return out
}

// wedges are upstreams that work on the turn and never create its response.
func wedges() []lost {
	reasoning := &upstream.Respond{}
	for i := range 3 {
		reasoning.Events = append(reasoning.Events, json.RawMessage(fmt.Sprintf(
			`{"type":"response.reasoning_summary_text.delta","item_id":"rs_{{id}}","output_index":0,"summary_index":0,"delta":"hm","sequence_number":%d,"response_id":"{{id}}"}`, i)))
	}
	var out []lost
	for name, action := range map[string]string{"then reset": upstream.ActReset, "then close": upstream.ActWSClose, "then end": upstream.ActFin, "then silence": upstream.ActMute} {
		out = append(out, lost{name: "reasoning " + name, verdict: "wedged", cause: "Wedged", status: http.StatusOK, code: "stream_incomplete",
			rule: upstream.Rule{Respond: reasoning, Fault: &upstream.Fault{At: upstream.AfterEvents(3), Action: action}}})
	}
	return out
}

// silences are upstreams that take the turn and say nothing.
func silences() []lost {
	mute := lost{name: "silence", verdict: "silent", cause: "Eventless", inTurn: true, status: http.StatusGatewayTimeout, code: "bridge_eventless_timeout",
		rule: upstream.Rule{Fault: &upstream.Fault{Action: upstream.ActMute}}}
	forgotten, limits := mute, mute
	forgotten.name, forgotten.forget, forgotten.rule = "silence of its own", true, upstream.Rule{Match: upstream.Match{InputContains: "no such words"}}
	limits.name = "silence after telemetry"
	limits.rule = upstream.Rule{Respond: &upstream.Respond{Events: []json.RawMessage{json.RawMessage(`{"type":"codex.rate_limits","rate_limits":{}}`)}},
		Fault: &upstream.Fault{At: upstream.AfterEvents(1), Action: upstream.ActMute}}
	return []lost{mute, forgotten, limits}
}

func everyLoss() []lost { return slices.Concat(denials(), wedges(), silences()) }

// incident is a conversation whose first turn was served and whose anchor is
// lost from now on. Answers without an anchor are held after their first event.
type incident struct {
	*rig
	talk  *conversation
	calls []json.RawMessage // outputs of the first turn's tool calls
	gone  string            // the lost anchor
}

func newIncident(t *testing.T, l lost) *incident {
	t.Helper()
	if l.verdict != "denied" {
		t.Parallel() // it waits for a deadline
	}
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: brief, hold: briefHold, script: upstream.Script{Conversation: talk}})
	i := &incident{rig: r, talk: r.conversation(thread("incident")...)}
	first := i.talk.say("go")
	r.served(first)
	i.calls, i.gone = first.results("ok"), first.id()
	if len(i.calls) != 1 {
		t.Fatalf("%d tool calls", len(i.calls))
	}
	rule := l.rule
	rule.Match.Anchor = i.gone
	no := false
	r.rules(talk, rule, upstream.Rule{Match: upstream.Match{Anchored: &no}, Fault: &upstream.Fault{At: upstream.AtAfterCreated, Action: upstream.ActHold}})
	if l.forget {
		r.up.Forget()
	}
	return i
}

// watched lets the held answer go on after look has seen the proxy during it.
func (i *incident) watched(look func()) {
	i.talk.onEvent = func(e sse) {
		if e.name == "response.created" {
			look()
			i.up.Release()
		}
	}
}

// healed serves one more turn and fails unless it is anchored again and nothing
// is quarantined.
func (i *incident) healed(n int) {
	i.t.Helper()
	i.quarantine(i.talk.header, "")
	i.talk.onEvent = nil
	before := len(i.talk.items)
	i.served(i.talk.say("and then?"))
	d := i.dispatches(n)[n-1]
	if d.Anchor == "" || d.Anchor == i.gone || !d.AnchorResolved || d.InputItems != 1 {
		i.t.Fatalf("the turn after went up with anchor %q and %d of %d items", d.Anchor, d.InputItems, before+1)
	}
	i.quarantine(i.talk.header, "")
}

// lostAttempt is the first attempt with an anchor.
func lostAttempt(d session.Detail) session.AttemptView {
	for _, a := range d.Attempts {
		if a.Anchor != "none" {
			return a
		}
	}
	return session.AttemptView{}
}

func TestB17_Scenario21_TheIncidentAndAClientThatResendsAll(t *testing.T) {
	for _, l := range everyLoss() {
		t.Run(l.name, func(t *testing.T) {
			i := newIncident(t, l)
			sent := 3
			i.watched(func() { i.quarantine(i.talk.header, l.cause) })
			out := i.talk.send(i.calls...)
			if !l.inTurn {
				if out.done() || out.status != l.status && out.last().name != "response.failed" || out.code() != l.code || terminals(out) != 1 {
					t.Fatalf("the first turn: %d %s %s", out.status, out.body, out.names())
				}
				i.quarantine(i.talk.header, l.cause)
				if d := i.detail(i.talk.header); d.Strikes != 0 { // it proves more than a strike
					t.Fatalf("%d strikes", d.Strikes)
				}
				i.dispatches(2)
				out = i.talk.send() // the same again
			}
			i.served(out)
			ds := i.dispatches(sent)
			if ds[1].Anchor != i.gone || ds[1].InputItems != 1 {
				t.Fatalf("the anchor was not used: %+v", i.seen())
			}
			intact(t, ds[2], i.talk.before(out))
			d := i.detail(i.talk.header)
			if a := lostAttempt(d); a.Verdict != l.verdict || a.Anchor != "injected" || a.Class != "full_proved" || a.Facts[0] != "dispatched" {
				t.Fatalf("facts of the lost anchor: %+v", a)
			}
			if a := attempt(d, 1); a.Verdict != "completed" || a.Anchor != "none" || !slices.Contains(a.Facts, "created") {
				t.Fatalf("facts of the whole: %+v", a)
			}
			if d.Strikes != 0 || d.Circuit != "closed" {
				t.Fatalf("%d strikes, circuit %s", d.Strikes, d.Circuit)
			}
			i.healed(4)
			if l.verdict == "denied" {
				i.noDuplicates()
			}
		})
	}
}

// An upstream that closes the socket behind its denial may do so before or after
// the whole has been sent on it.
func TestB17_ADenialBehindWhichTheSocketCloses(t *testing.T) {
	for _, code := range []int{1000, 1011} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			i := newIncident(t, lost{verdict: "denied", rule: upstream.Rule{Fault: &upstream.Fault{Action: upstream.ActErrorFrame, Status: 400,
				Code: "previous_response_not_found", CloseCode: code}}})
			i.watched(func() {})
			out := i.talk.send(i.calls...)
			if !out.done() {
				i.refused(out, http.StatusBadGateway, "stream_incomplete", "abrupt")
				out = i.talk.send()
			}
			i.served(out)
			ds := i.up.Ledger().Dispatches()
			if len(ds) > 4 || ds[1].Anchor != i.gone {
				t.Fatalf("%+v", i.seen())
			}
			for _, d := range ds[2:] {
				intact(t, d, i.talk.before(out))
			}
			i.healed(len(ds) + 1)
		})
	}
}

func TestB25_Scenarios19_84_85_TheIncidentAndAClientThatSendsDeltas(t *testing.T) {
	for _, l := range denials() {
		t.Run(l.name, func(t *testing.T) {
			i := newIncident(t, l)
			// Scenario 19: one attempt, one clear answer, nothing fabricated.
			i.refused(i.talk.delta(i.calls...), http.StatusBadRequest, "previous_response_not_found", "anchor_dead")
			d := i.dispatches(2)[1]
			if d.Anchor != i.gone || d.InputItems != 1 {
				t.Fatalf("went up: %+v", i.seen())
			}
			i.quarantine(i.talk.header, "AnchorDenied")
			if d := i.detail(i.talk.header); d.Strikes != 0 || attempt(d, 1).Verdict != "denied" || attempt(d, 1).Class != "delta" {
				t.Fatalf("%d strikes, %+v", d.Strikes, attempt(d, 1))
			}
			// Scenario 84: the next one is answered from what is known.
			i.refused(i.talk.delta(i.calls...), http.StatusBadRequest, "previous_response_not_found", "anchor_dead")
			i.dispatches(2)
			// Scenario 85: the whole is served and everything is as before.
			i.watched(func() { i.quarantine(i.talk.header, "AnchorDenied") })
			out := i.talk.send(i.calls...)
			i.served(out)
			intact(t, i.dispatches(3)[2], i.talk.before(out))
			i.healed(4)
			i.noDuplicates()
		})
	}
}

// A delta that broke without a word may have run: it is not sent twice, and the
// client is told so. The whole conversation is always served.
func TestB25_ADeltaOnALostAnchorThatIsNotDenied(t *testing.T) {
	for _, l := range slices.Concat(wedges(), silences()) {
		t.Run(l.name, func(t *testing.T) {
			i := newIncident(t, l)
			out := i.talk.delta(i.calls...)
			if out.done() || out.status != l.status && out.last().name != "response.failed" || out.code() != l.code || terminals(out) > 1 {
				t.Fatalf("first: %d %s %s", out.status, out.body, out.names())
			}
			if d := i.dispatches(2)[1]; d.Anchor != i.gone || d.InputItems != 1 {
				t.Fatalf("went up: %+v", i.seen())
			}
			again := i.talk.delta(i.calls...)
			if again.status != http.StatusServiceUnavailable || again.code() != "upstream_operation_status_unknown" || again.header.Get("Retry-After") == "" {
				t.Fatalf("again: %d %s %s", again.status, again.body, again.names())
			}
			i.dispatches(2)
			i.watched(func() {})
			whole := i.talk.send(i.calls...)
			if l.verdict == "silent" { // one silence of a delta proves nothing yet: the anchor is tried once more
				i.served(whole)
				ds := i.dispatches(4)
				intact(t, ds[3], i.talk.before(whole))
				i.healed(5)
				return
			}
			i.served(whole)
			intact(t, i.dispatches(3)[2], i.talk.before(whole))
			i.healed(4)
		})
	}
}

// Deltas that differ are no retries of each other, so each is tried; a lost
// anchor still ends in one clear answer.
func TestB22_DeltasThatDifferDoNotLoop(t *testing.T) {
	for _, l := range slices.Concat(wedges()[:1], silences()[:1]) {
		t.Run(l.name, func(t *testing.T) {
			i := newIncident(t, l)
			i.runtime.Store(i.withCircuit(bundle.RetryCircuit{MaxAttempts: 2, BudgetPercent: 20, RetryOn: retryOn, FailureThreshold: 2, BaseBackoffSeconds: 1, MaxBackoffSeconds: 1, CleanCloseMaxBackoffSeconds: 1,
				HalfOpenLeaseSeconds: 60, StateTTLSeconds: 3600}))
			tried := 0
			for n := range 8 {
				out := i.talk.delta(json.RawMessage(strings.Replace(string(i.calls[0]), `"ok"`, fmt.Sprintf(`"ok %d"`, n), 1)))
				for out.reason() == "hard_key_cooldown" { // the client comes back when it may
					out = i.talk.delta(json.RawMessage(strings.Replace(string(i.calls[0]), `"ok"`, fmt.Sprintf(`"ok %d"`, n), 1)))
				}
				if out.code() == "previous_response_not_found" {
					break
				}
				if tried++; tried > 3 || out.code() != l.code {
					t.Fatalf("delta %d: %d %s %s", n, out.status, out.body, out.names())
				}
			}
			i.refused(i.talk.delta(i.calls...), http.StatusBadRequest, "previous_response_not_found", "anchor_dead")
			i.quarantine(i.talk.header, "FailedAgain")
			i.dispatches(1 + tried)
			i.watched(func() { i.quarantine(i.talk.header, "FailedAgain") })
			out := i.talk.send(i.calls...)
			i.served(out)
			intact(t, i.dispatches(2 + tried)[1+tried], i.talk.before(out))
			if d := i.detail(i.talk.header); d.Circuit != "closed" || d.Strikes != 0 {
				t.Fatalf("circuit %s, %d strikes", d.Circuit, d.Strikes)
			}
			i.healed(3 + tried)
		})
	}
}

// Half an answer on the client's own anchor proves nothing about ours.
func TestScenario55_AWedgeOnTheClientsOwnAnchor(t *testing.T) {
	for _, l := range wedges() {
		t.Run(l.name, func(t *testing.T) {
			i := newIncident(t, l)
			own := *i.talk
			own.items, own.extra = i.calls, `,"previous_response_id":"`+i.gone+`"`
			out := i.do(call{header: own.header, body: own.body()})
			if code := out.code(); code != "stream_incomplete" && code != "stream_idle_timeout" {
				t.Fatalf("%d %s %s", out.status, out.body, out.names())
			}
			i.quarantine(i.talk.header, "")
			if d := i.detail(i.talk.header); d.Anchor != "good" || d.Strikes != 0 || attempt(d, 1).Anchor != "client" {
				t.Fatalf("%+v", d)
			}
		})
	}
}

// The client's own anchor is the client's to give up: it gets the answer that
// makes it send everything, once, and is not asked the upstream again.
func TestB25_TheClientsOwnAnchorIsDenied(t *testing.T) {
	for _, l := range denials() {
		t.Run(l.name, func(t *testing.T) {
			i := newIncident(t, l)
			own := *i.talk
			own.items, own.extra = i.calls, `,"previous_response_id":"`+i.gone+`"`
			for n := range 2 {
				out := i.do(call{header: own.header, body: own.body()})
				status := http.StatusBadRequest
				if out.status != status && (n > 0 || out.last().name != "response.failed") {
					t.Fatalf("turn %d: %d %s %s", n, out.status, out.body, out.names())
				}
				if n == 1 && gjson.Get(out.body, "error.reason").Str != "anchor_dead" {
					t.Fatalf("again: %s", out.body)
				}
			}
			i.dispatches(2)
			i.watched(func() {})
			out := i.talk.send(i.calls...)
			i.served(out)
			intact(t, i.dispatches(3)[2], i.talk.before(out))
			i.healed(4)
		})
	}
}
