package bridge

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// Scenario 49 is this test without the verdict: with AnchorWedges taken out of
// the table of verdicts, the second turn wedges like the first, and for ever.
func TestScenarios48_49_AWedgedAnchorIsNotUsedAgain(t *testing.T) {
	for _, l := range wedges() {
		t.Run(l.name, func(t *testing.T) {
			i := newIncident(t, l)
			if out := i.talk.send(i.calls...); out.done() {
				t.Fatal("the wedge was no failure")
			}
			i.watched(func() { i.quarantine(i.talk.header, "Wedged") })
			out := i.talk.send()
			i.served(out)
			ds := i.dispatches(3)
			intact(t, ds[2], i.talk.before(out))
			if ds[2].Connection == ds[1].Connection {
				t.Fatal("the socket that wedged was used again")
			}
			i.unpunished()
			i.healed(4)
		})
	}
}

func TestScenario50_ADeltaKeepsASuspectAnchorOnAFreshSocket(t *testing.T) {
	i := newIncident(t, wedges()[0])
	if out := i.talk.delta(i.calls...); out.done() {
		t.Fatal("the wedge was no failure")
	}
	i.rules(talk) // the upstream knows the anchor again
	other := json.RawMessage(strings.Replace(string(i.calls[0]), `"ok"`, `"better"`, 1))
	i.served(i.talk.delta(other))
	ds := i.dispatches(3)
	if ds[2].Anchor != i.gone || ds[2].InputItems != 1 || ds[2].Connection == ds[1].Connection {
		t.Fatalf("%+v", i.seen())
	}
	i.quarantine(i.talk.header, "")
}

func TestScenario51_NoCarrierBringsASuspectAnchorBack(t *testing.T) {
	i := newIncident(t, wedges()[0])
	i.talk.send(i.calls...)
	// Three more turns that fail in their own way, on fresh sockets, and the anchor
	// stays away.
	i.rules(talk, upstream.Rule{Match: upstream.Match{Anchor: i.gone}, Fault: &upstream.Fault{Action: upstream.ActMute}},
		upstream.Rule{Repeat: 3, Fault: &upstream.Fault{At: upstream.AtAfterCreated, Action: upstream.ActReset}})
	for n := range 3 {
		if out := i.talk.send(); out.done() || out.status < http.StatusBadRequest && out.last().name != "response.failed" {
			t.Fatalf("turn %d: %d %s", n, out.status, out.names())
		}
		i.quarantine(i.talk.header, "Wedged")
	}
	i.served(i.talk.send())
	for _, s := range i.seen()[2:] {
		if s.anchored {
			t.Fatalf("the anchor came back: %+v", i.seen())
		}
	}
	i.dispatches(6)
	i.healed(7)
}

// A payload that repeats what is known and then says something else than the
// response did is not proved: nothing of it may be left out.
func TestScenario52_AnUnprovedPrefixIsSentWhole(t *testing.T) {
	for name, suspect := range map[string]bool{"good anchor": false, "suspect anchor": true} {
		t.Run(name, func(t *testing.T) {
			i := newIncident(t, wedges()[0])
			if suspect {
				i.talk.send(i.calls...)
				i.talk.items = i.talk.items[:len(i.talk.items)-1]
			}
			i.rules(talk)
			call := i.talk.items[len(i.talk.items)-1]
			i.talk.items[len(i.talk.items)-1] = json.RawMessage(strings.Replace(string(call), "step", "another step", 1))
			before := len(i.seen())
			out := i.talk.send(i.calls...)
			i.served(out)
			intact(t, i.dispatches(before + 1)[before], i.talk.before(out))
			i.healed(before + 2)
		})
	}
}

func TestScenario54_SilenceAfterCreatedIsNoWedge(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: brief, hold: briefHold})
	c := r.conversation(thread("slow")...)
	r.served(c.say("one"))
	for name, f := range map[string]upstream.Fault{"silence": {At: upstream.AtAfterCreated, Action: upstream.ActMute}, "cut": {At: upstream.AtAfterCreated, Action: upstream.ActReset}} {
		r.rules(nil, upstream.Rule{Repeat: 1, Fault: &f})
		out := c.say(name)
		if out.done() || terminals(out) != 1 {
			t.Fatalf("%s: %d %s", name, out.status, out.names())
		}
		if d := r.detail(c.header); d.Anchor != "good" || d.Strikes != 0 || attempt(d, 1).Anchor != "injected" {
			t.Fatalf("%s: %+v", name, d)
		}
		r.quarantine(c.header, "")
		r.served(c.send())
		if d := r.up.Ledger().Dispatches(); d[len(d)-1].Anchor == "" {
			t.Fatalf("%s: the anchor was dropped", name)
		}
	}
}

