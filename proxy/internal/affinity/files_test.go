package affinity

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestFilesOfABody(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want []string
	}{
		"none":             {`{"input":"x"}`, nil},
		"a file":           {`{"input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`, []string{"file-1"}},
		"an image":         {`{"input":[{"role":"user","content":[{"type":"input_image","file_id":"file-2"},{"type":"input_text","text":"x"}]}]}`, []string{"file-2"}},
		"a tool's output":  {`{"input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_id":"file-3"}]}]}`, []string{"file-3"}},
		"a container":      {`{"tools":[{"type":"code_interpreter","container":{"type":"auto","file_ids":["file-4","file-5"]}}]}`, []string{"file-4", "file-5"}},
		"in text":          {`{"input":"see \"file_id\": \"file-6\""}`, nil},
		"null":             {`{"input":[{"content":[{"file_id":null}]}]}`, nil},
		"no text":          {`{"input":[{"content":[{"file_id":7}]}]}`, nil},
		"named by a child": {`{"input":[{"content":[{"file_id":{"file_id":"file-7"}}]}]}`, []string{"file-7"}},
	} {
		if got := Read([]byte(tc.body)).Files; !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	var parts []string
	for i := range 3 * maxFiles {
		parts = append(parts, fmt.Sprintf(`{"file_id":"f%d","file_ids":["g%d"]}`, i, i))
	}
	if got := Read([]byte(`{"input":[` + strings.Join(parts, ",") + `]}`)).Files; len(got) != maxFiles {
		t.Errorf("%d files", len(got))
	}
}
