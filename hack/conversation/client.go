// Package conversation is a small coding agent for demonstrations: like Codex
// over HTTP it sends the whole conversation with every request, runs the tools
// the model asks for, and reads the answer as a stream. Beside each request it
// shows what the scripted upstream saw of it.
package conversation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// maxEvent bounds one line of the stream in bytes; answers here are small.
const maxEvent = 16 << 20

// Client is one conversation. It is not safe for concurrent use.
type Client struct {
	// BaseURL is the proxy's, with /v1.
	BaseURL string
	// Key is the client key; it is only ever sent, never printed.
	Key     string
	Model   string
	Session string
	HTTP    *http.Client

	history []any
}

// Answer is what came back for one request.
type Answer struct {
	Status    int
	SentBytes int
	SentItems int
	// Events are the names of the streamed events, in order.
	Events []string
	Text   string
	// Calls are the tool calls the model asks for.
	Calls      []Call
	ResponseID string
	// FirstEvent is the time from the request to its first event.
	FirstEvent time.Duration
}

// Call is one function call of an answer.
type Call struct {
	Name, ID string
	item     json.RawMessage
}

type message struct {
	Type    string `json:"type"`
	Role    string `json:"role"`
	Content []part `json:"content"`
}

type part struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type callOutput struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output string `json:"output"`
}

// User adds what the person at the keyboard says.
func (c *Client) User(text string) {
	if len(c.history) == 0 {
		c.history = append(c.history, message{"message", "developer", []part{{"input_text", instructions()}}})
	}
	c.history = append(c.history, message{"message", "user", []part{{"input_text", text}}})
}

// ToolOutput adds the result of a call.
func (c *Client) ToolOutput(call Call, output string) {
	c.history = append(c.history, callOutput{"function_call_output", call.ID, output})
}

// Send makes one request with the whole conversation and reads the stream. The
// answer becomes part of the conversation. An answer that is not a completed
// stream is an error.
func (c *Client) Send(ctx context.Context) (Answer, error) {
	body, err := json.Marshal(c.request())
	if err != nil {
		return Answer{}, fmt.Errorf("encoding the request: %w", err)
	}
	answer := Answer{SentBytes: len(body), SentItems: len(c.history)}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.BaseURL, "/")+"/responses", bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Session-Id", c.Session)
	req.Header.Set("Thread-Id", c.Session)
	req.Header.Set("X-Client-Request-Id", c.Session)
	req.Header.Set("User-Agent", "causeway-talk")
	begun := time.Now()
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return answer, fmt.Errorf("sending the request: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer.Status = resp.StatusCode
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return answer, fmt.Errorf("the proxy answered %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return answer, c.read(resp.Body, begun, &answer)
}

func (c *Client) request() map[string]any {
	return map[string]any{
		"model": c.Model, "stream": true, "store": false, "input": c.history, "tools": tools(),
		"tool_choice": "auto", "parallel_tool_calls": true, "include": []string{"reasoning.encrypted_content"},
		"prompt_cache_key": c.Session,
	}
}

// event is what the reader needs of any event.
type event struct {
	Type  string          `json:"type"`
	Delta string          `json:"delta"`
	Item  json.RawMessage `json:"item"`
	Error json.RawMessage `json:"error"`
	Reply struct {
		ID    string          `json:"id"`
		Error json.RawMessage `json:"error"`
	} `json:"response"`
}

func (c *Client) read(stream io.Reader, begun time.Time, answer *Answer) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data:")
		if !found || strings.TrimSpace(data) == "[DONE]" {
			continue
		}
		var e event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return fmt.Errorf("an event is not JSON: %w", err)
		}
		if e.Type == "" || strings.HasSuffix(e.Type, "keepalive") {
			continue
		}
		if len(answer.Events) == 0 {
			answer.FirstEvent = time.Since(begun)
		}
		answer.Events = append(answer.Events, e.Type)
		if done, err := c.take(e, answer); err != nil {
			return err
		} else if done {
			// To the end, so that the next request can use the connection.
			_, err := io.Copy(io.Discard, stream)
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the stream: %w", err)
	}
	return fmt.Errorf("the stream ended without a terminal event after %d events", len(answer.Events))
}

func (c *Client) take(e event, answer *Answer) (done bool, err error) {
	switch e.Type {
	case "response.output_text.delta":
		answer.Text += e.Delta
	case "response.output_item.done":
		c.history = append(c.history, e.Item)
		var item struct {
			Type   string `json:"type"`
			Name   string `json:"name"`
			CallID string `json:"call_id"`
		}
		if err := json.Unmarshal(e.Item, &item); err != nil {
			return false, fmt.Errorf("an output item is not what it should be: %w", err)
		}
		if item.Type == "function_call" {
			answer.Calls = append(answer.Calls, Call{Name: item.Name, ID: item.CallID, item: e.Item})
		}
	case "response.completed":
		answer.ResponseID = e.Reply.ID
		return true, nil
	case "response.failed", "response.incomplete":
		return true, fmt.Errorf("the turn ended with %s: %s", e.Type, e.Reply.Error)
	case "error":
		return true, fmt.Errorf("the turn ended with an error: %s", e.Error)
	}
	return false, nil
}
