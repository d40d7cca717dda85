package session

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// fault says whether something goes wrong that goes wrong with probability p.
func (s *sim) fault(p float64) bool { return !s.healed && s.chance(p*s.plan.faults) }

// answer plays the answer to a run.
func (u *simUpstream) answer(r *simRun) {
	s := u.sim
	switch {
	case r.anchor != "" && !u.resolve(r):
		u.unknownAnchor(r)
	case orphan(u.context(r)):
		r.refuse(`{"type":"invalid_request_error","message":"No tool call found for function call output","param":"input"}`, "orphan", 400)
	case len(u.unanswered(r)) > 0:
		s.must(!r.ask.mended || r.guessed || r.ask.foreign, "an interrupted tool is answered", "%s on %s", r.ask.id, r.anchor)
		r.refuse(`{"type":"invalid_request_error","message":"No tool output found for function call x.","param":"input"}`, "orphan", 400)
	case s.fault(0.35), u.moody() && s.fault(0.8):
		u.trouble(r)
	default:
		delay := s.upTo(2 * time.Second)
		if s.fault(0.1) {
			delay = s.upTo(2 * s.plan.runtime.Deadlines.FirstEvent)
		}
		u.respond(r, delay, -1, "")
	}
}

func (u *simUpstream) context(r *simRun) []string {
	if p := u.responses[r.anchor]; p != nil {
		return append(append([]string(nil), p.words...), r.words...)
	}
	return r.words
}

// unanswered are calls that neither client nor proxy gave an output.
func (u *simUpstream) unanswered(r *simRun) []string {
	stopped := r.stopped
	if p := u.responses[r.anchor]; p != nil {
		stopped = append(append([]string(nil), p.stopped...), stopped...)
	}
	return openCalls(u.context(r), stopped)
}

// denials are the shapes in which an upstream says that it has no such response.
var denials = [...]string{
	`{"type":"invalid_request_error","code":"previous_response_not_found","message":"Previous response with id 'x' not found.","param":"previous_response_id"}`,
	`{"type":"previous_response_not_found","message":"gone"}`,
	"{\"type\":\"invalid_request_error\",\"message\":\"Invalid `previous_response_id`.\"}",
	`{"type":"invalid_request_error","message":"Previous response with id 'x' not found.","param":"previous_response_id"}`,
}

// unknownAnchor is how an account treats an anchor that it does not know.
func (u *simUpstream) unknownAnchor(r *simRun) {
	s := u.sim
	if u.sim.plan.scope == upstream.ScopeAccount {
		switch s.rng.IntN(3) {
		case 0:
			r.outcome = "silent"
			return
		case 1:
			u.prelude(r)
			return
		}
	}
	r.refuse(denials[s.rng.IntN(len(denials))], "denied", 400)
}

// refuse ends a run with an error before any event of its response.
func (r *simRun) refuse(object, outcome string, status int) {
	s := r.sim
	r.outcome, r.live = outcome, false
	if s.chance(0.3) && !r.conn.http {
		r.conn.play(s.upTo(time.Second), simArrival{name: "response.failed", run: r,
			data: `{"type":"response.failed","response":{"status":"failed","error":` + object + `}}`})
		return
	}
	r.conn.play(s.upTo(time.Second), simArrival{name: "error", run: r,
		data: `{"type":"error","status":` + strconv.Itoa(status) + `,"error":` + object + `}`})
	r.hangUp()
}

// hangUp ends the body of an HTTP answer.
func (r *simRun) hangUp() {
	if r.conn.http {
		r.conn.play(0, simArrival{name: "end of body", end: &upstream.Ended{Cause: upstream.CauseClean, Err: errors.New("EOF")}})
	}
}

// prelude is work without a response: reasoning, and then nothing good.
func (u *simUpstream) prelude(r *simRun) {
	s := u.sim
	for i := range 1 + s.rng.IntN(2) {
		r.conn.play(s.upTo(5*time.Second), simArrival{name: "response.reasoning_text.delta", run: r, life: true,
			data: `{"type":"response.reasoning_text.delta","delta":"hm","ask":"` + r.ask.id + `","run":` + r.number() + `,"n":` + strconv.Itoa(i) + `}`})
	}
	r.outcome = "prelude"
	if s.chance(0.5) {
		r.end([]upstream.Cause{upstream.CauseAbrupt, upstream.CauseClean}[s.rng.IntN(2)], "prelude", s.upTo(20*time.Second))
	}
}

