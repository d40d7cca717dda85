package clients

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
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
	BaseURL    string         `json:"baseURL"`
	APIKey     string         `json:"apiKey"`
	Request    map[string]any `json:"request,omitempty"`
	MaxRetries int            `json:"maxRetries"`
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

// call runs the SDK, as a process of its own.
func (s sdk) call(t *testing.T, base string, c call) outcome {
	t.Helper()
	c.BaseURL = base + "/v1"
	if c.APIKey == "" {
		c.APIKey = clientKey
	}
	if c.Request != nil && c.Request["model"] == nil {
		c.Request["model"] = "gpt-5.5"
	}
	ctx := within(t, 3*time.Minute)
	var cmd *exec.Cmd
	if s.node == "" {
		cmd = exec.CommandContext(ctx, goClient(t))
	} else {
		c.Installed, c.Package = nodeClients(t), s.node
		cmd = exec.CommandContext(ctx, "node", "sdk.mjs")
	}
	in, err := json.Marshal(c)
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
	var o outcome
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		t.Fatalf("%s printed %q: %v", s.name, &out, err)
	}
	return o
}
