package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// started runs the command and returns its base URL; it stops with the test.
func started(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"--listen", "127.0.0.1:0"}, args...), w, io.Discard)
		_ = w.CloseWithError(io.EOF)
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("reading the address: %v", err)
	}
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "causeway-upstream listening on ")
	if !ok {
		t.Fatalf("got %q", line)
	}
	return url
}

func post(t *testing.T, c *http.Client, url, token string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/responses", strings.NewReader(`{"model":"m","input":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	c.CloseIdleConnections()
	return res.StatusCode, string(b)
}

func TestServesAScriptOverTLS(t *testing.T) {
	dir := t.TempDir()
	script, accounts, ca := filepath.Join(dir, "s.yaml"), filepath.Join(dir, "accounts"), filepath.Join(dir, "ca.pem")
	for name, content := range map[string]string{script: "respond: {text: from the file}", accounts: "# names\nb=sk-b\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url := started(t, "--script", script, "--accounts", accounts, "--account", "a=sk-a", "--mode", "platform",
		"--self-signed", "127.0.0.1,upstream.test", "--ca-out", ca)
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	for token, want := range map[string]int{"sk-a": 200, "sk-b": 200, "sk-c": 401} {
		status, body := post(t, c, url, token)
		if status != want || (status == 200) != strings.Contains(body, "from the file") {
			t.Errorf("%s: %d %s", token, status, body)
		}
	}
}

func TestFlagsAreChecked(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("rules: [{fault: {action: explode}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--mode", "azure"}, "platform or chatgpt"},
		{[]string{"--script", bad}, "rules[0].fault.action"},
		{[]string{"--script", bad + ".missing"}, "--script"},
		{[]string{"--account", "sk-hidden"}, "account 1: want name=token"},
		{[]string{"--ca-out", "x"}, "--ca-out needs --self-signed"},
		{[]string{"--self-signed", "h", "--tls-cert", "x"}, "exclude each other"},
		{[]string{"--tls-cert", bad, "--tls-key", bad}, "--tls-cert"},
		{[]string{"--listen", "no-such-port"}, "listening"},
		{[]string{"extra"}, `unexpected argument "extra"`},
	} {
		err := run(t.Context(), c.args, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sk-hidden") {
			t.Errorf("%v: got %v, want %s", c.args, err, c.want)
		}
	}
	var help bytes.Buffer
	err := run(t.Context(), []string{"--help"}, io.Discard, &help)
	if !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-self-signed") {
		t.Errorf("help: %v\n%s", err, help.String())
	}
}
