package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/test/fleet"
)

// talk is a conversation. A coding agent resends all of it with every turn; with
// deltas it names the last response and adds what is new.
type talk struct {
	w      *world
	thread string
	deltas bool
	items  []json.RawMessage
	// previous is the last response, before which there were covered items.
	previous string
	covered  int
	asked    int
	// sent are the marks of the requests; each is in one request only. Repeating a
	// delta repeats the request.
	sent []string
	last string
}

func (w *world) talk(thread string) *talk { return &talk{w: w, thread: thread} }

// answer is what came of one request.
type answer struct {
	status int
	body   string
	after  time.Duration // what Retry-After says
	took   time.Duration
	err    error
}

func (a answer) ok() bool {
	return a.err == nil && a.status == http.StatusOK && strings.Contains(a.body, "event: response.completed\n")
}

func (a answer) is(code string) bool { return !a.ok() && strings.Contains(a.body, `"`+code+`"`) }

// says adds what the user says.
func (c *talk) says(text string) {
	item, _ := json.Marshal(map[string]any{"type": "message", "role": "user",
		"content": []map[string]string{{"type": "input_text", "text": text}}})
	c.items = append(c.items, item)
}

// ask sends the next turn, or the last one again, to a replica.
func (c *talk) ask(ctx context.Context, replica int, text string) answer {
	if text != "" {
		c.says(text)
	}
	return c.send(ctx, replica, c.request(""))
}

// request is the turn that is due, with a mark of its own, so that a request
// that is dispatched twice shows.
func (c *talk) request(pace string) string {
	c.asked++
	mark := fmt.Sprintf("mark-%s-%d-%s", c.thread, c.asked, pace)
	c.sent = append(c.sent, mark)
	turn := map[string]any{"model": "gpt-5.5", "input": c.items, "stream": true, "store": false, "metadata": map[string]string{"mark": mark}}
	if c.deltas && c.previous != "" {
		turn["previous_response_id"], turn["input"] = c.previous, c.items[c.covered:]
	}
	body, _ := json.Marshal(turn)
	c.last = string(body)
	return c.last
}

func (c *talk) send(ctx context.Context, replica int, body string) answer {
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.w.Address(replica)+"/v1/responses", strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+fleet.ClientKey)
	req.Header.Set("Thread-Id", c.thread)
	req.Header.Set("Session-Id", c.thread)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(begun)}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	a := answer{status: res.StatusCode, body: string(raw), took: time.Since(begun), err: err}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		a.after = time.Duration(seconds) * time.Second
	}
	if a.ok() {
		c.heard(a.body)
	}
	return a
}

// heard adds an answer to the conversation.
func (c *talk) heard(stream string) {
	for line := range strings.SplitSeq(stream, "\n") {
		data, found := strings.CutPrefix(line, "data: ")
		if !found {
			continue
		}
		switch gjson.Get(data, "type").Str {
		case "response.output_item.done":
			c.items = append(c.items, json.RawMessage(gjson.Get(data, "item").Raw))
		case "response.completed":
			c.previous, c.covered = gjson.Get(data, "response.id").Str, len(c.items)
		}
	}
}

// must is a turn that succeeds.
func (c *talk) must(t *testing.T, replica int, text string) answer {
	t.Helper()
	a := c.ask(t.Context(), replica, text)
	if !a.ok() {
		t.Fatalf("%s, %q at pod-%d: status %d, %v\n%.600s", c.thread, text, replica, a.status, a.err, a.body)
	}
	return a
}

// insist repeats a delta whose answer was lost, as its client would: the same
// request again, when it is told to come back, and the whole conversation when its
// response is not known any more. It counts the answers that were none.
func (c *talk) insist(t *testing.T, replicas ...int) (refused int) {
	t.Helper()
	for deadline := time.Now().Add(100 * time.Second); time.Now().Before(deadline); refused++ {
		a := c.send(t.Context(), replicas[refused%len(replicas)], c.last)
		switch {
		case a.ok():
			return refused
		case a.is("previous_response_not_found"):
			c.previous = ""
			c.must(t, replicas[refused%len(replicas)], "")
			return refused + 1
		case a.err == nil && a.status != http.StatusServiceUnavailable && a.status != http.StatusConflict:
			t.Fatalf("%s: status %d\n%.600s", c.thread, a.status, a.body)
		}
		<-time.After(min(max(a.after, 100*time.Millisecond), 5*time.Second))
	}
	t.Fatalf("%s: the turn got no answer", c.thread)
	return 0
}
