package session

import (
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// faults are the shapes of refusal that the table tells apart.
var faults = map[string]*upstream.Fault{
	"denial":           {Status: 400, Code: "previous_response_not_found"},
	"missing output":   {Status: 400, Code: "invalid_request_error", Message: "No tool output found for function call call_1."},
	"auth":             {Status: 401, Code: "invalid_api_key"},
	"limit":            {Status: 429, Code: "rate_limit_exceeded"},
	"quota":            {Status: 429, Code: "usage_limit_reached"},
	"connection limit": {Status: 400, Code: "websocket_connection_limit_reached"},
	"bad request":      {Status: 400, Code: "invalid_value"},
	"server error":     {Status: 500, Code: "server_error"},
	"no status":        {Code: "strange"},
}

// everyAttempt calls f with the full product of what an attempt can have gone
// through and what a turn can be.
func everyAttempt(f func(facts []Fact, turn TurnState)) {
	prefixes := [][]FactKind{{}, {FactDispatched}, {FactDispatched, FactCreated}, {FactDispatched, FactProgress},
		{FactDispatched, FactCreated, FactDelivered}, {FactDispatched, FactCreated, FactDelivered, FactProgress}}
	var ends []Fact
	for k := FactDialFailed; k <= FactLocal; k++ {
		switch k {
		case FactFault, FactRefused:
			for _, fault := range faults {
				ends = append(ends, Fact{Kind: k, Fault: fault})
			}
			ends = append(ends, Fact{Kind: k})
		case FactEnded:
			for c := upstream.CauseAbrupt; c <= upstream.CauseLocal; c++ {
				ends = append(ends, Fact{Kind: k, End: &upstream.Ended{Cause: c}})
			}
			ends = append(ends, Fact{Kind: k})
		default:
			ends = append(ends, Fact{Kind: k})
		}
	}
	for _, prefix := range prefixes {
		for _, end := range ends {
			for _, provenance := range []Provenance{Unanchored, ClientSupplied, Injected} {
				for bits := range 8 {
					facts := make([]Fact, 0, len(prefix)+1)
					for _, k := range prefix {
						facts = append(facts, Fact{Kind: k})
					}
					f(append(facts, end), TurnState{
						Plan:      Plan{Class: affinity.ClassFull, Provenance: provenance, Whole: bits&1 != 0},
						Recovered: bits&2 != 0, Redialed: bits&4 != 0})
				}
			}
		}
	}
}

func TestDecideIsTotalAndSafe(t *testing.T) {
	n := 0
	everyAttempt(func(facts []Fact, turn TurnState) {
		n++
		e := Digest(facts)
		v := Decide(e, turn)
		fail := func(rule string) { t.Fatalf("%s: facts %+v turn %+v -> %+v", rule, facts, turn, v) }
		last := e.Last.Kind
		explicit := last == FactFault || last == FactRefused
		if v.Row == "" {
			fail("every attempt has a row")
		}
		if e.Delivered && v.Recovery != RecoverNone && last != FactDialFailed && last != FactNotSent && last != FactRefused {
			fail("nothing is recovered after the client saw a byte of it")
		}
		unsent := !e.Dispatched || last == FactDialFailed || last == FactNotSent || last == FactRefused
		silentAnchor := last == FactFirstEventTimeout && turn.Plan.Provenance == Injected && !e.Life
		if v.Recovery != RecoverNone && !unsent && !explicit && !silentAnchor {
			fail("what may have run is sent again only if the upstream said that it did not run, or stayed silent on an injected anchor")
		}
		if v.Recovery == RecoverWhole && (turn.Recovered || !turn.Plan.Whole) {
			fail("one recovery a turn, and only of a whole payload")
		}
		if v.Recovery == RecoverOtherAccount && !turn.Plan.Whole {
			fail("a delta never goes to another account")
		}
		if e.Life && v.Anchor == AnchorSuspected {
			fail("evidence of life never makes an anchor suspect")
		}
		if (v.Anchor == AnchorDies || v.Anchor == AnchorSuspected) && turn.Plan.Provenance != Injected {
			fail("only an injected anchor is judged")
		}
		if v.Anchor == AnchorReplaced && last != FactCompleted {
			fail("only a completed response makes an anchor")
		}
		if v.Account == AccountRejected && (e.Last.Fault == nil || !e.Last.Fault.Auth()) {
			fail("only the upstream's word takes a credential out")
		}
		if (last == FactClientGone || last == FactLocal || last == FactIdleTimeout || last == FactFirstEventTimeout) && v.Account != AccountKeeps {
			fail("an account is not blamed for what it did not say")
		}
		if last == FactClientGone && v.Client != DeliverNothing || last != FactClientGone && v.Client == DeliverNothing {
			fail("every client that is there gets an end")
		}
	})
	if n < 2500 {
		t.Fatalf("only %d attempts", n)
	}
}

// Adding evidence of life to an attempt never widens what is done about it.
func TestScenario31_LifeNeverAddsToAVerdict(t *testing.T) {
	everyAttempt(func(facts []Fact, turn TurnState) {
		if len(facts) < 2 || facts[0].Kind != FactDispatched {
			return
		}
		before := Decide(Digest(facts), turn)
		alive := append(append([]Fact(nil), facts[:len(facts)-1]...), Fact{Kind: FactProgress}, facts[len(facts)-1])
		after := Decide(Digest(alive), turn)
		if before.Recovery == RecoverNone && after.Recovery != RecoverNone || before.Anchor != AnchorSuspected && after.Anchor == AnchorSuspected {
			t.Fatalf("facts %+v: %+v became %+v", facts, before, after)
		}
	})
}

func TestDecideRows(t *testing.T) {
	whole := TurnState{Plan: Plan{Whole: true}}
	injected := TurnState{Plan: Plan{Whole: true, Provenance: Injected}}
	delta := TurnState{Plan: Plan{Provenance: Injected}}
	dispatched := []Fact{{Kind: FactDispatched}}
	with := func(f ...Fact) []Fact { return append(append([]Fact(nil), dispatched...), f...) }
	cut := Fact{Kind: FactEnded, End: &upstream.Ended{Cause: upstream.CauseAbrupt}}
	for _, tc := range []struct {
		name  string
		facts []Fact
		turn  TurnState
		want  Verdict
	}{
		{"completed", with(Fact{Kind: FactCreated}, Fact{Kind: FactCompleted}), whole, Verdict{Row: "completed", Anchor: AnchorReplaced, Account: AccountSucceeded}},
		{"legitimate incomplete", with(Fact{Kind: FactIncomplete}), whole, Verdict{Row: "incomplete", Account: AccountSucceeded}},
		{"B35: reset after the request was read", with(cut), whole, Verdict{Row: "cut", Retire: true, Client: DeliverCut}},
		{"reset under an injected anchor", with(cut), injected, Verdict{Row: "cut_eventless", Anchor: AnchorSuspected, Retire: true, Client: DeliverCut}},
		{"denied, whole", with(Fact{Kind: FactFault, Fault: faults["denial"]}), injected, Verdict{Row: "denied", Anchor: AnchorDies, Recovery: RecoverWhole, Client: DeliverMasked}},
		{"denied, delta", with(Fact{Kind: FactFault, Fault: faults["denial"]}), delta, Verdict{Row: "denied", Anchor: AnchorDies, Client: DeliverMasked}},
		{"denied, client's own", with(Fact{Kind: FactFault, Fault: faults["denial"]}), TurnState{Plan: Plan{Provenance: ClientSupplied}}, Verdict{Row: "denied", Client: DeliverFault}},
		{"silence on an anchor", with(Fact{Kind: FactFirstEventTimeout}), injected, Verdict{Row: "silent", Anchor: AnchorSuspected, Retire: true, Recovery: RecoverWhole, Client: DeliverSilence}},
		{"silence", with(Fact{Kind: FactFirstEventTimeout}), whole, Verdict{Row: "silent", Retire: true, Client: DeliverSilence}},
		{"limit", with(Fact{Kind: FactFault, Fault: faults["limit"]}), whole, Verdict{Row: "account_fault", Account: AccountLimited, Recovery: RecoverOtherAccount, Client: DeliverFault}},
		{"limit after created", with(Fact{Kind: FactCreated}, Fact{Kind: FactFault, Fault: faults["limit"]}), whole, Verdict{Row: "account_fault", Account: AccountLimited, Client: DeliverFault}},
		{"deterministic error", with(Fact{Kind: FactFault, Fault: faults["bad request"]}), whole, Verdict{Row: "fault", Client: DeliverFault}},
		{"dial failed", []Fact{{Kind: FactDialFailed}}, whole, Verdict{Row: "not_sent", Retire: true, Recovery: RecoverRedial, Client: DeliverConnect}},
		{"dial failed again", []Fact{{Kind: FactDialFailed}}, TurnState{Plan: whole.Plan, Redialed: true}, Verdict{Row: "not_sent", Account: AccountUnreachable, Retire: true, Recovery: RecoverOtherAccount, Client: DeliverConnect}},
		{"not sent after all", with(Fact{Kind: FactNotSent}), whole, Verdict{Row: "not_sent", Retire: true, Recovery: RecoverRedial, Client: DeliverConnect}},
	} {
		if got := Decide(Digest(tc.facts), tc.turn); got != tc.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}
