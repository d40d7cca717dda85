package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// sdk is one of the OpenAI SDKs.
type sdk struct {
	name string
	// node is the npm package; empty means the SDK for Go.
	node string
}

var sdks = []sdk{{"Node 6", "openai6"}, {"Node 7", "openai7"}, {"Go", ""}}

// Kinds of a call.
const (
	create     = "create" // not streaming
	stream     = "stream" // the raw event stream
	helper     = "helper" // responses.stream() of the SDK for Node
	models     = "models"
	embeddings = "embeddings"
	socket     = "socket" // two turns on one WebSocket
)

// kinds of calls that make a response.
func (s sdk) kinds() []string {
	if s.node == "" {
		return []string{create, stream}
	}
	return []string{create, stream, helper}
}

// call is what an SDK is asked to do; the programs sdk.mjs and gosdk read it.
type call struct {
	Kind       string         `json:"kind"`
	APIKey     string         `json:"apiKey"`
	Request    map[string]any `json:"request,omitempty"`
	MaxRetries int            `json:"maxRetries"`
}

// job is what one process does.
type job struct {
	BaseURL string `json:"baseURL"`
	Calls   []call `json:"calls"`
	// IdleMS ends a call on which no byte arrives for so long; 0 = as the SDK
	// does by default.
	IdleMS int `json:"idleMS,omitempty"`
	// Installed and Package are for Node.
	Installed string `json:"installed,omitempty"`
	Package   string `json:"package,omitempty"`
}

// outcome is what the SDK made of it.
type outcome struct {
	ID         string     `json:"id"`
	Status     string     `json:"status"`
	Text       string     `json:"text"`
	Deltas     string     `json:"deltas"`
	Calls      []toolCall `json:"calls"`
	Events     []string   `json:"events"`
	Models     []string   `json:"models"`
	Dimensions []int      `json:"dimensions"`
	RequestID  string     `json:"requestID"`
	// ResponseError is the error of a response that failed.
	ResponseError *struct{ Code, Message string } `json:"responseError"`
	// Error is what the SDK threw or returned.
	Error     *sdkError `json:"error"`
	ElapsedMS int       `json:"elapsedMS"`
}

type toolCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	CallID    string `json:"callID"`
}

type sdkError struct {
	Class        string `json:"class"`
	Message      string `json:"message"`
	Cause        string `json:"cause"`
	Status       int    `json:"status"`
	Code         string `json:"code"`
	Param        string `json:"param"`
	Type         string `json:"type"`
	RetryAfter   string `json:"retryAfter"`
	RetryAfterMS string `json:"retryAfterMS"`
	RequestID    string `json:"requestID"`
}

func (o outcome) String() string {
	b, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// last is the type of the last event.
func (o outcome) last() string {
	if len(o.Events) == 0 {
		return ""
	}
	return o.Events[len(o.Events)-1]
}

// count is the number of events of a type.
func (o outcome) count(kind string) int {
	return len(slices.DeleteFunc(slices.Clone(o.Events), func(e string) bool { return e != kind }))
}

// call makes one call.
func (s sdk) call(t *testing.T, base string, c call) outcome {
	t.Helper()
	return s.run(t, base, job{Calls: []call{c}})[0]
}

// every makes the same call in each of the kinds.
func (s sdk) every(t *testing.T, base string, kinds []string, request func() map[string]any) map[string]outcome {
	t.Helper()
	var j job
	for _, kind := range kinds {
		j.Calls = append(j.Calls, call{Kind: kind, Request: request()})
	}
	outcomes := map[string]outcome{}
	for i, o := range s.run(t, base, j) {
		outcomes[kinds[i]] = o
	}
	return outcomes
}

// run makes calls at once, in a process of its own.
func (s sdk) run(t *testing.T, base string, j job) []outcome {
	t.Helper()
	j.BaseURL = base + "/v1"
	for i := range j.Calls {
		c := &j.Calls[i]
		if c.APIKey == "" {
			c.APIKey = clientKey
		}
		if c.Request != nil && c.Request["model"] == nil {
			c.Request["model"] = "gpt-5.5"
		}
	}
	ctx := within(t, 3*time.Minute)
	var cmd *exec.Cmd
	if s.node == "" {
		cmd = exec.CommandContext(ctx, goClient(t))
	} else {
		j.Installed, j.Package = nodeClients(t), s.node
		cmd = exec.CommandContext(ctx, "node", "sdk.mjs")
	}
	in, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "NO_PROXY=127.0.0.1"}
	endWithTest(cmd)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", s.name, err, &out, &errOut)
	}
	var outcomes []outcome
	if err := json.Unmarshal(out.Bytes(), &outcomes); err != nil || len(outcomes) != len(j.Calls) {
		t.Fatalf("%s printed %q: %v", s.name, &out, err)
	}
	return outcomes
}

var asked atomic.Int64

// ask is a request that is like no other: the ledger knows what was sent twice
// by its contents.
func ask(text string) map[string]any {
	return map[string]any{"input": fmt.Sprintf("%s (%d)", text, asked.Add(1))}
}
