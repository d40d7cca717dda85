package session

import (
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/outcome"
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
	"overloaded":       {Status: 503, Code: "server_is_overloaded"},
}

// anyRetry allows all that is right.
var anyRetry = RetryPolicy{MaxAttempts: 5, Percent: 100, On: OnConnectFailure | OnStatus429 | OnStatus503 | OnStreamIncomplete | OnIdleTimeout}

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
				for bits := range 256 {
					facts := make([]Fact, 0, len(prefix)+1)
					for _, k := range prefix {
						facts = append(facts, Fact{Kind: k})
					}
					f(append(facts, end), TurnState{
						Plan:      Plan{Class: affinity.ClassFull, Provenance: provenance, Whole: bits&1 != 0},
						Recovered: bits&2 != 0, Redialed: bits&4 != 0, Neutral: bits&8 != 0, Prewarm: bits&16 != 0,
						Duplicate: bits&32 != 0, CleanCloses: bits >> 6, Moved: bits&4 != 0 && bits&8 != 0,
						Attempts: 1, Retry: anyRetry, Budget: true})
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
		silent := last == FactFirstEventTimeout || last == FactEnded && e.Last.End != nil && e.Last.End.Cause == upstream.CauseClean
		harmless := silent && !e.Life && turn.Plan.Provenance == Unanchored && turn.Neutral
		if v.Recovery != RecoverNone && !unsent && !explicit && !silentAnchor && !harmless {
			fail("what may have run is sent again only if the upstream said that it did not run, if it went silent on an injected anchor, or if a second run does no harm")
		}
		if v.Recovery == RecoverAfterPause && turn.CleanCloses >= 2 {
			fail("Scenario 121: at most two replays of clean closes")
		}
		if v.Strike != StrikeNone && (e.Life || !e.Dispatched || last == FactRefused) {
			fail("only a dispatched attempt without a sign of life strikes")
		}
		switch last {
		case FactClientGone, FactLocal, FactIncomplete, FactCompleted, FactDialFailed, FactNotSent, FactRequestTimeout, FactIdleTimeout:
			if v.Strike != StrikeNone {
				fail("a neutral end strikes nobody")
			}
		default:
		}
		if v.Settles && (last != FactCompleted || turn.Prewarm || turn.Duplicate) {
			fail("Scenarios 58, 60: only a user's completed turn settles")
		}
		if v.Anchor == AnchorWedges && (!e.Life || e.Created || turn.Plan.Provenance != Injected) {
			fail("Scenarios 54, 55: a wedge is life without creation on an anchor of ours")
		}
		if v.Recovery == RecoverWhole && (turn.Recovered || !turn.Plan.Whole) {
			fail("one recovery a turn, and only of a whole payload")
		}
		if v.Recovery == RecoverOtherAccount && !turn.Plan.Whole {
			fail("a delta never goes to another account")
		}
		if v.Anchor == AnchorDies && last != FactFault {
			fail("an anchor dies by the upstream's word alone")
		}
		if v.Anchor == AnchorReplaced && last != FactCompleted {
			fail("only a completed response makes an anchor")
		}
		switch v.Account {
		case outcome.AccountNone, outcome.AccountGood, outcome.AccountUnreachable:
		case outcome.AccountSuspect:
			if turn.Plan.Provenance != Unanchored && e.Last.Fault == nil {
				fail("what happens on an anchor is no sign against its account")
			}
		default:
			if e.Last.Fault == nil {
				fail("only the upstream's word takes an account out")
			}
		}
		if (last == FactClientGone || last == FactLocal) && v.Account != outcome.AccountNone {
			fail("an account is not blamed for what it did not do")
		}
		if last == FactClientGone && v.Client != DeliverNothing || last != FactClientGone && v.Client == DeliverNothing {
			fail("every client that is there gets an end")
		}
	})
	if n < 190_000 {
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
		if before.Recovery == RecoverNone && after.Recovery != RecoverNone || after.Strike != StrikeNone {
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
	clean := Fact{Kind: FactEnded, End: &upstream.Ended{Cause: upstream.CauseClean}}
	for _, tc := range []struct {
		name  string
		facts []Fact
		turn  TurnState
		want  Verdict
	}{
		{"completed", with(Fact{Kind: FactCreated}, Fact{Kind: FactCompleted}), whole, Verdict{Row: "completed", Settles: true, Anchor: AnchorReplaced, Account: outcome.AccountGood}},
		{"Scenario 58: a prewarm", with(Fact{Kind: FactCreated}, Fact{Kind: FactCompleted}), TurnState{Prewarm: true}, Verdict{Row: "prewarm", Account: outcome.AccountGood}},
		{"Scenario 60: a call was kept back", with(Fact{Kind: FactCreated}, Fact{Kind: FactCompleted}), TurnState{Duplicate: true}, Verdict{Row: "duplicate", Account: outcome.AccountGood, Retire: true, Client: DeliverDuplicate}},
		{"Scenario 24: legitimate incomplete", with(Fact{Kind: FactIncomplete}), whole, Verdict{Row: "incomplete", Account: outcome.AccountGood}},
		{"B35: reset after the request was read", with(cut), TurnState{Plan: whole.Plan, Neutral: true}, Verdict{Row: "cut_eventless", Strike: StrikeIncomplete, Account: outcome.AccountSuspect, Retire: true, Client: DeliverCut}},
		{"Scenario 40, after three events: no strike", with(Fact{Kind: FactCreated}, Fact{Kind: FactProgress}, cut), whole, Verdict{Row: "cut", Account: outcome.AccountSuspect, Retire: true, Client: DeliverCut}},
		{"Scenario 48: reasoning without created on an anchor of ours", with(Fact{Kind: FactProgress}, cut), injected, Verdict{Row: "wedged", Anchor: AnchorWedges, Retire: true, Client: DeliverCut}},
		{"Scenario 48: the same, and silence", with(Fact{Kind: FactProgress}, Fact{Kind: FactIdleTimeout}), injected, Verdict{Row: "wedged", Anchor: AnchorWedges, Retire: true, Client: DeliverCut}},
		{"Scenario 54: created, and silence", with(Fact{Kind: FactCreated}, Fact{Kind: FactProgress}, Fact{Kind: FactIdleTimeout}), injected, Verdict{Row: "idle", Retire: true, Client: DeliverIdle}},
		{"Scenario 55: a client's own anchor", with(Fact{Kind: FactProgress}, cut), TurnState{Plan: Plan{Provenance: ClientSupplied}}, Verdict{Row: "cut", Retire: true, Client: DeliverCut}},
		{"Scenario 121: clean close", with(clean), TurnState{Plan: whole.Plan, Neutral: true}, Verdict{Row: "clean_close", Strike: StrikeCleanClose, Retire: true, Recovery: RecoverAfterPause, Client: DeliverCut}},
		{"Scenario 121: the third clean close", with(clean), TurnState{Plan: whole.Plan, Neutral: true, CleanCloses: 2}, Verdict{Row: "clean_close", Strike: StrikeCleanClose, Retire: true, Client: DeliverCut}},
		{"clean close of a turn that acts at the upstream", with(clean), whole, Verdict{Row: "clean_close", Strike: StrikeCleanClose, Retire: true, Client: DeliverCut}},
		{"Scenario 72: liveness", with(Fact{Kind: FactEnded, End: &upstream.Ended{Cause: upstream.CauseLiveness}}), injected, Verdict{Row: "liveness", Retire: true, Client: DeliverCut}},
		{"Scenario 23: a failed envelope as the first event", with(Fact{Kind: FactFault, Fault: faults["server error"]}), injected, Verdict{Row: "upstream_fault", Strike: StrikeIncomplete, Retire: true, Client: DeliverFault}},
		{"overloaded", with(Fact{Kind: FactFault, Fault: faults["overloaded"]}), whole, Verdict{Row: "overloaded", Recovery: RecoverAnyAccount, Client: DeliverFault}},
		{"B41: overloaded within the answer", with(Fact{Kind: FactCreated}, Fact{Kind: FactFault, Fault: faults["overloaded"]}), whole, Verdict{Row: "overloaded", Recovery: RecoverAnyAccount, Client: DeliverFault}},
		{"B41: the client has seen it begin", with(Fact{Kind: FactCreated}, Fact{Kind: FactDelivered}, Fact{Kind: FactFault, Fault: faults["overloaded"]}), whole, Verdict{Row: "overloaded", Client: DeliverFault}},
		{"overloaded after work", with(Fact{Kind: FactCreated}, Fact{Kind: FactProgress}, Fact{Kind: FactFault, Fault: faults["overloaded"]}), whole, Verdict{Row: "overloaded", Client: DeliverFault}},
		{"reset under an injected anchor", with(cut), injected, Verdict{Row: "cut_eventless", Strike: StrikeIncomplete, Retire: true, Client: DeliverCut}},
		{"denied, whole", with(Fact{Kind: FactFault, Fault: faults["denial"]}), injected, Verdict{Row: "denied", Anchor: AnchorDies, Recovery: RecoverWhole, Client: DeliverAnchorGone}},
		{"denied, delta", with(Fact{Kind: FactFault, Fault: faults["denial"]}), delta, Verdict{Row: "denied", Anchor: AnchorDies, Client: DeliverAnchorGone}},
		{"denied after the client saw some of it", with(Fact{Kind: FactCreated}, Fact{Kind: FactDelivered}, Fact{Kind: FactFault, Fault: faults["denial"]}), injected, Verdict{Row: "denied_late", Anchor: AnchorDies, Client: DeliverMasked}},
		{"Scenario 22: denied, the recovery is spent", with(Fact{Kind: FactFault, Fault: faults["denial"]}), TurnState{Plan: injected.Plan, Recovered: true}, Verdict{Row: "denied", Anchor: AnchorDies, Client: DeliverAnchorGone}},
		{"denied, client's own", with(Fact{Kind: FactFault, Fault: faults["denial"]}), TurnState{Plan: Plan{Provenance: ClientSupplied}}, Verdict{Row: "denied", Anchor: AnchorDies, Client: DeliverFault}},
		{"silence on an anchor", with(Fact{Kind: FactFirstEventTimeout}), injected, Verdict{Row: "silent", Strike: StrikeSilence, Retire: true, Recovery: RecoverWhole, Client: DeliverSilence}},
		{"silence", with(Fact{Kind: FactFirstEventTimeout}), whole, Verdict{Row: "silent", Strike: StrikeSilence, Account: outcome.AccountSuspect, Retire: true, Client: DeliverSilence}},
		{"Scenario 61: silence, and any account will do", with(Fact{Kind: FactFirstEventTimeout}), TurnState{Plan: whole.Plan, Neutral: true}, Verdict{Row: "silent", Strike: StrikeSilence, Account: outcome.AccountSuspect, Retire: true, Recovery: RecoverOtherAccount, Client: DeliverSilence}},
		{"Scenario 62: silence on a delta", with(Fact{Kind: FactFirstEventTimeout}), delta, Verdict{Row: "silent", Strike: StrikeSilence, Retire: true, Client: DeliverSilence}},
		{"limit", with(Fact{Kind: FactFault, Fault: faults["limit"]}), whole, Verdict{Row: "account_fault", Account: outcome.AccountCoolDown, Recovery: RecoverOtherAccount, Client: DeliverFault}},
		{"limit after created", with(Fact{Kind: FactCreated}, Fact{Kind: FactFault, Fault: faults["limit"]}), whole, Verdict{Row: "account_fault", Account: outcome.AccountCoolDown, Client: DeliverFault}},
		{"B63: a frame that the upstream does not read", with(Fact{Kind: FactEnded, End: &upstream.Ended{Cause: upstream.CauseAbrupt, Code: 1009}}), whole, Verdict{Row: "too_large", Retire: true, Client: DeliverTooLarge}},
		{"Scenario 25: deterministic error", with(Fact{Kind: FactFault, Fault: faults["bad request"]}), whole, Verdict{Row: "fault", Client: DeliverFault}},
		{"dial failed", []Fact{{Kind: FactDialFailed}}, whole, Verdict{Row: "not_sent", Retire: true, Recovery: RecoverRedial, Client: DeliverConnect}},
		{"dial failed again", []Fact{{Kind: FactDialFailed}}, TurnState{Plan: whole.Plan, Redialed: true}, Verdict{Row: "not_sent", Retire: true, Recovery: RecoverOtherAccount, Client: DeliverConnect}},
		{"Scenario 33: not sent after all", with(Fact{Kind: FactNotSent}), whole, Verdict{Row: "not_sent", Retire: true, Recovery: RecoverRedial, Client: DeliverConnect}},
	} {
		tc.turn.Attempts, tc.turn.Retry, tc.turn.Budget = 1, anyRetry, true
		got := Decide(Digest(tc.facts), tc.turn)
		tc.want.Kind = got.Kind // a table of its own
		if got != tc.want {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}
