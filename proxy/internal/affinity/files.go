package affinity

import (
	"strings"

	"github.com/tidwall/gjson"
)

// maxFiles bounds the files that are looked at in one body; the platform takes
// fewer.
const maxFiles = 64

// files are the ids of uploaded files that a body refers to, wherever they stand.
// Only the account that a file was uploaded to can read it.
func files(body []byte) []string {
	text := view(body)
	if !strings.Contains(text, `"file_id`) {
		return nil
	}
	var found []string
	collectFiles(gjson.Parse(text), &found)
	return found
}

func collectFiles(v gjson.Result, found *[]string) {
	v.ForEach(func(name, value gjson.Result) bool {
		switch {
		case len(*found) >= maxFiles:
			return false
		case name.Str == "file_id" && value.Type == gjson.String && value.Str != "":
			*found = append(*found, value.Str)
		case name.Str == "file_ids" && value.IsArray():
			value.ForEach(func(_, id gjson.Result) bool {
				if id.Type == gjson.String && id.Str != "" && len(*found) < maxFiles {
					*found = append(*found, id.Str)
				}
				return true
			})
		case value.Type == gjson.JSON && strings.Contains(value.Raw, `"file_id`):
			collectFiles(value, found)
		}
		return true
	})
}
