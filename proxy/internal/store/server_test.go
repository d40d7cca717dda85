package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a real Redis without persistence, for one test.
type server struct {
	t    testing.TB
	args []string
	// addr is host:port, or the path of a socket.
	addr string
	cmd  *exec.Cmd
	log  *strings.Builder
}

// startServer starts redis-server on a socket of its own; args are more settings.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &server{t: t, addr: filepath.Join(dir, "socket")}
	s.args = append([]string{"--port", "0", "--unixsocket", s.addr, "--save", "", "--appendonly", "no", "--dir", dir}, args...)
	s.start()
	t.Cleanup(s.kill)
	return s
}

// startNode starts a cluster node on a free loopback port.
func startNode(t testing.TB) *server {
	t.Helper()
	for range 10 {
		const busOffset = 10_000
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if port+busOffset > 65_535 {
			port -= 2 * busOffset
		}
		s := &server{t: t, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
		s.args = []string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir(), "--cluster-enabled", "yes"}
		if s.tryStart() {
			t.Cleanup(s.kill)
			return s
		}
	}
	t.Fatal("no free port for redis-server")
	return nil
}

func (s *server) start() {
	s.t.Helper()
	if !s.tryStart() {
		s.t.Fatalf("redis-server did not start:\n%s", s.log)
	}
}

func (s *server) tryStart() bool {
	s.t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatal("redis-server is missing, and the store is tested against a real one: apt-get install redis-server")
	}
	s.cmd, s.log = exec.Command(binary, s.args...), &strings.Builder{}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	network := "tcp"
	if strings.HasPrefix(s.addr, "/") {
		network = "unix"
	}
	exited := make(chan struct{})
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait()
		close(exited)
	}(s.cmd)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		select {
		case <-exited:
			return false
		case <-tick.C:
		}
		if c, err := net.Dial(network, s.addr); err == nil {
			_, _ = io.WriteString(c, "PING\r\n")
			line, _ := bufio.NewReader(c).ReadString('\n')
			c.Close()
			if line != "" {
				return true
			}
		}
	}
	return false
}

func (s *server) kill() {
	if s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
	}
	s.awaitGone()
}

func (s *server) awaitGone() {
	network := "tcp"
	if strings.HasPrefix(s.addr, "/") {
		network = "unix"
	}
	for {
		c, err := net.Dial(network, s.addr)
		if err != nil {
			return
		}
		_, _ = c.Read(make([]byte, 1)) // until it is closed
		c.Close()
	}
}

// client speaks to the server directly.
func (s *server) client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr, Protocol: 2})
	s.t.Cleanup(func() { c.Close() })
	return c
}

var bridges struct {
	sync.Mutex
	n int
}

// store opens a store whose keys no other test uses.
func (s *server) store(t testing.TB) *redisStore {
	t.Helper()
	return openRedis(t, RedisOptions{Addresses: []string{s.addr}})
}

func openRedis(t testing.TB, o RedisOptions) *redisStore {
	t.Helper()
	bridges.Lock()
	bridges.n++
	o.Namespace, o.Bridge = "test", fmt.Sprintf("bridge-%d", bridges.n)
	bridges.Unlock()
	opened, err := NewRedis(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	return opened.(*redisStore)
}

// ageing makes what a store holds older: for it, time has passed, without waiting.
// Whatever holds a time has to be listed here.
const ageing = `
local d = tonumber(ARGV[1])
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'hash' and string.find(KEYS[1], ':entry$') then
  for _, field in ipairs({'lease', 'keep'}) do
    local v = redis.call('HGET', KEYS[1], field)
    if v then redis.call('HSET', KEYS[1], field, string.format('%.0f', math.max(v - d, 0))) end
  end
elseif kind == 'hash' then
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local till, begun, rest = string.match(all[i + 1], '^(%d+) (%d+)(.*)$')
    redis.call('HSET', KEYS[1], all[i], string.format('%.0f %.0f', till - d, begun - d) .. rest)
  end
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return redis.error_reply('key without an end: ' .. KEYS[1]) end
if left > d then redis.call('PEXPIRE', KEYS[1], left - d) else redis.call('DEL', KEYS[1]) end`

// advance lets time pass for a store.
func (r *redisStore) advance(t testing.TB, d time.Duration) {
	t.Helper()
	ctx := t.Context()
	age := func(ctx context.Context, c *redis.Client) error {
		keys := c.Scan(ctx, 0, r.prefix+"*", 10_000).Iterator()
		for keys.Next(ctx) {
			if err := c.Eval(ctx, ageing, []string{keys.Val()}, d.Milliseconds()).Err(); err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
		}
		return keys.Err()
	}
	var err error
	switch c := r.client.Load().UniversalClient.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, age)
	case *redis.Client:
		err = age(ctx, c)
	}
	if err != nil {
		t.Fatal(err)
	}
}
