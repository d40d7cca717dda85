package upstream

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func TestHeldAnswerGoesOnWhenReleased(t *testing.T) {
	s := Start(t, Options{Script: Script{Respond: &Respond{Text: "hi"}, Rules: []Rule{{Fault: &Fault{At: AtAfterCreated, Action: ActHold}}}}})
	k := dial(t, s, "sk")
	s.Release() // one that comes early is not lost
	if got := last(k.turn()).name; got != "response.completed" {
		t.Fatalf("ended with %s", got)
	}
	k.say(create())
	k.next()
	if d := s.Ledger().Dispatches()[1]; d.Outcome != OutcomeRunning {
		t.Fatalf("held answer is %s", d.Outcome)
	}
	if got := call(t, s, http.MethodPost, "/_release", "", "").status; got != http.StatusNoContent {
		t.Fatalf("release: %d", got)
	}
	if got := last(k.answer()).name; got != "response.completed" {
		t.Fatalf("ended with %s", got)
	}
}

func TestFaultThatIsHeld(t *testing.T) {
	s := Start(t, Options{Script: Script{Rules: []Rule{{Fault: &Fault{Action: ActReset, Held: true}}}}})
	k := dial(t, s, "sk")
	k.say(create())
	err := s.Ledger().Wait(testContext(t), func(ds []Dispatch) bool { return len(ds) == 1 && ds[0].Outcome == OutcomeRunning })
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
	if _, _, err := k.ReadMessage(); err == nil {
		t.Fatal("no reset")
	}
}

func TestForgottenAnchorsAreUnknown(t *testing.T) {
	s := Start(t, Options{})
	k := dial(t, s, "sk")
	id := idOf(k.turn())
	s.Forget()
	if got := codeOf(k.turn("previous_response_id", id)); got != notFound {
		t.Errorf("platform: %q", got)
	}
	c := dialAt(t, s, "/backend-api/codex/responses", "sk")
	id = idOf(c.turn())
	call(t, s, http.MethodPost, "/_forget", "", "")
	c.say(create("previous_response_id", id))
	if err := s.Ledger().Wait(testContext(t), func(ds []Dispatch) bool { return len(ds) == 4 && ds[3].Outcome == OutcomeMuted }); err != nil {
		t.Errorf("chatgpt: %v; %+v", err, s.Ledger().Dispatches()[3:])
	}
}

func TestRuleForOneAnchor(t *testing.T) {
	s := Start(t, Options{Mode: ModeChatGPT})
	k := dial(t, s, "sk")
	first, second := idOf(k.turn()), idOf(k.turn())
	if err := s.Script(Script{Rules: []Rule{{Match: Match{Anchor: first}, Fault: &Fault{Action: ActErrorFrame, Status: 400, Code: notFound}}}}); err != nil {
		t.Fatal(err)
	}
	if got := codeOf(k.turn("previous_response_id", first)); got != notFound {
		t.Errorf("%q", got)
	}
	if got := last(k.turn("previous_response_id", second)).name; got != "response.completed" {
		t.Errorf("%s", got)
	}
}

func TestErrorsInAnyForm(t *testing.T) {
	for name, c := range map[string]struct {
		fault Fault
		want  string // of the last event
	}{
		"a frame as it is": {Fault{Action: ActErrorFrame, Body: `{"error":{"code":"x","param":""}}`}, `{"error":{"code":"x","param":""}}`},
		"failed with all members": {Fault{Action: ActFailed, Status: 400, Code: "c", Type: "t", Param: "p", Message: "m"},
			`{"code":"c","message":"m","type":"t","param":"p"}`},
		"failed as it is": {Fault{Action: ActFailed, Body: `{"type":"only"}`}, `{"type":"only"}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := Start(t, Options{Script: Script{Rules: []Rule{{Fault: &c.fault}}}})
			k := dial(t, s, "sk")
			k.say(create())
			got := k.next()
			if c.fault.Action == ActFailed {
				got = gjson.Get(got, "response.error").Raw
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if d := ended(t, s, 1)[0]; d.Outcome != OutcomeRefused {
				t.Errorf("outcome %s", d.Outcome)
			}
		})
	}
}

func TestSocketThatIsResetInMidFrame(t *testing.T) {
	s := Start(t, Options{Script: Script{Connection: Connection{ResetAfter: 64 << 10}}})
	k := dial(t, s, "sk")
	if got := last(k.turn()).name; got != "response.completed" {
		t.Fatalf("a small frame: %s", got)
	}
	_ = k.WriteMessage(1, []byte(create("input", strings.Repeat("x", 1<<20)))) // the reader learns of it
	if _, _, err := k.ReadMessage(); err == nil {
		t.Fatal("the socket lives")
	}
	if n := len(ended(t, s, 1)); n != 1 {
		t.Errorf("%d dispatches", n)
	}
}
