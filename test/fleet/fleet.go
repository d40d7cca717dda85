package fleet

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
)

// Credentials of every fleet. The canary in them must appear in no log.
const (
	ClientKey  = "cwk-CANARY-fleet"
	AccountKey = "sk-CANARY-fleet"
)

// Options of Start.
type Options struct {
	// Provider is a type of bundle.Provider, Endpoint its base URL.
	Provider, Endpoint string
	// Redis is the address of the store, host:port.
	Redis string
}

// Fleet is replicas with one configuration. Its methods are for the test's own
// goroutine.
type Fleet struct {
	tb      testing.TB
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

// Start runs n replicas until the test ends. The test's binary must call
// ServeIfReplica.
func Start(tb testing.TB, n int, o Options) *Fleet {
	tb.Helper()
	f := &Fleet{tb: tb, dir: tb.TempDir()}
	f.members = filepath.Join(f.dir, "members.json")
	f.configure(o)
	ready := make([]int, n)
	for i := range n {
		s := settings{Pod: fmt.Sprint("pod-", i), Dir: filepath.Join(f.dir, "config"), Members: f.members,
			Listen: freeAddress(tb), Ops: freeAddress(tb), Peer: freeAddress(tb)}
		f.all = append(f.all, &replica{settings: s})
		ready[i] = i
	}
	f.Ready(ready...)
	for i := range n {
		f.Start(i)
	}
	return f
}

// configure writes what all replicas are told: the numbers of the built-in
// profile.
func (f *Fleet) configure(o Options) {
	f.tb.Helper()
	b := bundle.Bundle{
		Name: "bridge", Namespace: "default", Clients: bundle.Clients{Mode: bundle.ClientsRequired}, Drain: bundle.Drain{PodGraceSeconds: 60},
		Pool: bundle.Pool{Name: "pool", Strategy: bundle.StrategyRoundRobin, Provider: bundle.Provider{Type: o.Provider, Endpoint: o.Endpoint},
			Accounts: []bundle.Account{{Name: "first", Kind: bundle.KindAPIKey, State: bundle.AccountEnabled}}},
		Store: bundle.Store{Type: bundle.StoreRedis, Addresses: []string{o.Redis}},
		Circuit: bundle.Circuit{
			RetryCircuit: bundle.RetryCircuit{FailureThreshold: 2, BaseBackoffSeconds: 60, MaxBackoffSeconds: 600,
				CleanCloseMaxBackoffSeconds: 30, HalfOpenLeaseSeconds: 60, StateTTLSeconds: 3600},
			Quarantine: bundle.Quarantine{EventlessThreshold: 2, RetainSeconds: 3600},
			Deadlines: bundle.Deadlines{ConnectSeconds: 5, TLSSeconds: 5, ResponseHeaderSeconds: 60, FirstEventSeconds: 60,
				IdleSeconds: 300, KeepaliveSeconds: 10, CancelGraceSeconds: 1}},
	}
	c := bundle.Credentials{
		Accounts: map[string]bundle.Credential{"first": {APIKey: AccountKey}},
		Clients:  map[string]string{"tester": bundle.KeyDigest(ClientKey)},
		PeerKeys: []string{base64.StdEncoding.EncodeToString([]byte("CANARY: a key of 32 bytes, whole"))},
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

func (f *Fleet) must(err error) {
	f.tb.Helper()
	if err != nil {
		f.tb.Fatal(err)
	}
}

// Address is where replica i serves clients, host:port.
func (f *Fleet) Address(i int) string { return f.all[i].Listen }

// Ops is where replica i serves health and metrics, host:port.
func (f *Fleet) Ops(i int) string { return f.all[i].Ops }

// Ready says which replicas Kubernetes would call ready.
func (f *Fleet) Ready(indexes ...int) {
	f.tb.Helper()
	members := map[string]string{}
	for _, i := range indexes {
		members[f.all[i].Pod] = f.all[i].Peer
	}
	raw, err := json.Marshal(members)
	f.must(err)
	f.must(os.WriteFile(f.members+".new", raw, 0o600))
	f.must(os.Rename(f.members+".new", f.members))
}

// Start runs a replica that was killed, under its old name and addresses, and
// returns when it serves.
func (f *Fleet) Start(i int) {
	f.tb.Helper()
	r := f.all[i]
	raw, err := json.Marshal(r.settings)
	f.must(err)
	r.log, r.ended = &lockedBuffer{}, make(chan struct{})
	r.cmd = exec.Command(os.Args[0]) //nolint:gosec // this very binary
	r.cmd.Env = append(os.Environ(), replicaEnv+"="+string(raw))
	r.cmd.Stderr = r.log
	dieWithParent(r.cmd)
	f.must(r.cmd.Start())
	cmd, log, ended := r.cmd, r.log, r.ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	f.tb.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Process.Kill()
		<-ended
		f.judge(r.Pod, log.String())
	})
	awaitPort(f.tb, r.Listen, ended)
}

// judge looks at the log of a replica that has ended.
func (f *Fleet) judge(pod, log string) {
	for _, bad := range []string{"DATA RACE", "panic:", "Recovered from a panic"} {
		if strings.Contains(log, bad) {
			f.tb.Errorf("%s: %s:\n%s", pod, bad, log)
		}
	}
	if strings.Contains(log, "CANARY") {
		f.tb.Errorf("%s: a credential is in the log", pod)
	}
	if f.tb.Failed() && os.Getenv("CAUSEWAY_TEST_LOGS") != "" {
		f.tb.Logf("log of %s:\n%s", pod, log)
	}
}

// Signal sends a signal to replica i, and waits for the end of one that is
// killed.
func (f *Fleet) Signal(i int, s syscall.Signal) {
	f.tb.Helper()
	f.must(f.all[i].cmd.Process.Signal(s))
	if s == syscall.SIGKILL {
		<-f.all[i].ended
	}
}
