package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	firstKey  = "cwk-CANARY-first"
	secondKey = "cwk-CANARY-second"
	secretKey = "sk-CANARY-account"
)

// proxied is a running proxy.
type proxied struct {
	data, ops string
	dir       string
	log       *lockedBuffer
	stop      context.CancelFunc
	hurry     chan struct{}
	ended     chan error
	client    *http.Client
	logger    *slog.Logger
	// peerKeys are written by configure.
	peerKeys []string
}

func launch(t *testing.T, upstream http.Handler, drain bundle.Drain, env map[string]string) *proxied {
	t.Helper()
	return launchWith(t, upstream, drain, env, func(*Options) {})
}

// launchWith starts a proxy with changed options.
func launchWith(t *testing.T, upstream http.Handler, drain bundle.Drain, env map[string]string, change func(*Options)) *proxied {
	t.Helper()
	up := httptest.NewServer(upstream)
	t.Cleanup(up.Close)
	p := &proxied{
		dir: t.TempDir(), log: &lockedBuffer{}, hurry: make(chan struct{}), ended: make(chan error, 1),
		client: &http.Client{Transport: &http.Transport{}},
	}
	t.Cleanup(p.client.CloseIdleConnections)
	p.configure(t, up.URL, drain, firstKey)
	logger, err := telemetry.NewLogger(p.log, "debug")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	p.stop, p.logger = stop, logger
	opened := make(chan [2]net.Addr, 1)
	options := Options{
		ConfigDir: p.dir, Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Logger: logger, Hurry: p.hurry,
		Started: func(data, ops net.Addr) { opened <- [2]net.Addr{data, ops} },
		Getenv:  func(name string) string { return env[name] },
	}
	change(&options)
	go func() { p.ended <- Run(ctx, options) }()
	select {
	case a := <-opened:
		p.data, p.ops = "http://"+a[0].String(), "http://"+a[1].String()
	case err := <-p.ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		select {
		case <-p.hurry:
		default:
			close(p.hurry)
		}
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
		if strings.Contains(p.log.String(), "CANARY") {
			t.Error("a secret is in the log:", p.log)
		}
	})
	return p
}

// configure writes both documents, each in one step.
func (p *proxied) configure(t *testing.T, endpoint string, drain bundle.Drain, keys ...string) {
	t.Helper()
	b := bundle.Bundle{
		Name: "bridge", Namespace: "default", Clients: bundle.Clients{Mode: bundle.ClientsRequired}, Drain: drain,
		Pool: bundle.Pool{
			Name: "pool", Strategy: bundle.StrategyRoundRobin,
			Provider: bundle.Provider{Type: bundle.ProviderOpenAIPlatform, Endpoint: endpoint},
			Accounts: []bundle.Account{{Name: "first", Kind: bundle.KindAPIKey, State: bundle.AccountEnabled}},
		},
		Circuit: bundle.Circuit{Deadlines: bundle.Deadlines{
			ConnectSeconds: 5, TLSSeconds: 5, ResponseHeaderSeconds: 60, FirstEventSeconds: 60, IdleSeconds: 300, KeepaliveSeconds: 10,
		}},
	}
	c := bundle.Credentials{Accounts: map[string]bundle.Credential{"first": {APIKey: secretKey}}, Clients: map[string]string{}, PeerKeys: p.peerKeys}
	for _, key := range keys {
		c.Clients["client-"+bundle.KeyDigest(key)[:6]] = bundle.KeyDigest(key)
	}
	rawBundle, err := b.Seal().Encode()
	if err != nil {
		t.Fatal(err)
	}
	rawCredentials, err := c.Seal().Encode()
	if err != nil {
		t.Fatal(err)
	}
	p.put(t, bundle.FileName, rawBundle)
	p.put(t, bundle.CredentialsFileName, rawCredentials)
}