func (r *simRun) number() string {
	for i, other := range r.ask.runs {
		if other == r {
			return strconv.Itoa(i)
		}
	}
	return strconv.Itoa(len(r.ask.runs))
}

// end ends the connection under a run.
func (r *simRun) end(cause upstream.Cause, name string, after time.Duration) {
	r.outcome = name
	code := 0
	if cause == upstream.CauseClean {
		code = 1000
	}
	r.conn.play(after, simArrival{name: name, run: r, end: &upstream.Ended{Cause: cause, Code: code, Err: errors.New(name)}})
}

// trouble is everything that goes wrong for reasons of its own.
func (u *simUpstream) trouble(r *simRun) {
	s := u.sim
	short := s.upTo(3 * time.Second)
	n := s.rng.IntN(19)
	if u.moody() {
		n = u.mood
	}
	switch n {
	case 0:
		r.end(upstream.CauseAbrupt, "cut", short)
	case 1, 2:
		r.end(upstream.CauseClean, "clean", short)
	case 3, 4:
		r.outcome = "silent"
	case 5:
		r.end(upstream.CauseLiveness, "liveness", time.Minute)
	case 6:
		r.end(upstream.CauseGarbage, "garbage", short)
	case 7:
		if r.anchor != "" {
			u.responses[r.anchor].forgotten = true
			u.unknownAnchor(r)
			return
		}
		u.prelude(r)
	case 8, 9:
		u.refusal(r)
	case 10:
		r.refuse(`{"type":"server_error","code":"server_error","message":"sorry"}`, "server", 500)
	case 11:
		u.prelude(r)
	case 12, 13:
		u.respond(r, short, s.rng.IntN(6), "cut")
	case 14:
		u.respond(r, short, s.rng.IntN(6), "clean")
	case 15:
		u.respond(r, short, s.rng.IntN(6), "stall")
	case 16:
		u.respond(r, short, s.rng.IntN(6), "failed")
	case 17:
		u.respond(r, short, s.rng.IntN(6), "incomplete")
	default:
		u.respond(r, short, -1, "noise")
	}
}

// refusal is an error that says that nothing ran, in one of its kinds.
func (u *simUpstream) refusal(r *simRun) {
	kinds := [...]struct {
		outcome, object string
		status          int
	}{
		{"limit", `{"type":"rate_limit","code":"rate_limit_exceeded","message":"slow"}`, 429},
		{"limit", `{"type":"usage_limit_reached","message":"full","resets_in_seconds":40}`, 429},
		{"auth", `{"type":"authentication_error","code":"token_expired","message":"no"}`, 401},
		{"overloaded", `{"code":"server_is_overloaded","message":"busy"}`, 503},
		{"invalid", `{"type":"invalid_request_error","code":"invalid_value","message":"no","param":"model"}`, 400},
		{"connection_limit", `{"type":"invalid_request_error","code":"websocket_connection_limit_reached","message":"old"}`, 400},
	}
	n := u.sim.rng.IntN(len(kinds))
	if u.moody() {
		n = u.refusalMood
	}
	k := kinds[n]
	if k.outcome == "connection_limit" && r.conn.http {
		k = kinds[0]
	}
	r.refuse(k.object, k.outcome, k.status)
}

// simLine is one event of a response.
type simLine struct{ name, members string }

// respond plays a response. If stop is not negative, it breaks off after so many
// events, in the way that is said.
func (u *simUpstream) respond(r *simRun, delay time.Duration, stop int, how string) {
	s := u.sim
	u.create(r)
	output := u.output(r)
	lines := []simLine{{"response.created", `"response":{"id":"` + r.id + `"}`}}
	if s.chance(0.3) {
		lines = append([]simLine{{"codex.rate_limits", `"limits":{}`}}, lines...)
	}
	if !r.conn.tagged { // what comes behind response.created says whether events are
		lines = append(lines, simLine{"response.in_progress", `"response":{"id":"` + r.id + `"}`})
	}
	for _, item := range output {
		lines = append(lines, simLine{"response.output_text.delta", `"delta":"x"`}, simLine{"response.output_item.done", `"item":` + item.raw})
	}
	if stop >= 0 && stop < len(lines) {
		u.playLines(r, delay, lines[:stop], 0)
		u.breakOff(r, how)
		return
	}
	if how == "incomplete" {
		u.playLines(r, delay, append(lines, simLine{"response.incomplete", `"response":{"id":"` + r.id + `","status":"incomplete"}`}), 0)
		r.finish("incomplete", s)
		return
	}
	lines = append(lines, simLine{"response.completed", `"response":{"id":"` + r.id + `","output":[]}`})
	u.playLines(r, delay, lines, 0)
	u.complete(r, output)
	r.finish("completed", s)
	if how == "noise" {
		u.noise(r)
	}
}

