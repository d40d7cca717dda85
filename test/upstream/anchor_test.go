package upstream

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/tidwall/gjson"
)

const notFound = "previous_response_not_found"

func TestPlatformKeepsTheNewestResponseOfASocket(t *testing.T) {
	s := Start(t, Options{})
	k := dial(t, s, "sk")
	first := idOf(k.turn())
	second := idOf(k.turn("previous_response_id", first))
	if got := codeOf(k.turn("previous_response_id", first)); got != notFound {
		t.Errorf("an older response resolved: code %q", got)
	}
	if got := codeOf(dial(t, s, "sk").turn("previous_response_id", second)); got != notFound {
		t.Errorf("a response of another socket resolved: code %q", got)
	}
	if got := last(k.turn("previous_response_id", second)).name; got != "response.completed" {
		t.Errorf("the newest response did not resolve: %s", got)
	}
	frame := string(last(k.turn("previous_response_id", "resp_x")).payload)
	want := `{"type":"error","status":400,"error":{"type":"invalid_request_error","code":"previous_response_not_found",` +
		`"message":"Previous response with id 'resp_x' not found.","param":"previous_response_id"}}`
	if frame != want {
		t.Errorf("got  %s\nwant %s", frame, want)
	}
	ds := ended(t, s, 6)
	if !ds[1].AnchorResolved || ds[2].AnchorResolved || ds[2].Outcome != OutcomeRefused {
		t.Errorf("ledger: %+v", ds[1:3])
	}
}

func TestPlatformEvictsAnAnchorThatWasFailedOn(t *testing.T) {
	s := Start(t, Options{Script: Script{Rules: []Rule{{Match: Match{Nth: 2}, Fault: &Fault{Action: ActErrorFrame, Status: 500}}}}})
	k := dial(t, s, "sk")
	first := idOf(k.turn())
	if got := codeOf(k.turn("previous_response_id", first)); got != "server_error" {
		t.Fatalf("the fault was not played: %q", got)
	}
	if got := codeOf(k.turn("previous_response_id", first)); got != notFound {
		t.Errorf("the anchor survived a failure: %q", got)
	}
}

func TestPlatformStoredResponseResolvesInItsAccountOnly(t *testing.T) {
	s := Start(t, Options{Accounts: map[string]string{"sk-a": "a", "sk-b": "b"}})
	stored := idOf(dial(t, s, "sk-a").turn("store", true))
	if got := last(dial(t, s, "sk-a").turn("previous_response_id", stored)).name; got != "response.completed" {
		t.Errorf("stored response on another socket: %s", got)
	}
	if got := post(t, s, "sk-a", body("previous_response_id", stored)).status; got != http.StatusOK {
		t.Errorf("stored response over HTTP: %d", got)
	}
	r := post(t, s, "sk-b", body("previous_response_id", stored))
	if r.status != http.StatusBadRequest || r.get("error.code") != notFound {
		t.Errorf("B103: a foreign account's response resolved: %d %s", r.status, r.body)
	}
	unstored := idOf(post(t, s, "sk-a", body()).events)
	if got := post(t, s, "sk-a", body("previous_response_id", unstored)).status; got != http.StatusBadRequest {
		t.Errorf("a response that was not stored resolved over HTTP: %d", got)
	}
}

func TestPlatformLanes(t *testing.T) {
	s := Start(t, Options{})
	k := dial(t, s, "sk")
	a := k.turn("stream_id", "a")
	if got := gjson.GetBytes(a[0].payload, "stream_id").String(); got != "a" {
		t.Errorf("events do not name their lane: %s", a[0].payload)
	}
	k.turn("stream_id", "b")
	if got := last(k.turn("stream_id", "a", "previous_response_id", idOf(a))).name; got != "response.completed" {
		t.Errorf("another lane's response displaced that of lane a: %s", got)
	}
}

