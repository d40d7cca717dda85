package session

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// simAsk is one request of a client, from its submission to its one end.
type simAsk struct {
	talk    *simTalk
	id      string
	logical string // the turn that it is a try of
	items   []simItem
	expect  []string // the whole context that the model has to see
	prev    string   // the client's own anchor
	body    []byte
	// whole: it stands alone. neutral: any account can run it. foreign: prev is
	// another client's. stored: the account keeps the response. healed: it began
	// when nothing went wrong any more.
	whole, neutral, foreign, stored, side, healed bool

	proc   *simProc
	turn   *Turn
	detach func()
	sent   []time.Time // by a session
	runs   []*simRun
	// seen are the events that the client got; run is the one that they are of.
	seen    int
	run     string
	lastN   int64
	created string
	output  []simItem
	done    string // completed, incomplete, failed
	ended   bool
	failure *failure.Failure
	queued  bool // to be read
	moved   bool
	recall  bool // answered from a transcript
	judged  bool // how its session ended it
	mended  bool // its session knows the calls that its anchor left open
}

func (a *simAsk) client() string { return a.talk.client }

// waited is the time from one attempt to the next; a request that was read very
// late is taken for the one before the last.
func (a *simAsk) waited(attempt int) time.Duration {
	attempt = min(attempt, len(a.sent)-2)
	return a.sent[attempt+1].Sub(a.sent[attempt])
}

func (a *simAsk) lastSent() time.Time { return a.sent[len(a.sent)-1] }

// submit hands the request to a process, as the bridge does.
func (a *simAsk) submit(p *simProc, stay bool) {
	s := a.talk.sim
	a.proc = p
	facts := affinity.Read(a.body)
	t := &Turn{ID: a.id, Client: a.client(), Header: a.talk.header, Body: a.body, Facts: facts, Runtime: s.plan.runtime,
		Limits: deadline.For(s.plan.runtime.Bundle.Circuit.Deadlines, 30*time.Second, deadline.Text, true),
		Stay:   stay, Out: NewOutbox()}
	t.Key = affinity.Derive(affinity.Source{Client: a.client(), Header: a.talk.header, PromptCacheKey: facts.PromptCacheKey, RequestID: a.id})
	if id := facts.PreviousResponseID; id != "" {
		owner, _, err := p.registry.Owner(s.context(), a.client(), id)
		if err != nil {
			a.end(failure.New(failure.StoreUnavailable, "alias"))
			return
		}
		if owner.Known && !t.Key.Kind.Hard() {
			t.Key = owner.Key
		}
		t.Owner = owner
	}
	if t.Key.Kind == affinity.KindRequest {
		t.Transport = HTTP
	}
	if t.Key.Kind.Hard() {
		t.Fingerprint = a.fingerprint()
	}
	a.turn = t
	s.log("  %s asks %s, %d items, prev %q, whole %t", a.id, p.name, len(a.items), a.prev, a.whole)
	a.detach = p.registry.Submit(t)
	if s.chance(s.plan.vanish) {
		s.later(s.upTo(10*time.Second), p, a.id+" hangs up", func() {
			if !a.ended && a.turn == t {
				a.vanish()
			}
		})
	}
}

// fingerprint is that of the body without the name of the try.
func (a *simAsk) fingerprint() string {
	return strings.Replace(string(a.body), `"user":"`+a.id+`"`, "", 1)
}

// offer lets the client read what has come.
func (a *simAsk) offer() {
	if a.queued || a.ended || a.turn == nil || len(a.turn.Out.ready) == 0 {
		return
	}
	a.queued = true
	a.talk.sim.soon(a.proc, a.id+" reads", func() {
		a.queued = false
		if !a.ended {
			a.read()
		}
	})
}