func (p *proxied) put(t *testing.T, name string, raw []byte) {
	t.Helper()
	half := filepath.Join(p.dir, "."+name)
	if err := os.WriteFile(half, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(half, filepath.Join(p.dir, name)); err != nil {
		t.Fatal(err)
	}
}

func (p *proxied) open(t *testing.T, method, url, key, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	return p.client.Do(req)
}

func (p *proxied) status(t *testing.T, url, key string) int {
	t.Helper()
	res, err := p.open(t, http.MethodGet, url, key, "")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// awaitUnready returns when the proxy has seen that it is to stop.
func (p *proxied) awaitUnready(t *testing.T) {
	t.Helper()
	for unready := false; !unready; {
		unready = p.status(t, p.ops+"/readyz", "") == http.StatusServiceUnavailable
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
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

// script is an upstream that streams on command.
type script struct{ next chan string }

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case text, more := <-s.next:
			if !more {
				return
			}
			_, _ = io.WriteString(w, text)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })

func TestRunServesAndReloads(t *testing.T) {
	p := launch(t, ok, bundle.Drain{PodGraceSeconds: 60}, nil)
	for _, path := range []string{"/livez", "/startupz", "/readyz", "/metrics", "/version"} {
		if got := p.status(t, p.ops+path, ""); got != http.StatusOK {
			t.Error(path, got)
		}
	}
	if got := p.status(t, p.data+"/v1/files", firstKey); got != http.StatusOK {
		t.Error("first key:", got)
	}
	if got := p.status(t, p.data+"/v1/files", secondKey); got != http.StatusUnauthorized {
		t.Error("second key, too early:", got)
	}
	p.configure(t, "http://127.0.0.1:1", bundle.Drain{}, secondKey)
	deadline := time.Now().Add(20 * time.Second)
	for p.status(t, p.data+"/v1/files", secondKey) != http.StatusServiceUnavailable { // the new endpoint is dead
		if time.Now().After(deadline) {
			t.Fatal("the change never arrived")
		}
	}
	if got := p.status(t, p.data+"/v1/files", firstKey); got != http.StatusUnauthorized {
		t.Error("first key, too late:", got)
	}
	p.put(t, bundle.FileName, []byte(`{"contractVersion":99,"x":"CANARY"}`))
	for !strings.Contains(p.log.String(), "Configuration rejected") {
		if time.Now().After(deadline) {
			t.Fatal("a bad change went unseen")
		}
	}
	if got := p.status(t, p.ops+"/readyz", ""); got != http.StatusOK {
		t.Error("a refused change made the proxy unready:", got)
	}
}

func TestStopFinishesWhatIsUnderWay(t *testing.T) {
	s := &script{next: make(chan string)}
	p := launch(t, s, bundle.Drain{PodGraceSeconds: 600, EndpointLagSeconds: 600}, nil)
	res, err := p.open(t, http.MethodPost, p.data+"/v1/x", firstKey, "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	say := func(text string) {
		t.Helper()
		s.next <- text
		if line, err := lines.ReadString('\n'); err != nil || line != text {
			t.Fatal(line, err)
		}
	}
	say("before\n")
	p.stop()
	p.awaitUnready(t)
	// Without Kubernetes nobody has to be waited for: the port closes at once.
	for {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.data, "http://"))
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	say("after\n")
	close(s.next)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Error(string(rest), err)
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	p.ended <- nil
}

func TestStopInAPodServesUntilRoutersKnow(t *testing.T) {
	p := launch(t, ok, bundle.Drain{PodGraceSeconds: 600, EndpointLagSeconds: 1}, map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
	p.stop()
	p.awaitUnready(t)
	res, err := p.open(t, http.MethodPost, p.data+"/v1/x", firstKey, "{}")
	if err != nil {
		t.Fatal("a late client was refused:", err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK || !res.Close {
		t.Error(res.StatusCode, res.Close)
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	p.ended <- nil
}

func TestScenario110_SecondSignalOnlyHurries(t *testing.T) {
	s := &script{next: make(chan string)}
	p := launch(t, s, bundle.Drain{PodGraceSeconds: 600}, nil)
	res, err := p.open(t, http.MethodPost, p.data+"/v1/x", firstKey, "{}")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	p.stop()
	close(p.hurry)
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("a cut answer ended cleanly")
	}
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	p.ended <- nil
}

func TestPatience(t *testing.T) {
	p := launch(t, ok, bundle.Drain{PodGraceSeconds: 900, PreStopSeconds: 15}, nil)
	if !strings.Contains(p.log.String(), `"listen":"127.0.0.1:`) {
		t.Error("the addresses are not in the log:", p.log)
	}
	p.stop()
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	p.ended <- nil
	if !strings.Contains(p.log.String(), (890 * time.Second).String()) {
		t.Error("the patience is not grace period - 10 s:", p.log)
	}
}

func TestRunFailsWithAWayOut(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	good := t.TempDir()
	(&proxied{dir: good}).configure(t, "http://127.0.0.1:1", bundle.Drain{})
	malformed, secret := t.TempDir(), t.TempDir()
	(&proxied{dir: malformed}).put(t, "pool.yaml", []byte("kind: AccountPool\n  bad"))
	(&proxied{dir: secret}).configure(t, "http://127.0.0.1:1", bundle.Drain{})
	(&proxied{dir: secret}).put(t, bundle.CredentialsFileName, []byte(`{"accounts":{"a":"CANARY"}}`))
	tests := []struct {
		name, dir, listen, ops string
		text                   string
	}{
		{"no folder", "", "", "", "--config"},
		{"empty folder", t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", bundle.FileName},
		{"malformed manifest", malformed, "127.0.0.1:0", "127.0.0.1:0", "pool.yaml"},
		{"malformed credentials", secret, "127.0.0.1:0", "127.0.0.1:0", bundle.CredentialsFileName},
		{"port taken", good, taken.Addr().String(), "127.0.0.1:0", "--listen"},
		{"ops port taken", good, "127.0.0.1:0", taken.Addr().String(), "--ops-listen"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			logger, err := telemetry.NewLogger(io.Discard, "info")
			if err != nil {
				t.Fatal(err)
			}
			err = Run(t.Context(), Options{ConfigDir: tt.dir, Listen: tt.listen, OpsListen: tt.ops, Logger: logger})
			if err == nil || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "CANARY") || errors.Is(err, context.Canceled) {
				t.Errorf("%v, want it to name %q", err, tt.text)
			}
		})
	}
}
