package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/test/fleet"
)

// talk is a conversation as a coding agent holds it: every turn resends all of it.
type talk struct {
	w      *world
	thread string
	items  []json.RawMessage
	asked  int
	// sent are the marks of the requests that were sent; each is in one request
	// only.
	sent []string
}

func (w *world) talk(thread string) *talk { return &talk{w: w, thread: thread} }

// answer is what came of one request.
type answer struct {
	status int
	body   string
	took   time.Duration
	err    error
}

func (a answer) ok() bool {
	return a.err == nil && a.status == http.StatusOK && strings.Contains(a.body, "event: response.completed\n")
}

// ask sends the next turn, or the last one again, to a replica. Each request
// carries a mark of its own, so that a request that is dispatched twice shows.
func (c *talk) ask(ctx context.Context, replica int, text string) answer {
	if text != "" {
		item, _ := json.Marshal(map[string]any{"type": "message", "role": "user",
			"content": []map[string]string{{"type": "input_text", "text": text}}})
		c.items = append(c.items, item)
	}
	c.asked++
	mark := fmt.Sprintf("mark-%s-%d-", c.thread, c.asked)
	c.sent = append(c.sent, mark)
	body, _ := json.Marshal(map[string]any{"model": "gpt-5.5", "input": c.items, "stream": true, "store": false,
		"metadata": map[string]string{"mark": mark}})
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.w.Address(replica)+"/v1/responses", strings.NewReader(string(body)))
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
	if a.ok() {
		for line := range strings.SplitSeq(a.body, "\n") {
			if data, found := strings.CutPrefix(line, "data: "); found && gjson.Get(data, "type").Str == "response.output_item.done" {
				c.items = append(c.items, json.RawMessage(gjson.Get(data, "item").Raw))
			}
		}
	}
	return a
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
