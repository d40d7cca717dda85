package clients

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// built is where programs of this run go.
var built string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "causeway-clients-")
	if err != nil {
		panic(err)
	}
	built = dir
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}
