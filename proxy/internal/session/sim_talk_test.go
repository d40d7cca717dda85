package session

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// simStyle is how a client continues a conversation.
type simStyle uint8

const (
	styleWhole   simStyle = iota // the whole history each time, as Codex does
	styleAnchor                  // previous_response_id and what is new, as SDKs do
	styleOutputs                 // outputs of tools without any anchor, all else whole
	styleSoft                    // the whole history, under a prompt cache key
)

// simTalk is one conversation and its client.
type simTalk struct {
	sim     *sim
	number  int
	client  string
	style   simStyle
	header  http.Header
	tools   bool
	neutral bool
	history []simItem
	known   int    // items up to and including the last response
	prev    string // the last response
	resend  bool   // the next try goes as a whole
	turns   int
	tries   int
	home    int
	asks    []*simAsk
	stopped []string // calls that the user stopped
	watch   simWatch
}

func (s *sim) startTalk(number int) {
	t := &simTalk{sim: s, number: number, client: fmt.Sprintf("client%d", number%2), home: s.rng.IntN(len(s.pods)),
		style: simStyle(s.rng.IntN(4)), tools: s.chance(0.6), neutral: s.chance(0.7)}
	switch {
	case t.style == styleSoft:
		t.header = http.Header{}
	case t.style == styleAnchor && s.chance(0.4):
		t.header = http.Header{} // the anchor alone names the session
	default:
		t.header = simThread(fmt.Sprintf("thread%d", number))
	}
	s.talks = append(s.talks, t)
	t.think()
}

// think makes the next turn after a while.
func (t *simTalk) think() {
	s := t.sim
	pause := s.upTo(20 * time.Second)
	if s.fault(0.03) {
		pause = s.upTo(30 * time.Minute)
	}
	s.later(pause, nil, fmt.Sprintf("talk %d goes on", t.number), t.next)
}

// next begins a turn: the outputs that are asked for, or a new question.
func (t *simTalk) next() {
	s := t.sim
	if t.watch.pausing(t) {
		return
	}
	t.turns++
	t.tries = 0
	if len(t.history) > 60 { // compaction
		t.history, t.known, t.prev = nil, 0, ""
		t.history = append(t.history, simUser(fmt.Sprintf("summary %d.%d", t.number, t.turns)))
	}
	t.history = append(t.history, t.news()...)
	t.try(fmt.Sprintf("%d.%d", t.number, t.turns))
	if s.chance(s.plan.forks) {
		t.fork()
	}
}

// news is what the next turn adds: the outputs that the model waits for, or a
// question; sometimes the user stops a tool instead.
func (t *simTalk) news() []simItem {
	s := t.sim
	question := simUser(fmt.Sprintf("question %d.%d", t.number, t.turns))
	open := openCalls(simWords(t.history), t.stopped)
	if len(open) == 0 {
		return []simItem{question}
	}
	var news []simItem
	if s.chance(0.1) {
		for _, call := range open {
			news = append(news, simAborted(call))
			t.stopped = append(t.stopped, call)
		}
		return append(news, question)
	}
	for _, call := range open {
		news = append(news, simOutput(call))
	}
	if s.chance(0.1) {
		news = append(news, question)
	}
	return news
}

// try sends the turn, in the form that the client's style asks for.
func (t *simTalk) try(logical string) {
	s := t.sim
	a := t.ask(logical, t.history)
	fresh := t.history[t.known:]
	outputs := slices.ContainsFunc(fresh, func(i simItem) bool { return strings.HasPrefix(i.word, "output ") })
	switch {
	case t.resend:
	case t.style == styleAnchor && t.prev != "" && t.known > 0:
		a.items, a.prev, a.whole = fresh, t.prev, false
		if said := slices.DeleteFunc(slices.Clone(fresh), func(i simItem) bool { return i.word == "" }); s.chance(0.5) && len(said) > 0 {
			a.items = said // nothing of a call that was stopped
		}
	case t.style == styleOutputs && outputs && t.known > 0:
		a.items, a.whole = fresh, false
	}
	if other := s.talks[s.rng.IntN(len(s.talks))]; other.client != t.client && other.prev != "" && a.prev != "" && s.fault(0.05) {
		a.prev, a.foreign = other.prev, true // what another client was told
	}
	t.send(a)
}

