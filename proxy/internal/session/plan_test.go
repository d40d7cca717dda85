package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

const (
	user1     = `{"role":"user","content":"one"}`
	call1     = `{"type":"function_call","call_id":"c1","name":"sh","arguments":"{}"}`
	result1   = `{"type":"function_call_output","call_id":"c1","output":"ok"}`
	callItem  = `{"id":"fc","type":"function_call","status":"completed","call_id":"c1","name":"sh","arguments":"{}"}`
	otherItem = `{"role":"user","content":"rewritten"}`
)

func factsOf(extra string, items ...string) affinity.Facts {
	return affinity.Read([]byte(`{"model":"m"` + extra + `,"input":[` + strings.Join(items, ",") + `]}`))
}

func anchorOf(status AnchorStatus, account string, connection uint64) *Anchor {
	prior := factsOf("", user1)
	return &Anchor{ResponseID: "r1", Account: account, Connection: connection, Status: status,
		Known: affinity.Known{Items: 1, Prefix: prior.Input.Prefix(), Outputs: []affinity.Output{affinity.ReadOutput([]byte(callItem))}}}
}

// The truth table of the planner: payload class against the state of the anchor.
func TestMakeTable(t *testing.T) {
	whole, delta, rewritten := factsOf("", user1, call1, result1), factsOf("", result1), factsOf("", otherItem)
	here := Target{Account: "a", Connection: 7, Scope: upstream.ScopeConnection}
	for _, tc := range []struct {
		name   string
		facts  affinity.Facts
		anchor *Anchor
		target Target
		want   string // anchor and first item, or the refusal's code and reason
	}{
		{"whole, good", whole, anchorOf(AnchorGood, "a", 7), here, "r1 from 2"},
		{"whole, other socket", whole, anchorOf(AnchorGood, "a", 6), here, "none from 0"},
		{"whole, by HTTP", whole, anchorOf(AnchorGood, "a", 7), Target{Account: "a", Scope: upstream.ScopeConnection}, "none from 0"},
		{"B16: whole, other account", whole, anchorOf(AnchorGood, "b", 7), here, "none from 0"},
		{"whole, suspect", whole, anchorOf(AnchorSuspect, "a", 7), here, "none from 0"},
		{"whole, dead", whole, anchorOf(AnchorDead, "a", 7), here, "none from 0"},
		{"whole, none", whole, nil, here, "none from 0"},
		{"delta, good", delta, anchorOf(AnchorGood, "a", 7), here, "r1 from 0"},
		{"delta, suspect", delta, anchorOf(AnchorSuspect, "a", 7), here, "r1 from 0"},
		{"delta, dead", delta, anchorOf(AnchorDead, "a", 7), here, "previous_response_not_found anchor_dead"},
		{"delta, other account", delta, anchorOf(AnchorGood, "b", 7), here, "owner_account_unavailable "},
		{"B23: delta, other socket", delta, anchorOf(AnchorGood, "a", 6), here, "previous_response_not_found connection_gone"},
		{"delta, none", delta, nil, here, "none from 0"},
		{"rewritten history", rewritten, anchorOf(AnchorGood, "a", 7), here, "none from 0"},
		{"account scope, any socket", whole, anchorOf(AnchorGood, "a", 0), Target{Account: "a", Connection: 9, Scope: upstream.ScopeAccount}, "r1 from 2"},
		{"account scope, other account", whole, anchorOf(AnchorGood, "b", 0), Target{Account: "a", Connection: 9, Scope: upstream.ScopeAccount}, "none from 0"},
		{"conversation", factsOf(`,"conversation":"conv_1"`, user1, call1, result1), anchorOf(AnchorGood, "a", 7), here, "none from 0"},
	} {
		plan, refusal := Make(Question{Facts: tc.facts, Hard: true, Record: Record{Account: "a", Anchor: tc.anchor}, Target: tc.target})
		var got string
		switch {
		case refusal != nil:
			got = refusal.Code + " " + refusal.Reason
		case plan.Anchor == "":
			got = fmt.Sprint("none from ", plan.From)
		default:
			got = fmt.Sprint(plan.Anchor, " from ", plan.From)
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

// The rules of the planner over the product of its inputs.
func TestMakeIsSafe(t *testing.T) {
	payloads := map[string]affinity.Facts{
		"whole": factsOf("", user1, call1, result1), "delta": factsOf("", result1), "first": factsOf("", user1),
		"client anchor": factsOf(`,"previous_response_id":"r1"`, result1), "conversation": factsOf(`,"conversation":"c"`, user1),
	}
	n := 0
	for name, facts := range payloads {
		for status := AnchorGood; status <= AnchorDead; status++ {
			for _, anchorAccount := range []string{"a", "b"} {
				for _, connection := range []uint64{0, 6, 7} {
					for _, target := range []Target{{Account: "a", Connection: 7}, {Account: "a"}, {Account: "b", Connection: 7}, {Account: "a", Connection: 7, Scope: upstream.ScopeAccount}} {
						for bits := range 64 {
							n++
							q := Question{Facts: facts, Hard: bits&1 != 0, Whole: bits&2 != 0, Unowned: bits&16 != 0, Target: target,
								Record: Record{Account: "a", Anchor: anchorOf(status, anchorAccount, connection)},
								Owner:  Owner{Known: bits&4 != 0, Account: anchorAccount, Connection: connection, MayPass: bits&8 != 0}}
							if bits&32 != 0 {
								q.Record.Health.Denied = []string{"r1"}
							}
							plan, refusal := Make(q)
							fail := func(rule string) { t.Fatalf("%s: %s: %+v -> %+v", name, rule, q, plan) }
							if refusal != nil {
								continue
							}
							checkPlan(t, q, plan)
							if name == "client anchor" && bits&32 != 0 {
								fail("Scenario 84: an id that the upstream denied is not sent again")
							}
							if plan.Provenance == Injected {
								if anchorAccount != target.Account || target.Scope == upstream.ScopeConnection && connection != target.Connection {
									fail("no anchor outside its scope")
								}
								if plan.Whole && status != AnchorGood {
									fail("no suspect anchor on a whole payload")
								}
								if status == AnchorDead {
									fail("no dead anchor")
								}
							}
							if name == "delta" && plan.Anchor == "" && q.Hard {
								fail("no delta without its anchor")
							}
							if plan.From > 0 && plan.Provenance != Injected {
								fail("nothing is cut that no anchor covers")
							}
							if plan.From >= len(facts.Input.Items) && plan.From > 0 {
								fail("something is always sent")
							}
						}
					}
				}
			}
		}
	}
	if n < 1000 {
		t.Fatalf("only %d questions", n)
	}
}

func TestFrame(t *testing.T) {
	big := `"` + strings.Repeat("x", 2000) + `"`
	body := []byte(`{"model":"m","stream":true,"big":` + big + `,"n":1.0,"input":[{"a":1}, {"b":2},{"c":3}],"previous_response_id":"old","client_metadata":{"k":"v"},"background":false}`)
	facts := affinity.Read(body)
	text := func(p Plan, tr Transport, state string) string {
		var b strings.Builder
		r := frame(body, facts.Input, p, tr, state)
		for _, s := range r.Segments {
			b.Write(s)
		}
		if int64(b.Len()) != r.Size() {
			t.Fatalf("size %d, wrote %d", r.Size(), b.Len())
		}
		return strings.Replace(b.String(), big, "BIG", 1)
	}
	for want, got := range map[string]string{
		`{"type":"response.create","model":"m","big":BIG,"n":1.0,"input":[{"a":1}, {"b":2},{"c":3}],"client_metadata":{"k":"v"}}`:                           text(Plan{}, WebSocket, ""),
		`{"stream":true,"model":"m","big":BIG,"n":1.0,"input":[{"a":1}, {"b":2},{"c":3}],"client_metadata":{"k":"v"}}`:                                      text(Plan{}, HTTP, ""),
		`{"type":"response.create","previous_response_id":"r\"1","model":"m","big":BIG,"n":1.0,"input":[{"b":2},{"c":3}],"client_metadata":{"k":"v"}}`:      text(Plan{Anchor: `r"1`, From: 1}, WebSocket, ""),
		`{"type":"response.create","model":"m","big":BIG,"n":1.0,"input":[{"a":1}, {"b":2},{"c":3}],"client_metadata":{"k":"v","x-codex-turn-state":"ts"}}`: text(Plan{}, WebSocket, "ts"),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(`{"model":"m","input":[1,{"a":2},"x"],"stream":true}`, 1)
	f.Fuzz(func(t *testing.T, body string, from int) {
		facts := affinity.Read([]byte(body))
		if n := len(facts.Input.Items); n == 0 || from < 0 || from >= n {
			from = 0
		}
		r := frame([]byte(body), facts.Input, Plan{Anchor: "r", From: from}, WebSocket, "")
		var b strings.Builder
		for _, s := range r.Segments {
			b.Write(s)
		}
		if !strings.HasPrefix(b.String(), `{"type":"response.create","previous_response_id":"r"`) || !strings.HasSuffix(b.String(), "}") {
			t.Fatalf("frame %q", b.String())
		}
	})
}
