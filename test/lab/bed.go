package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/test/upstream"
)

// bed is what one experiment runs in: the upstream, in this process, and what it
// starts.
type bed struct {
	dir    string
	binary string
	up     *upstream.Server
	host   string // of the upstream, host:port
	ca     string
	all    []*process
}

// accounts of every pool. Their keys end with the run.
const accounts = 8

func accountName(i int) string { return fmt.Sprint("account-", i) }
func accountKey(i int) string  { return fmt.Sprint("sk-lab-of-one-run-", i) }

// clientKey is that of a client by its name.
func clientKey(name string) string { return "cwk-lab-key-of-one-run-" + name }

// latency is how long the upstream takes for an answer.
const latency = 100 * time.Millisecond

func newBed(binary string) (*bed, error) {
	dir, err := os.MkdirTemp("", "lab-")
	if err != nil {
		return nil, err
	}
	b := &bed{dir: dir, binary: binary}
	tokens := map[string]string{}
	for i := range accounts {
		tokens[accountKey(i)] = accountName(i)
	}
	b.up = upstream.New(upstream.Options{Mode: upstream.ModePlatform, Accounts: tokens, KeepBodies: true, Script: script()})
	conf, ca, err := upstream.SelfSigned("localhost", "127.0.0.1")
	if err != nil {
		b.close()
		return nil, err
	}
	b.ca = string(ca)
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.close()
		return nil, err
	}
	b.host = ln.Addr().String()
	go func() { _ = b.up.ServeTLS(ln, conf) }() // a listener that breaks shows as refused connections
	return b, nil
}

// script is an upstream that answers everything, but for what the rules say.
func script(rules ...upstream.Rule) upstream.Script {
	return upstream.Script{Rules: rules, Respond: &upstream.Respond{Text: "Certainly.", Delay: upstream.Duration(latency)}}
}

func (b *bed) close() {
	for _, p := range b.all {
		p.stop()
	}
	b.up.Close()
	_ = os.RemoveAll(b.dir)
}

// replica is one proxy.
type replica struct {
	*process
	address string
}

// pool is what a proxy is told.
type pool struct {
	clients []string
	// models is the allow-list of the first account; empty = all.
	models string
	// maxConcurrent bounds the turns of each account; 0 = nothing does.
	maxConcurrent int
	// policy is the spec of the CircuitPolicy, in one line of YAML.
	policy string
	// redis is the address of the store that replicas share; empty = memory.
	redis string
}

// start runs a proxy until the bed is closed.
func (b *bed) start(ctx context.Context, p pool) (*replica, error) {
	name := fmt.Sprint("proxy-", len(b.all))
	config := filepath.Join(b.dir, name)
	if err := os.MkdirAll(config, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(config, "lab.yaml"), []byte(b.manifests(p)), 0o600); err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	ops, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	started, err := start(exec.Command(b.binary, "--config", config, "--listen", address, "--ops-listen", ops), b.dir, name)
	if err != nil {
		return nil, err
	}
	b.all = append(b.all, started)
	return &replica{started, address}, started.await(ctx, func() bool { return ready(ctx, "http://"+ops+"/readyz") == nil })
}

// manifests are the samples with another endpoint and with the numbers of p.
func (b *bed) manifests(p pool) string {
	var y strings.Builder
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(&y, format+"\n", args...) }
	say("apiVersion: causeway.dev/v1alpha1\nkind: AccountPool\nmetadata: {name: lab}\nspec:")
	say("  provider:\n    type: OpenAIPlatform\n    endpoint: https://%s/v1\n    caBundle: |\n      %s", b.host,
		strings.ReplaceAll(strings.TrimSpace(b.ca), "\n", "\n      "))
	say("  accounts:")
	for i := range accounts {
		say("  - name: %s\n    apiKey:\n      secretRef: {name: lab-keys, key: %[1]s}", accountName(i))
		if p.maxConcurrent > 0 {
			say("    limits: {maxConcurrent: %d}", p.maxConcurrent)
		}
		if p.models != "" && i > 0 {
			say("    models: [%s]", p.models)
		}
	}
	say("---\napiVersion: causeway.dev/v1alpha1\nkind: BridgePolicy\nmetadata: {name: lab}\nspec:")
	say("  accountPoolRef: {name: lab}\n  circuitPolicyRef: {name: lab}\n  clients:\n    keysSecretRef: {name: lab-clients}")
	if p.redis != "" {
		say("  store: {type: Redis, redis: {addresses: [%q]}}", p.redis)
	}
	say("---\napiVersion: causeway.dev/v1alpha1\nkind: CircuitPolicy\nmetadata: {name: lab}\nspec: {%s}", p.policy)
	say("---\napiVersion: v1\nkind: Secret\nmetadata: {name: lab-keys}\nstringData:")
	for i := range accounts {
		say("  %s: %s", accountName(i), accountKey(i))
	}
	say("---\napiVersion: v1\nkind: Secret\nmetadata: {name: lab-clients}\nstringData:")
	for _, name := range p.clients {
		say("  %s: %s", name, clientKey(name))
	}
	return y.String()
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