func (t *simTalk) ask(logical string, history []simItem) *simAsk {
	t.tries++
	t.sim.counts["asks"]++
	return &simAsk{talk: t, id: fmt.Sprintf("%s-%d", logical, t.sim.counts["asks"]), logical: logical, items: slices.Clone(history),
		expect: simWords(history), whole: true, healed: t.sim.healed}
}

// fork asks something beside the turn that runs.
func (t *simTalk) fork() {
	history := append(slices.Clone(t.history), simUser(fmt.Sprintf("aside %d.%d", t.number, t.turns)))
	a := t.ask(fmt.Sprintf("%d.%d+", t.number, t.turns), history)
	a.side = true
	if t.style == styleAnchor && t.prev != "" && t.known > 0 {
		a.items, a.prev, a.whole = a.items[t.known:], t.prev, false
	}
	t.send(a)
}

// send builds the body and finds a replica.
func (t *simTalk) send(a *simAsk) {
	s := t.sim
	more := `,"store":false`
	if a.stored = s.plan.stored && t.number%2 == 0; a.stored {
		more = `,"store":true`
	}
	if a.neutral = t.neutral; !a.neutral {
		more += `,"tools":[{"type":"mcp"}]`
	}
	if t.style == styleSoft {
		more += fmt.Sprintf(`,"prompt_cache_key":"soft%d"`, t.number)
	}
	if a.prev != "" {
		more += `,"previous_response_id":"` + a.prev + `"`
	}
	a.body = simBody(a.id, a.items, more)
	s.asks[a.id] = a
	t.asks = append(t.asks, a)
	t.deliver(a)
}

// deliver brings a request to a replica as soon as there is one.
func (t *simTalk) deliver(a *simAsk) {
	s, p := t.sim, t.replica()
	if p.dead {
		s.later(time.Second, nil, a.id+" waits for a replica", func() { t.deliver(a) })
		return
	}
	a.proc = p
	s.soon(p, a.id+" is sent", func() { a.submit(p, false) })
}

// replica is where the client's next request lands: mostly where the last did.
func (t *simTalk) replica() *simProc {
	s := t.sim
	if s.chance(s.plan.roam) {
		t.home = s.rng.IntN(len(s.pods))
	}
	for range s.pods {
		if p := s.pods[t.home].proc; !p.dead && (!p.draining || s.chance(0.1)) {
			return p
		}
		t.home = (t.home + 1) % len(s.pods)
	}
	return s.pods[t.home].proc
}

// lost: a process is gone with what it served.
func (t *simTalk) lost(p *simProc) {
	for _, a := range slices.Clone(t.asks) {
		if a.proc == p {
			a.end(failure.New(failure.StreamIncomplete, "connection reset"))
		}
	}
}

// after goes on when a request has ended.
func (t *simTalk) after(a *simAsk) {
	if a.side {
		return
	}
	s := t.sim
	t.watch.saw(t, a)
	t.resend = false
	if a.failure == nil && a.done == "completed" {
		for _, item := range a.output {
			if item.word != "" || s.chance(0.5) {
				t.history = append(t.history, item.replayed(s))
			}
		}
		t.known, t.prev = len(t.history), a.created
		t.think()
		return
	}
	f := a.failure
	switch {
	case f != nil && f.Code == failure.PreviousResponseNotFound, a.done == "failed" && !a.whole, len(a.runs) > 0 && !a.whole && s.healed:
		t.resend = true
		s.later(s.upTo(time.Second), nil, a.logical+" is resent", func() { t.try(a.logical) })
	case !s.healed && (t.tries > 6 || s.chance(0.15)):
		t.think() // it gives up, and asks something else
	case f != nil && f.RetryAfter > 0:
		s.later(f.RetryAfter, nil, a.logical+" is tried again", func() { t.again(a) })
	default:
		s.later(s.upTo(5*time.Second), nil, a.logical+" is tried again", func() { t.again(a) })
	}
}

// again sends the same request once more.
func (t *simTalk) again(a *simAsk) {
	if t.watch.pausing(t) {
		return
	}
	t.resend = a.whole
	t.try(a.logical)
}
