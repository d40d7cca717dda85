package share

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/causeway-dev/causeway/proxy/internal/store"
)

// startRedis starts a real one on a socket of its own.
func startRedis(t *testing.T) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "socket")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir) //nolint:gosec,noctx // killed below
	if err := cmd.Start(); err != nil {
		t.Fatalf("a real Redis is needed, apt-get install redis-server: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		os.RemoveAll(dir)
	})
	for range 1_000 {
		if c, err := net.Dial("unix", socket); err == nil { //nolint:noctx // a socket of this machine
			c.Close()
			return socket
		}
		pass(5 * time.Millisecond)
	}
	t.Fatal("redis-server does not answer")
	return ""
}

func openRedis(t *testing.T, socket string) store.Backend {
	t.Helper()
	s, err := store.NewRedis(store.RedisOptions{Addresses: []string{socket}, Namespace: "test", Bridge: "b"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestB50_ReplicasHearOfACoolDownThroughRedis(t *testing.T) {
	socket := startRedis(t)
	var log logged
	one, two := newCooler(time.Now), newCooler(time.Now)
	for i, c := range []*cooler{one, two} {
		defer run(t, openRedis(t, socket), log.logger(), NewCoolDowns(c, fmt.Sprint("p", i)))()
	}
	one.cool(limited, time.Hour)
	begun := time.Now()
	for two.left(limited) == 0 {
		if time.Since(begun) > 2*Every+patience {
			t.Fatal("not heard of")
		}
		pass(5 * time.Millisecond)
	}
	if left := two.left(limited); left > time.Hour || left < time.Hour-5*time.Second {
		t.Errorf("%s left", left)
	}
	again := newCooler(time.Now)
	New(Options{Board: openRedis(t, socket), Sources: []Source{NewCoolDowns(again, "again")}, Clock: clock.RealClock{}, Log: log.logger()}).Once(t.Context())
	if left := again.left(limited); left > time.Hour || left < time.Hour-5*time.Second {
		t.Errorf("%s left after a restart", left)
	}
}
