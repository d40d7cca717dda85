package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// The three ways to the origin.
const (
	direct   = "direct"
	nginx    = "nginx"
	causeway = "causeway"
)

// target is a way to the origin that is up. The proxies are started afresh for
// each phase, so that none pays for what an earlier one left behind.
type target struct {
	*process // nil for direct
	name     string
	address  string
	tls      *tls.Config
	key      string
}

func (t *target) close() {
	if t.process != nil {
		t.stop()
	}
}

// clientKey and accountKey are no secrets: they end with the run.
const (
	clientKey  = "cwk-bench-client-key-of-one-run"
	accountKey = "sk-bench-account-key-of-one-run"
)

func (b *bench) start(ctx context.Context, name string) (*target, error) {
	switch name {
	case nginx:
		return b.startNginx(ctx)
	case causeway:
		return b.startCauseway(ctx)
	}
	return &target{name: direct, address: b.origin.data, key: accountKey,
		tls: &tls.Config{RootCAs: b.certificate.pool, ServerName: originName, MinVersion: tls.VersionTLS13}}, nil
}

// nginxConf is nginx as one would put it before a streaming API: its defaults,
// no buffering of answers, connections to the origin kept, bodies in memory, TLS
// of the same version as the other proxy's. The listener is shared out by the
// kernel; without reuseport one worker would get most of the streams.
const nginxConf = `%[1]sdaemon off;
pid %[2]s/nginx.pid;
error_log %[2]s/nginx-error.log warn;
worker_processes auto;
worker_rlimit_nofile %[3]d;
events { worker_connections %[3]d; }
http {
  access_log off;
  client_body_temp_path %[2]s/body;
  proxy_temp_path %[2]s/proxy;
  fastcgi_temp_path %[2]s/fastcgi;
  uwsgi_temp_path %[2]s/uwsgi;
  scgi_temp_path %[2]s/scgi;
  upstream origin { server %[4]s; keepalive 256; }
  server {
    listen %[5]s reuseport backlog=4096;
    client_max_body_size 128m;
    client_body_buffer_size 256k;
    location / {
      proxy_pass https://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "Bearer %[8]s";
      proxy_buffering off;
      proxy_read_timeout 1h;
      proxy_ssl_protocols TLSv1.3;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate %[6]s;
      proxy_ssl_name %[7]s;
    }
  }
}
`

func (b *bench) startNginx(ctx context.Context) (*target, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // its temporary folders are ours
	}
	conf := filepath.Join(b.dir, "nginx.conf")
	text := fmt.Sprintf(nginxConf, user, b.dir, 2*b.settings.streams+1000, b.origin.data, address, b.certificate.certFile, originName, accountKey)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p, err := start(exec.Command(b.settings.nginx, "-e", filepath.Join(b.dir, "nginx-error.log"), "-p", b.dir, "-c", conf), b.dir, nginx)
	if err != nil {
		return nil, err
	}
	t := &target{process: p, name: nginx, address: address, key: clientKey}
	return t, p.await(ctx, func() bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
}

// manifests are the samples with another endpoint, one account and room for all
// streams.
const manifests = `apiVersion: causeway.dev/v1alpha1
kind: AccountPool
metadata: {name: bench}
spec:
  provider:
    type: OpenAIPlatform
    endpoint: https://%[1]s/v1
    caBundle: |
      %[2]s
  accounts:
  - name: first
    apiKey:
      secretRef: {name: bench-keys, key: first}
---
apiVersion: causeway.dev/v1alpha1
kind: BridgePolicy
metadata: {name: bench}
spec:
  accountPoolRef: {name: bench}
  clients:
    keysSecretRef: {name: bench-clients}
---
apiVersion: v1
kind: Secret
metadata: {name: bench-keys}
stringData: {first: %[3]s}
---
apiVersion: v1
kind: Secret
metadata: {name: bench-clients}
stringData: {bench: %[4]s}
`

func (b *bench) startCauseway(ctx context.Context) (*target, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	ops, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(b.dir, "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(manifests, b.origin.data, strings.ReplaceAll(strings.TrimSpace(b.certificate.pem), "\n", "\n      "), accountKey, clientKey)
	if err := os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	args := []string{"--config", config, "--listen", address, "--ops-listen", ops}
	binary := b.settings.proxy
	if b.settings.profile != "" {
		if binary, err = os.Executable(); err != nil {
			return nil, err
		}
		b.profiles++
		args = append([]string{roleProxy, "--profile", filepath.Join(b.settings.profile, "proxy-"+strconv.Itoa(b.profiles))}, args...)
	}
	p, err := start(exec.Command(binary, args...), b.dir, causeway)
	if err != nil {
		return nil, err
	}
	t := &target{process: p, name: causeway, address: address, key: clientKey}
	return t, p.await(ctx, func() bool { return ready(ctx, "http://"+ops+"/readyz") == nil })
}

func ready(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
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