func TestPrewarmIsAnAnchor(t *testing.T) {
	s := Start(t, Options{})
	k := dial(t, s, "sk")
	warm := k.turn("generate", false, "input", []any{message("developer", "be good")})
	if len(warm) != 2 {
		t.Fatalf("got %v, want created and completed", names(warm))
	}
	if got := textOf(k.turn("previous_response_id", idOf(warm), "input", "hi")); got != "You said: hi" {
		t.Errorf("got %q", got)
	}
	ds := ended(t, s, 2)
	if ds[1].LogicalItems != 2 || ds[1].InputItems != 1 || !ds[1].AnchorResolved {
		t.Errorf("ledger: %+v", ds[1])
	}
}

func TestChatGPTAnchorBelongsToTheAccount(t *testing.T) {
	s := Start(t, Options{Mode: ModeChatGPT})
	id := idOf(dial(t, s, "sk-a").turn())
	events := dial(t, s, "sk-a").turn("previous_response_id", id)
	if got := last(events).name; got != "response.completed" {
		t.Errorf("another socket of the account: %s", got)
	}
	for _, e := range events {
		if got := gjson.GetBytes(e.payload, "response_id").String(); got != idOf(events) {
			t.Errorf("response_id %q on %s", got, e.payload)
		}
	}
}

func TestChatGPTAnswersAForeignAnchorWithSilence(t *testing.T) {
	s := Start(t, Options{Mode: ModeChatGPT})
	id := idOf(dial(t, s, "sk-a").turn())
	k := dial(t, s, "sk-b")
	k.say(create("previous_response_id", id))
	muted := func(ds []Dispatch) bool { return ds[len(ds)-1].Outcome == OutcomeMuted }
	if err := s.Ledger().Wait(k.ctx, muted); err != nil {
		t.Fatal(err)
	}
	pong := make(chan struct{})
	k.SetPongHandler(func(string) error { close(pong); return k.SetReadDeadline(time.Now()) })
	if err := k.WriteControl(websocket.PingMessage, nil, time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, b, err := k.ReadMessage(); err == nil {
		t.Errorf("got %s, want silence", b)
	}
	<-pong
}

func TestChatGPTAnswersAForeignAnchorOverHTTPWithSilence(t *testing.T) {
	s := Start(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_ = s.Ledger().Wait(t.Context(), func(ds []Dispatch) bool { return len(ds) == 1 && ds[0].Outcome == OutcomeMuted })
		cancel()
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/backend-api/codex/responses", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sk")
	req.Body = bodyOf(body("previous_response_id", "resp_of_nobody"))
	res, err := client(t).Do(req)
	if err == nil {
		_ = res.Body.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want silence until the client left", err)
	}
	ended(t, s, 1)
}

func TestChatGPTStreamsSeveralResponsesAtOnce(t *testing.T) {
	s := Start(t, Options{Mode: ModeChatGPT, Script: Script{Rules: []Rule{
		{Match: Match{InputContains: "slow"}, Fault: &Fault{At: AtAfterCreated, Action: ActStall}},
	}}})
	k := dial(t, s, "sk")
	k.say(create("input", "slow"))
	if got := gjson.Get(k.next(), "type").String(); got != "response.created" {
		t.Fatalf("got %s", got)
	}
	if got := textOf(k.turn("input", "fast")); got != "You said: fast" {
		t.Errorf("got %q", got)
	}
}

func TestPlatformRunsOneResponseOfALaneAtATime(t *testing.T) {
	s := Start(t, Options{Script: Script{Respond: &Respond{Text: "a b c", EventDelay: Duration(time.Millisecond)}}})
	k := dial(t, s, "sk")
	k.say(create("input", "one"))
	k.say(create("input", "two"))
	first, second := k.answer(), k.answer()
	for _, events := range [][]event{first, second} {
		if got := len(events); got != 11 || events[0].name != "response.created" {
			t.Errorf("events are mixed: %v", names(events))
		}
	}
}
