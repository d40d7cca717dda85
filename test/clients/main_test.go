package clients

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/causeway-dev/causeway/test/fleet"
)

// built is where programs of this run go.
var built string

func TestMain(m *testing.M) {
	fleet.ServeIfReplica()
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
