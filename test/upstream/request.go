package upstream

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// request is one response.create, whichever way it came.
type request struct {
	received   time.Time
	transport  string // TransportHTTP or TransportWS
	path       string
	mode       Mode
	account    string
	conn       int64
	client     string // remote address
	headers    http.Header
	socket     *socket // nil over HTTP
	wire       int     // bytes as they arrived
	body       []byte  // decoded
	fields     map[string]any
	model      string
	lane       string
	anchor     string
	store      bool
	stream     bool
	generate   bool
	input      []item
	tools      []any
	session    string
	compaction bool
}

// parse reads the fields the simulator acts on; all else stays in the body.
func (r *request) parse() *apiError {
	v, err := decode(r.body)
	if err != nil {
		return badRequest("", "We could not parse the JSON body of your request.", "")
	}
	fields, ok := v.(map[string]any)
	if !ok {
		return badRequest("", "The body must be a JSON object.", "")
	}
	r.fields = fields
	r.model = text(fields["model"])
	r.anchor = text(fields["previous_response_id"])
	r.lane = text(fields["stream_id"])
	r.store = flag(fields["store"], true)
	r.generate = flag(fields["generate"], true)
	r.stream = r.transport == TransportWS || flag(fields["stream"], false)
	r.tools, _ = fields["tools"].([]any)
	if r.model == "" {
		return badRequest("missing_required_parameter", "Missing required parameter: 'model'.", "model")
	}
	if r.anchor != "" && !isEmpty(fields["conversation"]) {
		return badRequest("mutually_exclusive_parameters",
			"Mutually exclusive parameters: ['conversation', 'previous_response_id'].", "conversation")
	}
	input, refusal := items(fields["input"])
	if refusal != nil {
		return refusal
	}
	r.input = input
	r.describe()
	return nil
}

func (r *request) fillAccount(s string) string {
	return strings.ReplaceAll(s, "{{account}}", r.account)
}

// describe derives what rules and the ledger ask about.
func (r *request) describe() {
	meta, _ := r.fields["client_metadata"].(map[string]any)
	for _, s := range []string{
		text(meta["thread_id"]), r.headers.Get("Thread-Id"), text(r.fields["prompt_cache_key"]), r.headers.Get("Session-Id"),
	} {
		if s != "" {
			r.session = s
			break
		}
	}
	for _, it := range r.input {
		r.compaction = it.typ == "compaction_trigger"
	}
}

// items normalises the two forms of input, a text or a list.
func items(input any) ([]item, *apiError) {
	switch in := input.(type) {
	case nil:
		return nil, nil
	case string:
		return []item{newItem(map[string]any{"type": "message", "role": "user", "content": in})}, nil
	case []any:
		out := make([]item, 0, len(in))
		for i, v := range in {
			obj, ok := v.(map[string]any)
			if !ok {
				return nil, badRequest("invalid_type", fmt.Sprintf("Invalid type for 'input[%d]': expected an object.", i), "input")
			}
			out = append(out, newItem(obj))
		}
		return out, nil
	default:
		return nil, badRequest("invalid_type", "Invalid type for 'input': expected a string or an array.", "input")
	}
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func flag(v any, missing bool) bool {
	if b, ok := v.(bool); ok {
		return b
	}
	return missing
}

// itemKind groups item types by who made them.
type itemKind int

const (
	kindOther  itemKind = iota // system and developer messages, references, compaction
	kindUser                   // what a person wrote
	kindModel                  // what a model made
	kindOutput                 // what a tool gave back
	kindTools                  // tools offered as an input item
)

// item is one element of the logical input.
type item struct {
	kind    itemKind
	typ     string
	callID  string
	text    string
	tools   []any
	exact   string // digest of the canonical JSON
	essence string // digest of its meaning, see essence
}

func newItem(obj map[string]any) item {
	it := item{typ: text(obj["type"]), callID: text(obj["call_id"]), exact: Digest(encode(obj))}
	if it.typ == "" && obj["role"] != nil {
		it.typ = "message"
	}
	it.essence = Digest(encode(essence(normalMessage(it.typ, obj))))
	switch {
	case it.typ == "message" && obj["role"] == "user":
		it.kind, it.text = kindUser, contentText(obj["content"])
	case it.typ == "message" && obj["role"] == "assistant", it.typ == "reasoning":
		it.kind = kindModel
	case strings.HasSuffix(it.typ, "_call_output"):
		it.kind = kindOutput
	case strings.HasSuffix(it.typ, "_call"):
		it.kind = kindModel
	case it.typ == "additional_tools":
		it.kind = kindTools
		it.tools, _ = obj["tools"].([]any)
	}
	return it
}

// normalMessage gives the short forms of a message their long form.
func normalMessage(typ string, obj map[string]any) map[string]any {
	s, short := obj["content"].(string)
	if typ != "message" || (!short && obj["type"] != nil) {
		return obj
	}
	long := make(map[string]any, len(obj)+1)
	for k, v := range obj {
		long[k] = v
	}
	long["type"] = "message"
	if short {
		part := "input_text"
		if obj["role"] == "assistant" {
			part = "output_text"
		}
		long["content"] = []any{map[string]any{"type": part, "text": s}}
	}
	return long
}

func contentText(content any) string {
	if s, ok := content.(string); ok {
		return s
	}
	parts, _ := content.([]any)
	var b strings.Builder
	for _, p := range parts {
		if obj, ok := p.(map[string]any); ok {
			b.WriteString(text(obj["text"]))
		}
	}
	return b.String()
}
