// Command talk holds a short conversation through a proxy, with tool calls, and
// shows beside each request what the scripted upstream saw of it. The client key
// comes from the environment (CAUSEWAY_CLIENT_KEY).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/causeway-dev/causeway/hack/conversation"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "talk:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	proxy := flag.String("proxy", "http://127.0.0.1:8080/v1", "base `URL` of the proxy")
	ledger := flag.String("ledger", "", "`URL` of the scripted upstream's ledger")
	ca := flag.String("ca", "", "`file` with the certificate authority of the ledger")
	serverName := flag.String("server-name", "", "`name` in the ledger's certificate, if it is not the host of its URL")
	model := flag.String("model", "gpt-5.5", "model to ask for")
	within := flag.Duration("within", 2*time.Minute, "time for the whole conversation")
	flag.Parse()
	if *ledger == "" {
		return errors.New("-ledger is missing")
	}
	ctx, cancel := context.WithTimeout(ctx, *within)
	defer cancel()
	trusting, err := conversation.HTTPClient(*ca, *serverName)
	if err != nil {
		return err
	}
	plain, err := conversation.HTTPClient("", "")
	if err != nil {
		return err
	}
	session := &conversation.Session{
		Client: &conversation.Client{
			BaseURL: *proxy, Key: os.Getenv("CAUSEWAY_CLIENT_KEY"), Model: *model,
			Session: conversation.NewSessionID(), HTTP: plain,
		},
		Ledger: &conversation.Ledger{URL: *ledger, HTTP: trusting},
		Out:    os.Stdout,
	}
	// The scripted upstream answers "run one command" with a tool call.
	for _, text := range []string{"Have a look around: run one command.", "Now summarise what you saw."} {
		if err := session.Say(ctx, text); err != nil {
			return err
		}
	}
	return session.Check()
}
