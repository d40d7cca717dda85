package conversation

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// service answers the first request with a tool call and the second with text.
func service(t *testing.T) *httptest.Server {
	t.Helper()
	requests := 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Content-Type", "text/event-stream")
		item := `{"type":"function_call","name":"shell","call_id":"call_1","arguments":"{}"}`
		if requests > 1 {
			item = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}`
			fmt.Fprint(w, "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"done\"}\n\n")
		}
		fmt.Fprintf(w, "data: {\"type\":\"response.output_item.done\",\"item\":%s}\n\n", item)
		fmt.Fprint(w, "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\"}}\n\n")
	})
	mux.HandleFunc("GET /_ledger", func(w http.ResponseWriter, _ *http.Request) {
		for i := range requests {
			d := Dispatch{Kind: "dispatch", Seq: int64(i + 1), Account: "first", WireBytes: 10, InputItems: 1, Outcome: "completed"}
			line, _ := json.Marshal(d)
			fmt.Fprintf(w, "%s\n{\"kind\":\"connection\",\"seq\":99}\n", line)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func TestSayRunsToolsAndCountsBothSides(t *testing.T) {
	server := service(t)
	var out strings.Builder
	s := &Session{
		Client: &Client{BaseURL: server.URL + "/v1", Key: "cwk-secret", Model: "m", Session: "s", HTTP: server.Client()},
		Ledger: &Ledger{URL: server.URL + "/_ledger", HTTP: server.Client()}, Out: &out,
	}
	if err := s.Say(t.Context(), "look around"); err != nil {
		t.Fatal(err)
	}
	totals := s.Totals()
	if totals.Requests != 2 || totals.UpstreamBytes != 20 || totals.Saved() < 90 {
		t.Errorf("totals are %+v", totals)
	}
	if !strings.Contains(out.String(), "model: done") || strings.Contains(out.String(), "cwk-secret") {
		t.Errorf("output is\n%s", out.String())
	}
	if got := len(s.Client.history); got != 5 { // instructions, user, call, output, message
		t.Errorf("history has %d items, want 5", got)
	}
}

func TestStreamWithoutTerminalEventIsAnError(t *testing.T) {
	c := &Client{}
	err := c.read(strings.NewReader("data: {\"type\":\"response.created\"}\n\n"), time.Time{}, &Answer{})
	if err == nil || !strings.Contains(err.Error(), "terminal") {
		t.Errorf("got %v", err)
	}
}

func TestErrorAnswerIsShown(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":{"code":"invalid_api_key"}}`)
	}))
	defer server.Close()
	c := &Client{BaseURL: server.URL, HTTP: server.Client()}
	c.User("hello")
	if _, err := c.Send(t.Context()); err == nil || !strings.Contains(err.Error(), "invalid_api_key") {
		t.Errorf("got %v", err)
	}
}
