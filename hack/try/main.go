// Command try shows Causeway without a cluster: it makes a folder from
// config/samples, starts a scripted upstream and a proxy on loopback, holds a
// conversation and then takes one account away. It ends by itself.
//
//	try -samples config/samples -proxy bin/causeway-proxy -upstream bin/causeway-upstream
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/causeway-dev/causeway/hack/conversation"
)

// within bounds the whole run; it takes a few seconds.
const within = 90 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "try:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	samples := flag.String("samples", "config/samples", "`folder` with the manifests")
	proxyBinary := flag.String("proxy", "bin/causeway-proxy", "proxy `binary`")
	upstreamBinary := flag.String("upstream", "bin/causeway-upstream", "scripted upstream `binary`")
	flag.Parse()
	dir, err := os.MkdirTemp("", "causeway-try-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	manifests, err := read(*samples)
	if err != nil {
		return err
	}

	fmt.Println("Starting the scripted upstream: it speaks the Responses API over HTTP and WebSocket and knows the accounts of", *samples)
	up, err := startUpstream(ctx, *upstreamBinary, dir, manifests)
	if err != nil {
		return err
	}
	defer up.stop()

	fmt.Println("Writing config/samples to a folder, with the upstream's address in the pool")
	config := filepath.Join(dir, "config")
	if err := manifests.write(config, up.endpoint(manifests.provider), up.ca); err != nil {
		return err
	}

	fmt.Println("Starting the proxy: causeway-proxy --config", config)
	proxy, err := startProxy(ctx, *proxyBinary, config)
	if err != nil {
		return err
	}
	defer proxy.stop()

	if err := demonstrate(ctx, manifests, up, proxy); err != nil {
		proxy.showLog()
		return err
	}
	return nil
}

// demonstrate holds the conversation: first undisturbed, then without the
// account that has served it so far.
func demonstrate(ctx context.Context, m *manifests, up *upstream, proxy *process) error {
	trusting, err := conversation.HTTPClient(filepath.Join(up.dir, caFile), "")
	if err != nil {
		return err
	}
	s := &conversation.Session{
		Client: &conversation.Client{BaseURL: proxy.url + "/v1", Key: m.clientKey, Model: m.model,
			Session: conversation.NewSessionID(), HTTP: &http.Client{}},
		Ledger: &conversation.Ledger{URL: up.url + "/_ledger", HTTP: trusting},
		Out:    os.Stdout,
	}
	fmt.Println("\nA conversation through", s.Client.BaseURL, "- the client sends everything each time, the proxy only what is new")
	for _, text := range []string{"Have a look around: run two commands.", "And run one command more.", "What did you find?"} {
		if err := s.Say(ctx, text); err != nil {
			return err
		}
	}
	if err := s.Check(); err != nil {
		return err
	}
	first := s.Totals().Accounts[0]
	fmt.Printf("\nNow the key of account %s is revoked: the upstream refuses it from here on\n", first)
	if err := up.refuse(ctx, trusting, first); err != nil {
		return err
	}
	if err := s.Say(ctx, "Are you still there? Run one command."); err != nil {
		return err
	}
	accounts := s.Totals().Accounts
	last := accounts[len(accounts)-1]
	if last == first {
		return fmt.Errorf("account %s answered although it was refused", first)
	}
	fmt.Printf("\nThe turn went on: account %s took over from %s within the same request; the client saw one unbroken stream.\n", last, first)
	return nil
}

// refuse makes the upstream turn an account away: its new sockets, its requests
// and its requests on sockets that are open.
func (u *upstream) refuse(ctx context.Context, client *http.Client, account string) error {
	script := fmt.Sprintf(`{"rules": [
	  {"match": {"account": %[1]q}, "fault": {"at": "upgrade", "action": "status", "status": 401}},
	  {"match": {"account": %[1]q}, "fault": {"action": "status", "status": 401}}]}`, account)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.url+"/_script", bytes.NewReader([]byte(script)))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("changing the upstream's script: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return errors.New("changing the upstream's script: " + resp.Status)
	}
	return nil
}
