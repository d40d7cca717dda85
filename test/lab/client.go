package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidwall/gjson"
)

// caller sends turns to one proxy under one client's key. Each turn is a
// conversation of its own, so that no session and no account is bound to another.
type caller struct {
	to     *replica
	client string
	http   *http.Client
	sent   *atomic.Int64
}

func (b *bed) caller(to *replica, client string) *caller {
	return &caller{to: to, client: client, sent: new(atomic.Int64),
		http: &http.Client{Transport: &http.Transport{MaxIdleConns: 2048, MaxIdleConnsPerHost: 2048}}}
}

// answer is what came of one turn.
type answer struct {
	mark   string // in its body
	due    time.Time
	ended  time.Time
	status int
	code   string // of the error
	after  time.Duration
	err    error // it broke off, or its client left
}

func (a answer) ok() bool            { return a.err == nil && a.status == http.StatusOK && a.code == "" }
func (a answer) took() time.Duration { return a.ended.Sub(a.due) }

func (a answer) String() string {
	return fmt.Sprintf("%s: status %d, code %q, %v, after %s", a.mark, a.status, a.code, a.err, a.took().Round(time.Millisecond))
}

// ask sends a turn that was due at a time and reads its answer to the end.
func (c *caller) ask(ctx context.Context, due time.Time, model, text string) answer {
	a := answer{mark: fmt.Sprintf("%s.%s.%d.", c.to.name, c.client, c.sent.Add(1)), due: due}
	a.status, a.code, a.after, a.err = c.send(ctx, `{"model":"`+model+`","stream":true,"store":false,"input":[{"type":"message","role":"user","content":`+
		`[{"type":"input_text","text":"`+a.mark+` `+text+`"}]}]}`)
	a.ended = time.Now()
	return a
}

func (c *caller) send(ctx context.Context, body string) (status int, code string, after time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.to.address+"/v1/responses", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, "", 0, err
	}
	req.Header.Set("Authorization", "Bearer "+clientKey(c.client))
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode == http.StatusOK {
		code = codeOfStream(raw)
	} else if code = gjson.GetBytes(raw, "error.code").String(); code == "" {
		code = resp.Status
	}
	return resp.StatusCode, code, time.Duration(seconds) * time.Second, err
}

// codeOfStream is how an event stream failed; empty = it has its good end.
func codeOfStream(raw []byte) string {
	if bytes.Contains(raw, []byte("event: response.completed\n")) {
		return ""
	}
	for line := range bytes.Lines(raw) {
		data, found := bytes.CutPrefix(line, []byte("data: "))
		if !found {
			continue
		}
		for _, path := range [...]string{"response.error.code", "error.code", "code"} {
			if code := gjson.GetBytes(data, path); code.Type == gjson.String {
				return code.Str
			}
		}
	}
	return "unfinished"
}

// paced sends turns at a steady rate for some time, whatever becomes of those
// before, and returns what came of all. text is asked for each.
func (c *caller) paced(ctx context.Context, rate float64, lasting time.Duration, model string, text func() string) []answer {
	answers := make(chan answer)
	begun, n := time.Now(), 0
	for every := time.Duration(float64(time.Second) / rate); time.Duration(n)*every < lasting; n++ {
		due := begun.Add(time.Duration(n) * every)
		if pause(ctx, time.Until(due)) != nil {
			break
		}
		words := text()
		go func() { answers <- c.ask(ctx, due, model, words) }()
	}
	all := make([]answer, n)
	for i := range all {
		all[i] = <-answers
	}
	return all
}