func TestScenario58_APrewarmSettlesNothing(t *testing.T) {
	i := newIncident(t, wedges()[0])
	i.talk.send(i.calls...)
	i.rules(talk)
	warm := *i.talk
	warm.extra = `,"generate":false`
	i.served(warm.send())
	i.quarantine(i.talk.header, "Wedged")
	out := i.talk.send()
	i.served(out)
	ds := i.dispatches(4)
	if ds[2].Generate || ds[2].Anchor != "" {
		t.Fatalf("prewarm: %+v", i.seen())
	}
	intact(t, ds[3], i.talk.before(out))
	i.quarantine(i.talk.header, "")
}

func TestScenario59_TwoOutputsAreADelta(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, script: upstream.Script{
		Conversation: &upstream.Conversation{ToolTurns: 1, Tool: "shell", Arguments: `{"cmd":"{{turn}}"}`, Parallel: 2, FinalText: "done"}}})
	c := r.conversation(thread("two")...)
	first := c.say("go")
	r.served(c.delta(first.results(strings.Repeat("long ", 2000))...)) // sizes prove nothing
	d := r.dispatches(2)[1]
	if d.Anchor != first.id() || d.InputItems != 2 || !d.AnchorResolved {
		t.Fatalf("%+v", r.seen())
	}
	r.rules(nil, upstream.Rule{Match: upstream.Match{Anchored: yes()}, Fault: &upstream.Fault{Action: upstream.ActErrorFrame, Status: 400, Code: "previous_response_not_found"}})
	again := first.results("x")
	for range 2 {
		r.refused(c.delta(again...), http.StatusBadRequest, "previous_response_not_found", "anchor_dead")
	}
	r.dispatches(3)
}

// Scenario 20, as far as there are wrong owners: a delta goes to the account of
// its anchor, whoever's turn it is, and is refused elsewhere without being sent.
func TestScenario20_ADeltaGoesToTheOwner(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 3, script: upstream.Script{Conversation: &upstream.Conversation{ToolTurns: 9, Tool: "shell", Arguments: `{"cmd":"{{turn}}"}`}}})
	c := r.conversation(thread("owner")...)
	out := c.say("go")
	owner := r.seen()[0].account
	for n := range 4 {
		r.do(call{header: thread("other"), body: hello}) // moves the round robin on
		out = c.delta(out.results("ok")...)
		r.served(out)
		ds := r.up.Ledger().Dispatches()
		if d := ds[len(ds)-1]; d.Account != owner || !d.AnchorResolved {
			t.Fatalf("turn %d: %+v", n, r.seen())
		}
	}
	// With the owner out, nothing of it reaches another.
	r.rules(nil, upstream.Rule{Match: upstream.Match{Account: owner}, Fault: &upstream.Fault{Action: upstream.ActErrorFrame, Status: 429, Code: "usage_limit_reached",
		Headers: map[string]string{"retry-after": "600"}}})
	before := len(r.seen())
	if out := c.delta(out.results("ok")...); out.status != http.StatusTooManyRequests {
		t.Fatalf("%d %s", out.status, out.body)
	}
	for _, s := range r.seen()[before:] {
		if s.account != owner {
			t.Fatalf("the delta went to %s", s.account)
		}
	}
}

// The session of an account that is out moves, and takes no anchor along.
func TestB16_AnAnchorDoesNotMoveToAnotherAccount(t *testing.T) {
	for name, f := range map[string]upstream.Fault{
		"limit":      {Action: upstream.ActErrorFrame, Status: 429, Code: "usage_limit_reached", Headers: map[string]string{"retry-after": "600"}},
		"credential": {Action: upstream.ActErrorFrame, Status: 401, Code: "token_invalidated"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, accounts: 2, deadlines: brief, script: upstream.Script{Conversation: talk}})
			c := r.conversation(thread("b16")...)
			first := c.say("go")
			owner := r.seen()[0].account
			r.rules(talk, upstream.Rule{Match: upstream.Match{Account: owner}, Fault: &f})
			out := c.send(first.results("ok")...)
			r.served(out)
			ds := r.dispatches(3)
			if ds[1].Account != owner || ds[1].Anchor == "" || ds[2].Account == owner {
				t.Fatalf("%+v", r.seen())
			}
			intact(t, ds[2], c.before(out))
			// From here on it is anchored on the new account, and nothing of the old
			// one is ever sent there.
			r.served(c.say("and?"))
			r.rules(talk) // the first account is well again
			r.served(c.say("and now?"))
			for _, d := range r.up.Ledger().Dispatches()[2:] {
				if d.Account == owner || d.Anchor != "" && !d.AnchorResolved {
					t.Fatalf("a foreign anchor: %+v", r.seen())
				}
			}
			r.quarantine(c.header, "")
			if !slices.ContainsFunc(r.seen()[3:], func(s seen) bool { return s.anchored }) {
				t.Fatal("never anchored again")
			}
		})
	}
}
