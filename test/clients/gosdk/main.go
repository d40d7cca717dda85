// Command gosdk runs calls of the OpenAI SDK for Go, all at once. They come as
// JSON on stdin, what the SDK made of them leaves as JSON on stdout; calls_test.go
// has both forms.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

type job struct {
	BaseURL string `json:"baseURL"`
	IdleMS  int    `json:"idleMS"`
	Calls   []call `json:"calls"`
}

type call struct {
	Kind       string          `json:"kind"`
	APIKey     string          `json:"apiKey"`
	Request    json.RawMessage `json:"request"`
	MaxRetries int             `json:"maxRetries"`
}

type result struct {
	ID            string         `json:"id,omitempty"`
	Status        string         `json:"status,omitempty"`
	Text          string         `json:"text,omitempty"`
	Deltas        string         `json:"deltas,omitempty"`
	Calls         []toolCall     `json:"calls,omitempty"`
	Events        []string       `json:"events,omitempty"`
	Models        []string       `json:"models,omitempty"`
	Dimensions    []int          `json:"dimensions,omitempty"`
	RequestID     string         `json:"requestID,omitempty"`
	ResponseError *responseError `json:"responseError,omitempty"`
	Error         *apiError      `json:"error,omitempty"`
	ElapsedMS     int64          `json:"elapsedMS"`
}

type toolCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	CallID    string `json:"callID"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type apiError struct {
	Class        string `json:"class"`
	Message      string `json:"message"`
	Status       int    `json:"status"`
	Code         string `json:"code"`
	Param        string `json:"param"`
	Type         string `json:"type"`
	RetryAfter   string `json:"retryAfter"`
	RetryAfterMS string `json:"retryAfterMS"`
	RequestID    string `json:"requestID"`
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var j job
	if err := json.NewDecoder(os.Stdin).Decode(&j); err != nil {
		return err
	}
	web := httpClient(time.Duration(j.IdleMS) * time.Millisecond)
	results := make([]result, len(j.Calls))
	var running sync.WaitGroup
	for i, c := range j.Calls {
		running.Go(func() {
			client := openai.NewClient(option.WithAPIKey(c.APIKey), option.WithBaseURL(j.BaseURL),
				option.WithMaxRetries(c.MaxRetries), option.WithHTTPClient(web))
			begun := time.Now()
			if err := c.do(ctx, &client, &results[i]); err != nil {
				results[i].Error = describe(err)
			}
			results[i].ElapsedMS = time.Since(begun).Milliseconds()
		})
	}
	running.Wait()
	return json.NewEncoder(os.Stdout).Encode(results)
}

func (c call) do(ctx context.Context, client *openai.Client, r *result) error {
	switch c.Kind {
	case "models":
		return models(ctx, client, r)
	case "embeddings":
		return embeddings(ctx, client, c.Request, r)
	}
	var p responses.ResponseNewParams
	if err := json.Unmarshal(c.Request, &p); err != nil {
		return err
	}
	switch c.Kind {
	case "create":
		var raw *http.Response
		response, err := client.Responses.New(ctx, p, option.WithResponseInto(&raw))
		if err != nil {
			return err
		}
		r.take(response)
		r.RequestID = raw.Header.Get("X-Request-Id")
		return nil
	case "stream":
		stream := client.Responses.NewStreaming(ctx, p)
		defer stream.Close()
		for stream.Next() {
			r.see(stream.Current())
		}
		return stream.Err()
	case "socket":
		return socket(ctx, client, c.Request, r)
	default:
		return fmt.Errorf("unknown kind %q", c.Kind)
	}
}

// socket takes two turns on one WebSocket; the second one builds on the first.
func socket(ctx context.Context, client *openai.Client, request json.RawMessage, r *result) error {
	conn, err := client.Responses.Connect(ctx, responses.ResponseConnectionOptions{})
	if err != nil {
		return err
	}
	defer conn.Close()
	for turn := range 2 {
		frame := map[string]any{}
		if err := json.Unmarshal(request, &frame); err != nil {
			return err
		}
		frame["type"] = "response.create"
		if turn > 0 {
			frame["previous_response_id"], frame["input"] = r.ID, "And then?"
		}
		raw, err := json.Marshal(frame)
		if err != nil {
			return err
		}
		if err := conn.SendRaw(ctx, raw); err != nil {
			return err
		}
		response, err := conn.FinalResponse(ctx)
		if err != nil {
			return err
		}
		r.take(response)
		r.Events = append(r.Events, r.ID)
	}
	return nil
}

func (r *result) see(e responses.ResponseStreamEventUnion) {
	r.Events = append(r.Events, e.Type)
	switch e.Type {
	case "response.output_text.delta":
		r.Deltas += e.Delta
	case "response.completed", "response.failed":
		r.take(&e.Response)
	}
}

func (r *result) take(p *responses.Response) {
	r.ID, r.Status, r.Text = p.ID, string(p.Status), p.OutputText()
	for _, item := range p.Output {
		if item.Type == "function_call" {
			call := item.AsFunctionCall()
			r.Calls = append(r.Calls, toolCall{Name: call.Name, Arguments: call.Arguments, CallID: call.CallID})
		}
	}
	if p.Error.Code != "" {
		r.ResponseError = &responseError{Code: string(p.Error.Code), Message: p.Error.Message}
	}
}

func models(ctx context.Context, client *openai.Client, r *result) error {
	pages := client.Models.ListAutoPaging(ctx)
	for pages.Next() {
		r.Models = append(r.Models, pages.Current().ID)
	}
	return pages.Err()
}

func embeddings(ctx context.Context, client *openai.Client, request json.RawMessage, r *result) error {
	var p openai.EmbeddingNewParams
	if err := json.Unmarshal(request, &p); err != nil {
		return err
	}
	made, err := client.Embeddings.New(ctx, p)
	if err != nil {
		return err
	}
	for _, d := range made.Data {
		r.Dimensions = append(r.Dimensions, len(d.Embedding))
	}
	return nil
}

func describe(err error) *apiError {
	e := &apiError{Class: fmt.Sprintf("%T", err), Message: err.Error()}
	var frame *responses.ResponseProtocolError
	if errors.As(err, &frame) {
		e.Message = frame.Event.RawJSON()
	}
	var api *openai.Error
	if errors.As(err, &api) {
		e.Status, e.Code, e.Param, e.Type, e.Message = api.StatusCode, api.Code, api.Param, api.Type, api.Message
		e.Class = fmt.Sprintf("%T", api)
		h := api.Response.Header
		e.RetryAfter, e.RetryAfterMS, e.RequestID = h.Get("Retry-After"), h.Get("Retry-After-Ms"), h.Get("X-Request-Id")
	}
	return e
}

// httpClient gives up when no byte arrives for idle; the SDK itself has no such
// timer, but what its users put around it has. 0 = never.
func httpClient(idle time.Duration) *http.Client {
	dial := (&net.Dialer{}).DialContext
	return &http.Client{Transport: &http.Transport{
		ResponseHeaderTimeout: idle,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil || idle == 0 {
				return conn, err
			}
			return &impatient{conn, idle}, nil
		},
	}}
}

type impatient struct {
	net.Conn
	idle time.Duration
}

func (c *impatient) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}
