package session

import (
	"slices"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/store"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// check is what has to hold for every request that reaches the upstream.
func (u *simUpstream) check(r *simRun) {
	u.checkScope(r)
	u.checkContext(r)
	u.checkRepeat(r)
}

// checkScope: an anchor goes to where it was made, and to nobody else's turn.
func (u *simUpstream) checkScope(r *simRun) {
	s := u.sim
	if r.anchor == "" {
		return
	}
	s.counts["anchored"]++
	p := u.responses[r.anchor]
	s.must(p != nil, "anchors exist", "%s carries %q", r.ask.id, r.anchor)
	s.must(p.client == r.ask.client() && !r.ask.foreign, "no anchor of another client", "%s carries %s of %s", r.ask.id, p.id, p.client)
	s.must(p.account == r.conn.account, "no anchor outside of its account", "%s carries %s of account %s to %s",
		r.ask.id, p.id, p.account, r.conn.account)
	if s.plan.scope == upstream.ScopeConnection && !p.http && (r.injected || !p.stored) {
		s.must(p.conn == r.conn, "no anchor outside of its connection", "%s carries %s", r.ask.id, p.id)
	}
	s.must(r.injected || r.anchor == r.ask.prev, "the client's own anchor stays", "%s carries %s for %s", r.ask.id, r.anchor, r.ask.prev)
}

// checkContext: the model sees exactly the client's conversation.
func (u *simUpstream) checkContext(r *simRun) {
	s := u.sim
	if r.anchor == "" && r.ask.prev != "" {
		s.must(false, "no delta without its anchor", "%s went without %s", r.ask.id, r.ask.prev)
	}
	if r.anchor == "" && !r.ask.whole {
		u.checkLostDelta(r)
		return
	}
	got := u.context(r)
	if p := u.responses[r.anchor]; p != nil && p.guessed {
		r.guessed = true
		return
	}
	if !r.ask.whole && r.ask.prev == "" && r.anchor != r.ask.talk.prev {
		// Nothing says which response a delta without an anchor means: it gets the
		// newest one of its session, and another turn or replica may have made it.
		s.counts["guessed"]++
		r.guessed = true
		return
	}
	s.must(slices.Equal(got, r.ask.expect), "the model sees the whole conversation", "%s with anchor %q\n got  %q\n want %q",
		r.ask.id, r.anchor, got, r.ask.expect)
}

// checkLostDelta: a delta without any anchor goes out only where nobody knows of
// a response.
func (u *simUpstream) checkLostDelta(r *simRun) {
	s := u.sim
	s.counts["unanchored"]++
	if e := s.shared.entry(store.Key(r.ask.turn.Key.Name())); len(e.Value) > 0 {
		record, err := DecodeRecord(e.Value, s.now)
		s.must(err != nil || record.Anchor == nil, "no delta without its anchor", "%s went without %v", r.ask.id, record.Anchor)
	}
}

// checkRepeat: nothing is sent again after it may have run, except with proof.
func (u *simUpstream) checkRepeat(r *simRun) {
	s := u.sim
	clean, silent, whole := 0, 0, 0
	for _, before := range r.ask.runs {
		ok := before.heard == 0
		switch {
		case before.refusalRead:
			ok = ok && before.unrun()
			if before.outcome == "denied" || before.outcome == "connection_limit" {
				whole++
			}
		case before.outcome == "clean" && before.endRead:
			clean++
			ok = ok && before.anchor == "" && r.ask.whole && r.ask.neutral
		default:
			// Whatever the upstream does or did with it: the proxy heard nothing in time.
			silent++
			patient := r.ask.waited(before.attempt) >= s.plan.runtime.Deadlines.FirstEvent
			ok = ok && patient && before.outcome != "torn" && r.ask.whole && (before.injected || before.anchor == "" && r.ask.neutral)
		}
		s.must(ok, "nothing is sent twice without proof", "%s again, after %q, heard %d, read end %t refusal %t, anchor %q, whole %t, neutral %t",
			r.ask.id, before.outcome, before.heard, before.endRead, before.refusalRead, before.anchor, r.ask.whole, r.ask.neutral)
		s.must(!before.live || !before.conn.open() || before.conn.http || len(before.conn.runs) > 1, "one attempt at a time",
			"%s runs twice", r.ask.id)
	}
	s.must(clean <= 2 && silent <= 1 && whole <= 1, "no turn is sent for ever", "%s: %d clean closes, %d silences, %d denials",
		r.ask.id, clean, silent, whole)
	s.must(r.ask.seen == 0, "nothing is sent again that the client has seen", "%s", r.ask.id)
	if len(r.ask.runs) > 0 {
		s.counts["replays"]++
	}
	s.must(r.ask.turn.Key.Kind != affinity.KindRequest || len(r.ask.runs) < 6, "no turn loops", "%s", r.ask.id)
}

// unrun says whether the upstream's refusal means that it did not run the request.
func (r *simRun) unrun() bool {
	switch r.outcome {
	case "denied", "limit", "auth", "connection_limit":
		return r.ask.whole
	case "orphan", "overloaded":
		return true
	}
	return false
}
