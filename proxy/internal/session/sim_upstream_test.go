package session

import (
	"slices"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// simUpstream is all accounts of the upstream. It remembers what every response
// was made from, also where it pretends not to.
type simUpstream struct {
	sim       *sim
	responses map[string]*simResponse
	made      []*simResponse // in their order
	ids       int
	// mood is the trouble that all requests meet until a time: one alone comes
	// several times in a row too rarely.
	mood, refusalMood int
	until             time.Time
}

func (u *simUpstream) moody() bool { return u.sim.now.Before(u.until) && !u.sim.healed }

// simResponse is a response with the context that it ended with.
type simResponse struct {
	id, account, client string
	conn                *simConn
	words, stopped      []string
	http, stored        bool
	// forgotten: the account does not know it any more.
	forgotten bool
	// guessed: it was made from a delta that the proxy put on another response than
	// the client meant.
	guessed bool
}

// simRun is one request at the upstream.
type simRun struct {
	sim      *sim
	ask      *simAsk
	conn     *simConn
	id       string // of the response; empty until it is created
	anchor   string
	injected bool
	attempt  int // of the ask
	// outcome is how it ended, in one word; empty = it runs.
	outcome string
	live    bool
	// heard counts the events of the response that the proxy has read; endRead and
	// refusalRead say that it knows of the end.
	heard                int
	endRead, refusalRead bool
	// words are what the input means, stopped the calls whose output says nothing.
	words, stopped []string
	guessed        bool
}

// read is told what the proxy has read of the run.
func (r *simRun) read(m simArrival) {
	if m.life {
		r.heard++
		return
	}
	if m.name == "error" || m.name == "response.failed" {
		r.refusalRead = true
	}
}

// lose: some bytes of a request may have arrived, and nobody answers.
func (u *simUpstream) lose(c *simConn, frame []byte, how string) {
	r := u.receive(c, gjson.ParseBytes(frame))
	r.outcome, r.live = how, false
	r.ask.runs = append(r.ask.runs, r)
}

func (u *simUpstream) receive(c *simConn, body gjson.Result) *simRun {
	ask := u.sim.asks[body.Get("user").Str]
	u.sim.must(ask != nil, "requests arrive unchanged", "no turn in %s", body.Raw)
	r := &simRun{sim: u.sim, ask: ask, conn: c, anchor: body.Get("previous_response_id").Str, live: true, attempt: len(ask.sent) - 1}
	r.injected = r.anchor != "" && ask.prev == ""
	return r
}

// serve takes a request in.
func (u *simUpstream) serve(c *simConn, frame []byte) {
	s := u.sim
	body := gjson.ParseBytes(frame)
	r := u.receive(c, body)
	body.Get("input").ForEach(func(_, item gjson.Result) bool {
		if w := simWord(item); w != "" {
			r.words = append(r.words, w)
		} else if call := item.Get("call_id").Str; call != "" {
			r.stopped = append(r.stopped, call)
		}
		if item.Get("output").Str == interruptedText {
			s.counts["interrupted"]++
		}
		return true
	})
	s.counts["runs"]++
	s.log("  upstream %s gets %s, anchor %q, %d items", c.account, r.ask.id, r.anchor, len(r.words))
	u.check(r)
	r.ask.runs, c.runs = append(r.ask.runs, r), append(c.runs, r)
	u.answer(r)
}

// resolve finds the anchor where the upstream would.
func (u *simUpstream) resolve(r *simRun) bool {
	p := u.responses[r.anchor]
	if p == nil || p.forgotten || p.account != r.conn.account {
		return false
	}
	return u.sim.plan.scope == upstream.ScopeAccount || p.stored || p.conn == r.conn
}

// create makes the response of a run.
func (u *simUpstream) create(r *simRun) {
	u.ids++
	r.id = "resp_" + strconv.Itoa(u.ids)
}

// complete keeps the response with its context and output.
func (u *simUpstream) complete(r *simRun, output []simItem) {
	words, stopped := slices.Concat(r.words, simWords(output)), r.stopped
	if p := u.responses[r.anchor]; p != nil {
		words, stopped = slices.Concat(p.words, words), slices.Concat(p.stopped, stopped)
	}
	response := &simResponse{id: r.id, account: r.conn.account, client: r.ask.client(), conn: r.conn, words: words, stopped: stopped,
		http: r.conn.http, stored: r.ask.stored, guessed: r.guessed}
	u.responses[r.id] = response
	u.made = append(u.made, response)
}

// forget makes the accounts lose what they know: some of the newest responses, or
// all of one account.
func (u *simUpstream) forget() {
	s := u.sim
	if s.chance(0.5) {
		for _, p := range u.made[max(0, len(u.made)-4):] {
			p.forgotten = p.forgotten || s.chance(0.5)
		}
		return
	}
	name := s.plan.accounts[s.rng.IntN(len(s.plan.accounts))]
	for _, p := range u.made {
		p.forgotten = p.forgotten || p.account == name
	}
}