func (a *simAsk) read() {
	s := a.talk.sim
	select {
	case <-a.turn.Out.ready:
	default:
	}
	batch := a.turn.Out.Take(nil)
	for _, e := range batch.Events {
		a.take(e)
	}
	if !batch.Ended {
		if s.chance(s.plan.vanish) {
			a.vanish()
		}
		return
	}
	if batch.Elsewhere != "" && !a.moved {
		s.must(a.seen == 0 && len(a.runs) == 0, "a turn that belongs elsewhere was not touched", "%s", a.id)
		a.move(batch.Elsewhere)
		return
	}
	s.must(batch.Failure != nil || a.done != "", "a good end has its last event", "%s", a.id)
	if batch.Failure == nil {
		a.proc.registry.Delivered(a.turn)
	}
	a.detach()
	a.end(batch.Failure)
}

// move goes to the replica that has the session, and comes back if it cannot.
func (a *simAsk) move(address string) {
	s := a.talk.sim
	a.moved = true
	s.counts["elsewhere"]++
	target := a.proc
	for _, pod := range s.pods {
		if p := pod.proc; p.holder.Address == address && !p.dead && !p.draining {
			target = p
		}
	}
	a.detach()
	a.proc = target
	s.soon(target, a.id+" goes elsewhere", func() {
		if !a.ended { // who is gone takes the forward along
			a.submit(target, true)
		}
	})
}

// vanish: the client is gone.
func (a *simAsk) vanish() {
	a.talk.sim.counts["vanished"]++
	a.talk.sim.log("  %s is gone", a.id)
	a.detach()
	a.end(failure.New(failure.StreamIncomplete, "the client went away"))
}

func (a *simAsk) end(f *failure.Failure) {
	s := a.talk.sim
	a.ended, a.failure = true, f
	if f != nil {
		s.log("  %s ends: %s after %s", a.id, f, f.RetryAfter)
	} else {
		s.log("  %s ends: %s", a.id, a.done)
	}
	if f == nil && a.done == "completed" {
		s.counts["served"]++
	} else {
		s.counts["refused"]++
	}
	a.talk.asks = slices.DeleteFunc(a.talk.asks, func(other *simAsk) bool { return other == a })
	a.talk.after(a)
}

// take checks one event: it is of this turn, of one attempt, in order, once.
func (a *simAsk) take(e upstream.Event) {
	s := a.talk.sim
	data := gjson.ParseBytes(e.Data)
	if e.Kind == upstream.KindKeepalive || data.Get("response_id").Str == "resp_unknown" && a.created == "" {
		return
	}
	s.must(!data.Get("stray").Exists(), "no event of another response", "%s got %s", a.id, e.Data)
	if e.Kind == upstream.KindError || e.Kind == upstream.KindFailed {
		a.done = "failed"
		return
	}
	from := data.Get("ask").Str
	if from != a.id {
		other := s.asks[from]
		s.must(other != nil && other.client() == a.client() && other.fingerprint() == a.fingerprint() && len(a.runs) == 0,
			"no event of another turn", "%s got %s", a.id, e.Data)
		a.recall = true
	}
	if e.Kind == upstream.KindVendor {
		return
	}
	s.must(a.done == "", "nothing follows the end", "%s got %s", a.id, e.Data)
	run := from + "/" + data.Get("run").Raw
	n := data.Get("n").Int()
	s.must(a.seen == 0 || a.run == run && n > a.lastN, "one attempt, in order", "%s got %s after %s %d", a.id, e.Data, a.run, a.lastN)
	a.seen, a.run, a.lastN = a.seen+1, run, n
	switch e.Kind {
	case upstream.KindCreated:
		a.created = data.Get("response.id").Str
	case upstream.KindItemDone:
		item := data.Get("item")
		a.output = append(a.output, simItem{item.Raw, simWord(item)})
	case upstream.KindCompleted:
		a.done = "completed"
		if a.created == "" {
			a.created = data.Get("response.id").Str
		}
	case upstream.KindIncomplete:
		a.done = "incomplete"
	default:
	}
}

// simThread is the header of a conversation.
func simThread(name string) http.Header { return http.Header{"Thread-Id": {name}} }
