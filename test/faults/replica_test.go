package faults

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy"
)

// A replica is this test's own binary, started again with this variable: its
// value is the replica's settings.
const replicaEnv = "CAUSEWAY_FAULTS_REPLICA"

func TestMain(m *testing.M) {
	if raw := os.Getenv(replicaEnv); raw != "" {
		if err := runReplica(raw); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// settings of one replica.
type settings struct {
	Pod, Dir, Listen, Ops, Peer string
	// Members is a file with the peer addresses of the ready replicas by pod.
	Members string
}

func runReplica(raw string) error {
	var s settings
	if err := json.Unmarshal([]byte(raw), &s); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return proxy.Run(ctx, proxy.Options{
		ConfigDir: s.Dir, Listen: s.Listen, OpsListen: s.Ops, PeerListen: s.Peer,
		Logger: slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Getenv: func(string) string { return "" },
		Replicas: &proxy.Replicas{Pod: s.Pod, Follow: func(ctx context.Context, _ string, changed func(map[string]string)) error {
			return followFile(ctx, s.Members, changed)
		}},
	})
}

// followFile tells of the members in a file whenever they change.
func followFile(ctx context.Context, path string, changed func(map[string]string)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := map[string]string{}
	for {
		raw, err := os.ReadFile(path)
		now := map[string]string{}
		if err == nil && json.Unmarshal(raw, &now) == nil && !maps.Equal(now, last) {
			last = now
			changed(maps.Clone(now))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// fleet is three replicas with one configuration.
type fleet struct {
	t       *testing.T
	dir     string
	members string
	all     []*replica
}

type replica struct {
	settings
	cmd   *exec.Cmd
	log   *lockedBuffer
	ended chan struct{}
}

const clientKey = "cwk-faults"

func newFleet(t *testing.T, provider, endpoint, redis string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir()}
	f.members = filepath.Join(f.dir, "members.json")
	f.configure(provider, endpoint, redis)
	for i := range 3 {
		s := settings{Pod: fmt.Sprint("pod-", i), Dir: filepath.Join(f.dir, "config"), Members: f.members,
			Listen: freeAddress(t), Ops: freeAddress(t), Peer: freeAddress(t)}
		f.all = append(f.all, &replica{settings: s})
	}
	f.ready(0, 1, 2)
	for i := range f.all {
		f.start(i)
	}
	return f
}

func (f *fleet) configure(provider, endpoint, redis string) {
	f.t.Helper()
	b := bundle.Bundle{
		Name: "bridge", Namespace: "default", Clients: bundle.Clients{Mode: bundle.ClientsRequired}, Drain: bundle.Drain{PodGraceSeconds: 60},
		Pool: bundle.Pool{Name: "pool", Strategy: bundle.StrategyRoundRobin, Provider: bundle.Provider{Type: provider, Endpoint: endpoint},
			Accounts: []bundle.Account{{Name: "first", Kind: bundle.KindAPIKey, State: bundle.AccountEnabled}}},
		Store: bundle.Store{Type: bundle.StoreRedis, Addresses: []string{redis}},
		Circuit: bundle.Circuit{
			RetryCircuit: bundle.RetryCircuit{FailureThreshold: 2, BaseBackoffSeconds: 60, MaxBackoffSeconds: 600,
				CleanCloseMaxBackoffSeconds: 30, HalfOpenLeaseSeconds: 60, StateTTLSeconds: 3600},
			Quarantine: bundle.Quarantine{EventlessThreshold: 2, RetainSeconds: 3600},
			Deadlines: bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, ResponseHeaderSeconds: 60, FirstEventSeconds: 60,
				IdleSeconds: 300, KeepaliveSeconds: 10, CancelGraceSeconds: 1}},
	}
	c := bundle.Credentials{
		Accounts: map[string]bundle.Credential{"first": {APIKey: "sk-first"}},
		Clients:  map[string]string{"tester": bundle.KeyDigest(clientKey)},
		PeerKeys: []string{base64.StdEncoding.EncodeToString([]byte("a key of thirty-two bytes, no le"))},
	}
	rawBundle, err := b.Seal().Encode()
	f.must(err)
	rawCredentials, err := c.Seal().Encode()
	f.must(err)
	dir := filepath.Join(f.dir, "config")
	f.must(os.MkdirAll(dir, 0o700))
	f.must(os.WriteFile(filepath.Join(dir, bundle.FileName), rawBundle, 0o600))
	f.must(os.WriteFile(filepath.Join(dir, bundle.CredentialsFileName), rawCredentials, 0o600))
}

func (f *fleet) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// ready says which replicas Kubernetes would call ready.
func (f *fleet) ready(indexes ...int) {
	f.t.Helper()
	members := map[string]string{}
	for _, i := range indexes {
		members[f.all[i].Pod] = f.all[i].Peer
	}
	raw, err := json.Marshal(members)
	f.must(err)
	f.must(os.WriteFile(f.members+".new", raw, 0o600))
	f.must(os.Rename(f.members+".new", f.members))
}

// start runs a replica and returns when it serves.
func (f *fleet) start(i int) {
	f.t.Helper()
	r := f.all[i]
	raw, err := json.Marshal(r.settings)
	f.must(err)
	r.log, r.ended = &lockedBuffer{}, make(chan struct{})
	r.cmd = exec.Command(os.Args[0]) //nolint:gosec // this very binary
	r.cmd.Env = append(os.Environ(), replicaEnv+"="+string(raw))
	r.cmd.Stderr = r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	f.must(r.cmd.Start())
	cmd, ended := r.cmd, r.ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	f.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-ended
		if strings.Contains(r.log.String(), "DATA RACE") || strings.Contains(r.log.String(), "panic:") {
			f.t.Error(r.log.String())
		}
	})
	awaitPort(f.t, r.Listen, ended)
}

func (f *fleet) signal(i int, s syscall.Signal) {
	f.t.Helper()
	f.must(f.all[i].cmd.Process.Signal(s))
	if s == syscall.SIGKILL {
		<-f.all[i].ended
	}
}

// awaitPort returns when something listens.
func awaitPort(t *testing.T, address string, ended <-chan struct{}) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case <-ended:
			t.Fatal("it ended before it listened on " + address)
		case <-deadline:
			t.Fatal("nothing listens on " + address)
		case <-tick.C:
		}
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
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

// redisServer is a real Redis without persistence.
type redisServer struct {
	t       *testing.T
	address string
	cmd     *exec.Cmd
	ended   chan struct{}
}

func startRedis(t *testing.T) *redisServer {
	t.Helper()
	s := &redisServer{t: t, address: freeAddress(t)}
	s.start()
	return s
}

func (s *redisServer) start() {
	s.t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatal("redis-server is missing, and replicas are tested with a real one: apt-get install redis-server")
	}
	_, port, _ := net.SplitHostPort(s.address)
	s.cmd = exec.Command(binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.t.TempDir())
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.ended = make(chan struct{})
	cmd, ended := s.cmd, s.ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-ended
	})
	awaitPort(s.t, s.address, s.ended)
}

// forget restarts the server; it comes back without its data.
func (s *redisServer) forget() {
	s.t.Helper()
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.start()
}
