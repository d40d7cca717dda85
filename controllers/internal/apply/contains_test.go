package apply

import (
	"encoding/json"
	"testing"
)

func TestContains(t *testing.T) {
	for name, tc := range map[string]struct {
		live, intent string
		want         bool
	}{
		"equal":                         {`{"a":{"b":1}}`, `{"a":{"b":1}}`, true},
		"others' fields are theirs":     {`{"a":1,"z":2}`, `{"a":1}`, true},
		"missing field":                 {`{"z":2}`, `{"a":1}`, false},
		"changed field":                 {`{"a":2}`, `{"a":1}`, false},
		"list of equal length":          {`{"l":[{"n":"x","d":1}]}`, `{"l":[{"n":"x"}]}`, true},
		"list with a foreign entry":     {`{"l":[{"n":"x"},{"n":"y"}]}`, `{"l":[{"n":"x"}]}`, false},
		"list in another order":         {`{"l":["b","a"]}`, `{"l":["a","b"]}`, false},
		"empty object against nothing":  {`{}`, `{"a":{}}`, true},
		"empty list against nothing":    {`{}`, `{"a":[]}`, true},
		"object against a scalar":       {`{"a":1}`, `{"a":{"b":1}}`, false},
		"numbers are compared by value": {`{"a":1.0}`, `{"a":1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			var live, intent any
			if err := json.Unmarshal([]byte(tc.live), &live); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tc.intent), &intent); err != nil {
				t.Fatal(err)
			}
			if got := contains(live, intent); got != tc.want {
				t.Errorf("contains(%s, %s) = %v, want %v", tc.live, tc.intent, got, tc.want)
			}
		})
	}
}
