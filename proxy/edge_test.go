package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/telemetry"
	"github.com/causeway-dev/causeway/test/upstream"
)

// T33: whatever is done to the data port, Kubernetes and people get their answers.
func TestT33_TheOpsPortAnswersWhenTheDataPortIsFull(t *testing.T) {
	p := launch(t, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60}, nil)
	var dialer net.Dialer
	for range 4096 + 8 {
		c, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.data, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /v1/models HTTP/1.1\r\n") // and never goes on
	}
	p.until(t, "a connection that is turned away", func() bool { return strings.Contains(p.log.String(), "Turning connections away") })
	for _, path := range []string{"/livez", "/readyz", "/readyz?verbose", "/metrics", "/startupz"} {
		if status, text := p.text(t, path); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

// T03: a caller in a hurry before an upstream that is slow and well. Its errors say
// that the limit was its own, and nobody is blamed.
func TestT03_ACallersOwnDeadline(t *testing.T) {
	up := upstream.Start(t, upstream.Options{Accounts: map[string]string{secretKey: "first"}, Script: upstream.Script{Rules: []upstream.Rule{
		{Match: upstream.Match{InputContains: "slow"}, Fault: &upstream.Fault{Action: upstream.ActMute}}}}})
	p := launch(t, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60}, nil)
	p.configure(t, up.URL+"/v1", bundle.Drain{PodGraceSeconds: 60}, firstKey)
	p.awaitConfiguration(t)
	ask := func(text, timeout string) (int, http.Header, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.data+"/v1/responses",
			strings.NewReader(`{"model":"m","stream":true,"input":"`+text+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+firstKey)
		req.Header.Set("X-Causeway-Timeout-Ms", timeout)
		res, err := p.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header, string(raw)
	}
	for range 12 {
		status, header, text := ask("slow", "50")
		if status != http.StatusGatewayTimeout || !strings.Contains(text, `"deadline_source":"caller"`) || header.Get("Retry-After") != "" {
			t.Fatalf("%d %s %v", status, text, header)
		}
	}
	if status, _, text := ask("quick", "60000"); status != http.StatusOK {
		t.Errorf("somebody was blamed: %d %s", status, text)
	}
	if _, text := p.text(t, "/readyz?verbose"); strings.Contains(text, "accounts can serve") {
		t.Error("an account was blamed:", text)
	}
}

// fewDescriptors is how many files the process of TestT72 may have open.
const fewDescriptors = 128

// T72: out of descriptors, a proxy says 503 and that nothing was sent; it does not
// end, holds it against no account, and serves when there are some again.
func TestT72_OutOfDescriptors(t *testing.T) {
	release := make(chan struct{})
	var held atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		if strings.Contains(string(raw), "hold") {
			held.Add(1)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\"}}\n\n")
	}))
	defer up.Close()
	p := spawn(t, up.URL+"/v1")
	turn := func(text string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.data+"/v1/responses",
			strings.NewReader(`{"model":"m","stream":true,"input":"`+text+`"}`))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		req.Header.Set("Authorization", "Bearer "+firstKey)
		res, err := p.client.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer res.Body.Close()
		raw, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(raw)
	}
	var turns sync.WaitGroup
	var refused, other atomic.Int64
	for range fewDescriptors {
		turns.Go(func() {
			switch status, text := turn("hold"); {
			case status == http.StatusServiceUnavailable && (strings.Contains(text, `"dispatch":"none"`) || strings.Contains(text, "not_sent")):
				refused.Add(1)
			case status != http.StatusOK:
				other.Add(1)
				t.Log(status, text)
			}
		})
	}
	p.until(t, "refusals and turns", func() bool { return refused.Load() > 0 && held.Load()+refused.Load()+other.Load() >= fewDescriptors })
	if other.Load() > 0 {
		t.Errorf("%d turns ended in another way", other.Load())
	}
	t.Logf("%d turns refused, %d sent", refused.Load(), held.Load())
	close(release)
	turns.Wait()
	p.client.CloseIdleConnections()
	p.until(t, "service again", func() bool {
		status, _ := turn("again")
		return status == http.StatusOK
	})
	if status, text := p.text(t, "/readyz?verbose"); status != http.StatusOK || strings.Contains(text, "CoolingDown") {
		t.Errorf("an account was blamed: %d %s", status, text)
	}
}

// spawn starts a proxy in a process of its own, with few descriptors.
func spawn(t *testing.T, endpoint string) *proxied {
	t.Helper()
	p := &proxied{dir: t.TempDir(), client: &http.Client{Transport: &http.Transport{}}}
	p.configure(t, endpoint, bundle.Drain{PodGraceSeconds: 60}, firstKey)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(context.WithoutCancel(t.Context()), self, "-test.run=^TestProxyOfFewDescriptors$", "-test.timeout=100s")
	child.Env = append(os.Environ(), "CAUSEWAY_TEST_CONFIG="+p.dir)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		_ = in.Close() // tells it to end
		if err := child.Wait(); err != nil {
			t.Error("the proxy did not end well:", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, err := fmt.Sscanf(lines.Text(), "ports %s %s", &p.data, &p.ops); err == nil {
			p.data, p.ops = "http://"+p.data, "http://"+p.ops
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return p
		}
	}
	t.Fatal("the proxy did not start")
	return nil
}

// TestProxyOfFewDescriptors is the process that TestT72 starts.
func TestProxyOfFewDescriptors(t *testing.T) {
	dir := os.Getenv("CAUSEWAY_TEST_CONFIG")
	if dir == "" {
		t.Skip("a part of TestT72_OutOfDescriptors")
	}
	limit := syscall.Rlimit{Cur: fewDescriptors, Max: fewDescriptors}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	logger, err := telemetry.NewLogger(io.Discard, "info")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	hurry := make(chan struct{})
	time.AfterFunc(90*time.Second, cancel)
	if err := Run(ctx, Options{ConfigDir: dir, Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Logger: logger, Hurry: hurry,
		Started: func(data, ops net.Addr) { _, _ = fmt.Fprintf(os.Stdout, "ports %s %s\n", data, ops) },
		Getenv:  func(string) string { return "" }}); err != nil {
		t.Fatal(err)
	}
}
