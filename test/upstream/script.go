package upstream

import (
	"encoding/json"
	"fmt"
	"time"

	"sigs.k8s.io/yaml"
)

// Script says what the server answers. It is plain data: a literal in a test,
// or a YAML or JSON file for the binary. README.md describes every field.
type Script struct {
	Mode     Mode      `json:"mode,omitempty"`
	Accounts []Account `json:"accounts,omitempty"`
	// Models offered by the models endpoints; empty means a usual few.
	Models []string `json:"models,omitempty"`
	// Rules are tried in order; the first that matches answers.
	Rules []Rule `json:"rules,omitempty"`
	// Respond is the answer where no rule gives one.
	Respond *Respond `json:"respond,omitempty"`
	// Conversation is the answer where no rule and no Respond gives one.
	Conversation *Conversation `json:"conversation,omitempty"`
	Connection   Connection    `json:"connection,omitzero"`
	OAuth        OAuth         `json:"oauth,omitzero"`
}

// Account is a login of the simulated service.
type Account struct {
	Name  string `json:"name"`
	Token string `json:"token,omitempty"`
	// RefreshToken is the first of a rotating family at the OAuth issuer.
	RefreshToken string `json:"refreshToken,omitempty"`
	Plan         string `json:"plan,omitempty"`
	Quota        *Quota `json:"quota,omitempty"`
}

// Rule is one line of a script.
type Rule struct {
	// Name is shown in the ledger; empty means "rule N".
	Name  string `json:"name,omitempty"`
	Match Match  `json:"match,omitzero"`
	// Repeat is how often the rule may answer; 0 means without end.
	Repeat int `json:"repeat,omitempty"`
	// Respond replaces the answer; without it the default answer is given,
	// with the fault played on it.
	Respond *Respond `json:"respond,omitempty"`
	Fault   *Fault   `json:"fault,omitempty"`
}

// Match selects requests; an empty field matches all.
type Match struct {
	Account string `json:"account,omitempty"`
	// Route: responses, models, usage, oauth, upgrade, other, or a path.
	// Empty means responses, or upgrade for a fault at the upgrade.
	Route     string `json:"route,omitempty"`
	Transport string `json:"transport,omitempty"` // http or ws
	// Turn is the number of the answer within its conversation, from 1; a
	// repeated request has the same turn.
	Turn  int    `json:"turn,omitempty"`
	Model string `json:"model,omitempty"`
	// InputContains is looked for in the bytes of the body.
	InputContains string `json:"inputContains,omitempty"`
	Anchored      *bool  `json:"anchored,omitempty"`
	// Anchor is the previous_response_id.
	Anchor  string `json:"anchor,omitempty"`
	Prewarm *bool  `json:"prewarm,omitempty"`
	Session string `json:"session,omitempty"`
	// Nth counts, from 1, the requests that match all other fields.
	Nth int `json:"nth,omitempty"`
}

// Respond is an answer of the model.
type Respond struct {
	ID string `json:"id,omitempty"`
	// Text is cut into deltas of one word; Deltas says exactly which.
	Text   string   `json:"text,omitempty"`
	Deltas []string `json:"deltas,omitempty"`
	// Fill makes a long text: Deltas pieces of Bytes bytes.
	Fill      Fill       `json:"fill,omitzero"`
	Reasoning string     `json:"reasoning,omitempty"`
	ToolCalls []ToolCall `json:"toolCalls,omitempty"`
	// Items are further output items, as they are.
	Items []json.RawMessage `json:"items,omitempty"`
	Usage *Usage            `json:"usage,omitempty"`
	// Events replaces everything: these payloads are sent as they are. Each
	// {{id}} becomes the response id. EventsFile holds one payload a line.
	Events     []json.RawMessage `json:"events,omitempty"`
	EventsFile string            `json:"eventsFile,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	// TurnState is the token x-codex-turn-state: a header over HTTP, an event
	// response.metadata on a socket. {{account}} becomes the account's name.
	TurnState string `json:"turnState,omitempty"`
	// Delay comes before the first event, EventDelay before every other.
	Delay      Duration `json:"delay,omitempty"`
	EventDelay Duration `json:"eventDelay,omitempty"`
	// ChunkBytes cuts what goes to the wire into pieces: flushed writes over
	// SSE, fragments of a message over a WebSocket.
	ChunkBytes int `json:"chunkBytes,omitempty"`
	// Keepalives is the number of keepalive events between created and the
	// first output, one every KeepaliveEvery: the silence of a long thought.
	Keepalives     int      `json:"keepalives,omitempty"`
	KeepaliveEvery Duration `json:"keepaliveEvery,omitempty"`
}

// Fill describes generated text.
type Fill struct {
	Deltas int `json:"deltas,omitempty"`
	Bytes  int `json:"bytes,omitempty"`
}

// ToolCall is one call of an answer.
type ToolCall struct {
	Name string `json:"name"`
	// Arguments is the JSON of a function call, or the input of a custom one.
	Arguments string `json:"arguments,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Custom    bool   `json:"custom,omitempty"`
	CallID    string `json:"callID,omitempty"`
}

