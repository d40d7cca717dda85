package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	caFile     = "ca.crt"
	readyIn    = 15 * time.Second
	stopIn     = 10 * time.Second
	tailOfLogs = 30
)

// process is a binary started for the run.
type process struct {
	cmd  *exec.Cmd
	log  string
	url  string
	name string
	done chan struct{}
}

// start runs a binary with its output in a file of dir.
func start(dir, binary string, args ...string) (*process, error) {
	name := filepath.Base(binary)
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	//nolint:noctx // stop ends it in order; a context would kill it at the first interrupt
	p.cmd = exec.Command(binary, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.done)
	}()
	return p, nil
}

// stop ends the process, kindly at first.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopIn):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// showLog prints the end of the log, for a run that failed.
func (p *process) showLog() {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	fmt.Fprintf(os.Stderr, "\nThe end of the log of %s:\n%s\n", p.name, strings.Join(lines[max(0, len(lines)-tailOfLogs):], "\n"))
}

// await polls until ready accepts, the process ends or time is up.
func (p *process) await(ctx context.Context, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyIn)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-p.done:
			p.showLog()
			return fmt.Errorf("%s ended before it was ready", p.name)
		case <-ctx.Done():
			p.showLog()
			p.stop()
			return fmt.Errorf("%s is not ready: %w", p.name, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// upstream is the scripted upstream.
type upstream struct {
	*process
	dir, ca string
}

// endpoint is where the pool's provider type expects /responses.
func (u *upstream) endpoint(provider string) string {
	if provider == "ChatGPT" {
		return u.url + "/backend-api/codex"
	}
	return u.url + "/v1"
}

func startUpstream(ctx context.Context, binary, dir string, m *manifests) (*upstream, error) {
	var accounts strings.Builder
	for name, token := range m.tokens {
		fmt.Fprintf(&accounts, "%s=%s\n", name, token)
	}
	list := filepath.Join(dir, "accounts")
	if err := os.WriteFile(list, []byte(accounts.String()), 0o600); err != nil {
		return nil, err
	}
	ca := filepath.Join(dir, caFile)
	p, err := start(dir, binary, "--listen", "127.0.0.1:0", "--accounts", list, "--self-signed", "127.0.0.1", "--ca-out", ca)
	if err != nil {
		return nil, err
	}
	if err := p.await(ctx, p.announced); err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		p.stop()
		return nil, err
	}
	return &upstream{process: p, dir: dir, ca: string(pem)}, nil
}

// announced finds "listening on URL" in the log.
func (p *process) announced() bool {
	f, err := os.Open(p.log)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if _, url, found := strings.Cut(lines.Text(), "listening on "); found {
			p.url = strings.TrimSpace(url)
			return true
		}
	}
	return false
}

func startProxy(ctx context.Context, binary, config string) (*process, error) {
	data, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	ops, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	p, err := start(filepath.Dir(config), binary, "--config", config, "--listen", data, "--ops-listen", ops)
	if err != nil {
		return nil, err
	}
	p.url = "http://" + data
	return p, p.await(ctx, func() bool { return answers(ctx, "http://"+ops+"/readyz") == nil })
}

func answers(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// freeAddress is a loopback address that nobody listened on a moment ago.
func freeAddress(ctx context.Context) (string, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}
