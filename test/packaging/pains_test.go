package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var named = regexp.MustCompile("`([a-z0-9/]+): (Test[A-Za-z0-9_]+)`")

// TestThePainsAreTested: the table of config/README.md names tests that exist.
func TestThePainsAreTested(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "config", "README.md"))
	must(t, err)
	found := named.FindAllStringSubmatch(string(raw), -1)
	if len(found) < 22 {
		t.Fatalf("found only %d tests in the table", len(found))
	}
	for _, m := range found {
		files, err := filepath.Glob(filepath.Join(root, m[1], "*_test.go"))
		must(t, err)
		exists := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			must(t, err)
			exists = exists || strings.Contains(string(text), "\nfunc "+m[2]+"(")
		}
		if !exists {
			t.Errorf("%s has no test %s", m[1], m[2])
		}
	}
}