// Usage is the token count of an answer.
type Usage struct {
	Input     int `json:"input,omitempty"`
	Cached    int `json:"cached,omitempty"`
	Output    int `json:"output,omitempty"`
	Reasoning int `json:"reasoning,omitempty"`
}

// Conversation answers ToolTurns times with tool calls after each message of
// the user, then with text. {{turn}} in texts becomes the number of the answer.
type Conversation struct {
	ToolTurns int `json:"toolTurns,omitempty"`
	// Tool and Arguments; empty means a shell tool of those offered.
	Tool      string `json:"tool,omitempty"`
	Arguments string `json:"arguments,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Custom    bool   `json:"custom,omitempty"`
	// Command is run by the shell tool offered, whatever its name.
	Command   string `json:"command,omitempty"`
	Parallel  int    `json:"parallel,omitempty"` // calls per answer; 0 means 1
	Reasoning bool   `json:"reasoning,omitempty"`
	FinalText string `json:"finalText,omitempty"`
}

// Connection is how sockets behave.
type Connection struct {
	// MaxAge ends a socket with websocket_connection_limit_reached; 0 means
	// the 60 minutes of the real service.
	MaxAge Duration `json:"maxAge,omitempty"`
	// Deflate accepts permessage-deflate.
	Deflate bool `json:"deflate,omitempty"`
	// ResetAfter ends a socket with RST when so many bytes have come in on its
	// connection; 0 means never.
	ResetAfter int64 `json:"resetAfter,omitempty"`
	// OmitResponseID leaves out the response_id that ChatGPT mode puts on
	// every event of a socket.
	OmitResponseID bool `json:"omitResponseID,omitempty"`
	// IgnoreInterrupt lets a response run on after response.interrupt.
	IgnoreInterrupt bool `json:"ignoreInterrupt,omitempty"`
}

// OAuth configures the issuer.
type OAuth struct {
	AccessTTL Duration `json:"accessTTL,omitempty"` // 0 means 1 h
	// OpenAIErrors answers a dead refresh token with 401 and the code
	// refresh_token_reused instead of the standard's 400 invalid_grant.
	OpenAIErrors bool `json:"openAIErrors,omitempty"`
	// DevicePolls is how often the device flow answers "pending".
	DevicePolls int `json:"devicePolls,omitempty"`
	// DeviceAccount is who the device flow logs in; empty means the first.
	DeviceAccount string `json:"deviceAccount,omitempty"`
}

// Duration is written like "250ms" in a script.
type Duration time.Duration

// MarshalJSON writes the text form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads the text form.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a duration is a text like \"250ms\": %w", err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("a duration is a text like \"250ms\": %w", err)
	}
	*d = Duration(v)
	return nil
}

// ParseScript reads YAML or JSON. Unknown fields are errors: a fault that is
// misspelt must not pass as "no fault".
func ParseScript(b []byte) (Script, error) {
	var s Script
	if err := yaml.UnmarshalStrict(b, &s); err != nil {
		return Script{}, fmt.Errorf("reading script: %w", err)
	}
	if err := s.validate(); err != nil {
		return Script{}, fmt.Errorf("reading script: %w", err)
	}
	return s, nil
}

func (s Script) validate() error {
	switch s.Mode {
	case ModeByPath, ModePlatform, ModeChatGPT:
	default:
		return fmt.Errorf("mode %q: want platform or chatgpt", s.Mode)
	}
	for i, r := range s.Rules {
		if r.Fault == nil {
			continue
		}
		if err := r.Fault.validate(); err != nil {
			return fmt.Errorf("rules[%d].fault.%w", i, err)
		}
	}
	for i, a := range s.Accounts {
		if a.Name == "" {
			return fmt.Errorf("accounts[%d].name: missing", i)
		}
	}
	return nil
}
