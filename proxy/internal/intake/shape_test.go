package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

func TestCheckAccepts(t *testing.T) {
	tests := []struct {
		name, body string
		form       Form
		want       Shape
	}{
		{"least", `{"model":"m"}`, Form{}, Shape{Model: "m"}},
		{"least on a streaming path", `{"model":"m"}`, Form{StreamOnly: true}, Shape{Model: "m", Stream: true}},
		{"stream", `{"model":"m","stream":true}`, Form{}, Shape{Model: "m", Stream: true}},
		{"no stream", `{"model":"m","stream":false}`, Form{}, Shape{Model: "m"}},
		{"string", `{"model":"m","input":"hi"}`, Form{}, Shape{Model: "m"}},
		{"items", ` {"input":[{"type":"message"}],"model":"m"} `, Form{}, Shape{Model: "m"}},
		{"nulls", `{"model":"m","input":null,"stream":null,"background":null,"conversation":null,"previous_response_id":"r"}`,
			Form{StreamOnly: true}, Shape{Model: "m", Stream: true}},
		{"conversation", `{"model":"m","conversation":{"id":"c"},"previous_response_id":null}`, Form{}, Shape{Model: "m"}},
		{"escapes", `{"\u006dodel":"\u006d\u00e9"}`, Form{}, Shape{Model: "mé"}},
		{"unknown fields", `{"model":"m","x":{"background":true},"model.x":1,"in*":2}`, Form{}, Shape{Model: "m"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Check([]byte(tt.body), tt.form)
			if err != nil || got != tt.want {
				t.Errorf("%+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := []struct {
		name, body, code, param, text string
	}{
		{"empty", ``, failure.InvalidJSON, "", "empty"},
		{"no JSON", `{"model":"m",}`, failure.InvalidJSON, "", "byte 14 of 14"},
		{"cut", `{"model":"m"`, failure.InvalidJSON, "", "byte 12 of 12"},
		{"two values", `{"model":"m"}{}`, failure.InvalidJSON, "", "byte 14"},
		{"array", `[1]`, failure.InvalidRequest, "", "not an array"},
		{"string", `"model"`, failure.InvalidRequest, "", "not a string"},
		{"null", `null`, failure.InvalidRequest, "", "not null"},
		{"no model", `{"input":"hi"}`, failure.InvalidRequest, "model", "required"},
		{"null model", `{"model":null}`, failure.InvalidRequest, "model", "required"},
		{"empty model", `{"model":""}`, failure.InvalidRequest, "model", "empty"},
		{"number as model", `{"model":4}`, failure.InvalidRequest, "model", "not a number"},
		{"object as input", `{"model":"m","input":{}}`, failure.InvalidRequest, "input", "not an object"},
		{"boolean as input", `{"model":"m","input":true}`, failure.InvalidRequest, "input", "not a boolean"},
		{"number as anchor", `{"model":"m","previous_response_id":1}`, failure.InvalidRequest, "previous_response_id", "not a number"},
		{"both continuations", `{"model":"m","previous_response_id":"r","conversation":"c"}`, failure.InvalidRequest,
			"previous_response_id", "previous_response_id and conversation"},
		{"text as stream", `{"model":"m","stream":"true"}`, failure.InvalidRequest, "stream", "not a string"},
		{"background", `{"model":"m","background":true}`, failure.InvalidRequest, "background", "not supported"},
		{"text as background", `{"model":"m","background":"x"}`, failure.InvalidRequest, "background", "not a string"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Check([]byte(tt.body), Form{})
			f := failure.From(err)
			if err == nil || f.Code != tt.code || f.Param != tt.param || !strings.Contains(f.Message, tt.text) || f.Status != 400 {
				t.Errorf("%+v, want %s, param %q, with %q", f, tt.code, tt.param, tt.text)
			}
		})
	}
	if _, err := Check([]byte(`{"model":"m","stream":false}`), Form{StreamOnly: true}); failure.From(err).Param != "stream" {
		t.Error("stream: false passes on a streaming path:", err)
	}
}

// Nesting must cost neither the stack nor a body that only looks nested.
func TestCheckNesting(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(`{"model":"m","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
	}
	if _, err := Check(nested(maxDepth-1), Form{}); err != nil {
		t.Error(err)
	}
	for _, body := range [][]byte{nested(maxDepth), bytes.Repeat([]byte("["), 64<<20), bytes.Repeat([]byte(`{"a":`), 1<<20)} {
		if _, err := Check(body, Form{}); failure.From(err).Code != failure.InvalidJSON {
			t.Error(err)
		}
	}
	flat := []byte(`{"model":"m","x":"` + strings.Repeat(`[\"`, maxDepth+1) + `","y":[` + strings.Repeat("[],", maxDepth) + `1]}`)
	if _, err := Check(flat, Form{}); err != nil {
		t.Error(err)
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"model":"m"}`, `[01]`, `"\ud800"`, `{"a":"` + "\x01" + `"}`, `1e`, "\xff", "\ufeff{}", `-0`, `{}{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if json.Valid(body) != gjson.ValidBytes(body) {
			t.Errorf("the validators disagree on %q", body)
		}
		before := bytes.Clone(body)
		if _, err := Check(body, Form{}); err != nil {
			var failed *failure.Failure
			if !errors.As(err, &failed) {
				t.Errorf("%q: %v", body, err)
			}
		}
		if !bytes.Equal(before, body) {
			t.Error("the body was changed")
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	item := `{"type":"message","role":"user","content":[{"type":"input_text","text":"` + strings.Repeat(`hello world\n `, 40) + `"}]},`
	body := []byte(`{"model":"m","input":[` + strings.Repeat(item, 2000) + `1]}`)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := Check(body, Form{}); err != nil {
			b.Fatal(err)
		}
	}
}
