package fleet

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Redis is a real Redis without persistence.
type Redis struct {
	// Address is host:port; it stays over restarts.
	Address string

	tb    testing.TB
	cmd   *exec.Cmd
	ended chan struct{}
}

// StartRedis runs redis-server on a free port until the test ends.
func StartRedis(tb testing.TB) *Redis {
	tb.Helper()
	s := &Redis{tb: tb, Address: freeAddress(tb)}
	s.start()
	return s
}

func (s *Redis) start() {
	s.tb.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		s.tb.Fatal("redis-server is missing, and replicas are tested with a real one: apt-get install redis-server")
	}
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.cmd = exec.Command(binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.tb.TempDir())
	dieWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	s.ended = make(chan struct{})
	cmd, ended := s.cmd, s.ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	s.tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-ended
	})
	awaitPort(s.tb, s.Address, s.ended)
}

// Forget restarts the server; it comes back without its data.
func (s *Redis) Forget() {
	s.tb.Helper()
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.start()
}

// Signal stops the server (SIGSTOP) or lets it go on (SIGCONT).
func (s *Redis) Signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

// awaitPort returns when something listens.
func awaitPort(tb testing.TB, address string, ended <-chan struct{}) {
	tb.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case <-ended:
			tb.Fatal("it ended before it listened on " + address)
		case <-deadline:
			tb.Fatal("nothing listens on " + address)
		case <-tick.C:
		}
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return
		}
	}
}

// Ports of replicas and servers, which keep theirs over restarts: below those that
// systems give to who asks for any. Processes that run at the same time begin at
// different ones.
const (
	firstPort   = 10_000
	ports       = 20_000
	portsOfEach = 100
)

var nextPort atomic.Int64

func freeAddress(tb testing.TB) string {
	tb.Helper()
	for range ports {
		port := firstPort + (os.Getpid()*portsOfEach+int(nextPort.Add(1)))%ports
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	tb.Fatal("no free port")
	return ""
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
