package affinity

import "testing"

func TestNeutral(t *testing.T) {
	const user = `{"role":"user","content":"hi"}`
	for body, want := range map[string]bool{
		`{"model":"m","input":[` + user + `],"tools":[{"type":"function","name":"f"},{"type":"web_search_preview"}]}`: true,
		`{"model":"m","input":"hi","store":false,"background":false,"prompt":null}`:                                   true,
		`{"model":"m","input":[` + user + `,{"type":"reasoning","id":"r","summary":[]}]}`:                             true,
		`{"model":"m","input":[{"type":"reasoning","encrypted_content":"x"},` + user + `]}`:                           false,
		`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_id":"f"}]}]}`:                     false,
		`{"model":"m","input":[{"type":"item_reference","id":"x"}]}`:                                                  false,
		`{"model":"m","input":[{"type":"compaction","encrypted_content":"x"}]}`:                                       false,
		`{"model":"m","input":"hi","tools":[{"type":"code_interpreter"}]}`:                                            false,
		`{"model":"m","input":"hi","tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}`:                          false,
		`{"model":"m","input":"hi","previous_response_id":"r"}`:                                                       false,
		`{"model":"m","input":"hi","conversation":"c"}`:                                                               false,
		`{"model":"m","input":"hi","background":true}`:                                                                false,
		`{"model":"m","input":"hi","something_new":1}`:                                                                false,
		`{"model":"m","input":{"a":1}}`:                                                                               false,
	} {
		if got := Neutral([]byte(body)); got != want {
			t.Errorf("%s: neutral = %v", body, got)
		}
	}
}