// finish marks the end of a run when its last event has left the upstream.
func (r *simRun) finish(outcome string, s *sim) {
	left := max(0, r.conn.lastDue.Sub(s.now))
	s.later(left, nil, "a run is over", func() {
		if r.outcome == "" {
			r.outcome = outcome
		}
		r.live = false
	})
	r.hangUp()
}

func (u *simUpstream) playLines(r *simRun, delay time.Duration, lines []simLine, from int) {
	s := u.sim
	for i, line := range lines {
		data := `{"type":"` + line.name + `",` + line.members + `,"ask":"` + r.ask.id + `","run":` + r.number() + `,"n":` + strconv.Itoa(from+i)
		if r.conn.tagged && !strings.Contains(line.members, `"response":`) && line.name != "codex.rate_limits" {
			data += `,"response_id":"` + r.id + `"`
		}
		life := line.name != "codex.rate_limits"
		r.conn.play(delay, simArrival{name: line.name, data: data + "}", run: r, life: life})
		delay = s.upTo(3 * time.Second)
		if s.fault(0.01) {
			delay = s.upTo(s.plan.runtime.Deadlines.Idle)
		}
	}
}

// breakOff ends a response in the middle.
func (u *simUpstream) breakOff(r *simRun, how string) {
	s := u.sim
	switch how {
	case "cut":
		r.end(upstream.CauseAbrupt, "cut", s.upTo(time.Second))
	case "clean":
		r.end(upstream.CauseClean, "clean", s.upTo(time.Second))
	case "failed", "incomplete":
		n := s.rng.IntN(5)
		if n == 4 { // the upstream itself fails in the middle
			r.outcome = "server"
			r.conn.play(s.upTo(time.Second), simArrival{name: "error", run: r,
				data: `{"type":"error","status":500,"response_id":"` + r.id + `","error":{"type":"server_error","code":"server_error","message":"sorry"}}`})
			r.finish("failed", s)
			return
		}
		code := []string{"server_error", "rate_limit_exceeded", "previous_response_not_found", "websocket_connection_limit_reached"}[n]
		r.outcome = []string{"server", "limit", "denied", "connection_limit"}[n]
		r.conn.play(s.upTo(time.Second), simArrival{name: "response.failed", run: r,
			data: `{"type":"response.failed","response":{"id":"` + r.id + `","status":"failed","error":{"code":"` + code + `","message":"sorry"}}}`})
		r.finish("failed", s)
	default:
		r.outcome = "stalled"
	}
}

// output is what a response says: an answer, or a call of a tool.
func (u *simUpstream) output(r *simRun) []simItem {
	s := u.sim
	var items []simItem
	if s.chance(0.3) {
		items = append(items, simReasoning(r.id))
	}
	if r.ask.talk.tools && s.chance(0.4) {
		arguments := `{"cmd":"` + r.ask.logical + `"}`
		if s.chance(0.5) {
			arguments = `{"cmd":"` + r.id + `"}`
		}
		name := "lookup"
		if s.chance(0.5) {
			name = "shell"
		}
		return append(items, simCall("call_"+r.id, name, arguments))
	}
	return append(items, simAnswer("to "+r.ask.id+" in "+r.id))
}

// noise is what comes for responses that are over, and for one that never was; the
// latter may reach a turn whose response has no name yet.
func (u *simUpstream) noise(r *simRun) {
	s := u.sim
	for range 1 + s.rng.IntN(3) {
		id := r.id
		name := []string{"response.output_text.delta", "response.in_progress", "response.completed", "keepalive"}[s.rng.IntN(4)]
		switch {
		case s.chance(0.3) && name != "response.completed":
			id = "resp_unknown"
		case s.chance(0.3):
			id = r.conn.runs[s.rng.IntN(len(r.conn.runs))].id // one long ago
		}
		if id == "" {
			continue
		}
		r.conn.play(s.upTo(3*time.Second), simArrival{name: name, data: `{"type":"` + name + `","response_id":"` + id + `","stray":true}`})
	}
}
