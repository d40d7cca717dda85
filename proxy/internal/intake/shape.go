package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// maxDepth is how deep arrays and objects may be nested. The validator recurses;
// encoding/json draws the line at the same depth.
const maxDepth = 10_000

// Form is what a route asks of a body.
type Form struct {
	// StreamOnly: the route knows no answer but a stream, and need not be told.
	StreamOnly bool
}

// Shape is what the checks found out.
type Shape struct {
	Model string
	// Stream says whether the client asked for SSE.
	Stream bool
}

// Check says whether body is a turn this proxy can serve. Unknown fields are
// none of its business. A null stands for an absent field, as it does upstream.
// Errors are *failure.Failure.
func Check(body []byte, form Form) (Shape, error) {
	if err := checkSyntax(body); err != nil {
		return Shape{}, err
	}
	return checkShape(body, form)
}

// checkShape is Check for valid JSON.
func checkShape(body []byte, form Form) (Shape, error) {
	// gjson's functions for bytes copy what they return, here all of input. No
	// one changes body.
	root := gjson.Parse(unsafe.String(unsafe.SliceData(body), len(body)))
	if !root.IsObject() {
		return Shape{}, failure.New(failure.InvalidRequest, fmt.Sprintf("The request body must be a JSON object, not %s.", kindOf(root)))
	}
	f := fieldsOf(root)
	if err := f.check(form); err != nil {
		return Shape{}, err
	}
	shape := Shape{Model: string([]byte(f.model.Str)), Stream: form.StreamOnly}
	if present(f.stream) {
		shape.Stream = f.stream.Bool()
	}
	return shape, nil
}

func checkSyntax(body []byte) error {
	if len(body) == 0 {
		return failure.New(failure.InvalidJSON, "The request body is empty; it must be a JSON object.")
	}
	if tooDeep(body) {
		return failure.New(failure.InvalidJSON, fmt.Sprintf("The request body is nested deeper than %d levels.", maxDepth))
	}
	if gjson.ValidBytes(body) {
		return nil
	}
	const message = "The request body is not valid JSON"
	var raw json.RawMessage
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(body, &raw), &syntax) {
		return failure.New(failure.InvalidJSON, fmt.Sprintf("%s: error at byte %d of %d.", message, syntax.Offset, len(body)))
	}
	return failure.New(failure.InvalidJSON, message+".")
}

// tooDeep also answers for text that is no JSON; it never says that valid JSON
// is deeper than it is.
func tooDeep(body []byte) bool {
	if bytes.Count(body, []byte{'['})+bytes.Count(body, []byte{'{'}) <= maxDepth {
		return false
	}
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		c := body[i]
		switch {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// fields are the top-level fields with rules; of duplicates the first counts.
type fields struct {
	model, input, previous, conversation, stream, background gjson.Result
}

func fieldsOf(root gjson.Result) fields {
	var f fields
	places := map[string]*gjson.Result{
		"model": &f.model, "input": &f.input, "previous_response_id": &f.previous,
		"conversation": &f.conversation, "stream": &f.stream, "background": &f.background,
	}
	root.ForEach(func(key, value gjson.Result) bool {
		if place, ok := places[key.Str]; ok && !place.Exists() {
			*place = value
		}
		return true
	})
	return f
}

func (f fields) check(form Form) error {
	if err := f.checkModel(); err != nil {
		return err
	}
	if err := f.checkInput(); err != nil {
		return err
	}
	return f.checkFlags(form)
}

func (f fields) checkModel() error {
	switch {
	case !present(f.model):
		return invalid("model", "model is required: name the model that answers.")
	case f.model.Type != gjson.String:
		return invalid("model", "model must be a string, not "+kindOf(f.model)+".")
	case f.model.Str == "":
		return invalid("model", "model is empty: name the model that answers.")
	}
	return nil
}

func (f fields) checkInput() error {
	switch {
	case present(f.input) && f.input.Type != gjson.String && !f.input.IsArray():
		return invalid("input", "input must be a string or an array, not "+kindOf(f.input)+".")
	case present(f.previous) && f.previous.Type != gjson.String:
		return invalid("previous_response_id", "previous_response_id must be a string, not "+kindOf(f.previous)+".")
	case present(f.previous) && present(f.conversation):
		return invalid("previous_response_id",
			"previous_response_id and conversation cannot be used together: leave one of them out.")
	}
	return nil
}

func (f fields) checkFlags(form Form) error {
	switch {
	case present(f.background) && !f.background.IsBool():
		return invalid("background", "background must be true or false, not "+kindOf(f.background)+".")
	case f.background.Type == gjson.True:
		return invalid("background", "background: true is not supported by this proxy: leave it out and stream instead.")
	case present(f.stream) && !f.stream.IsBool():
		return invalid("stream", "stream must be true or false, not "+kindOf(f.stream)+".")
	case form.StreamOnly && f.stream.Type == gjson.False:
		return invalid("stream", "stream: false is not supported on this path: use /v1/responses.")
	}
	return nil
}

func present(v gjson.Result) bool { return v.Exists() && v.Type != gjson.Null }

func invalid(param, message string) *failure.Failure {
	return failure.New(failure.InvalidRequest, message, failure.Param(param))
}

// kindOf names a value's JSON type; never the value, which may be anything.
func kindOf(v gjson.Result) string {
	switch {
	case v.IsObject():
		return "an object"
	case v.IsArray():
		return "an array"
	case v.IsBool():
		return "a boolean"
	case v.Type == gjson.String:
		return "a string"
	case v.Type == gjson.Number:
		return "a number"
	default:
		return "null"
	}
}
