package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// notes are the objects that are known.
type notes struct {
	mu    sync.Mutex
	known map[string]string
	err   error
}

func (n *notes) PinFile(client, id, account string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[client+"/"+id] = account
}

func (n *notes) FileAccount(_ context.Context, client, id string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[client+"/"+id], n.err
}

// What a client has put on one account is asked for there, and nowhere else.
func TestObjectsStayWithTheirAccount(t *testing.T) {
	known := &notes{known: map[string]string{}}
	var served sync.Map // path -> account
	e := start(t, setup{objects: known,
		change: func(b *bundle.Bundle, c *bundle.Credentials) {
			b.Pool.Strategy = bundle.StrategyRoundRobin
			b.Pool.Accounts = append(b.Pool.Accounts, bundle.Account{Name: "second", Kind: bundle.KindAPIKey, State: bundle.AccountEnabled})
			c.Accounts["second"] = bundle.Credential{APIKey: "sk-second"}
		},
		upstream: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			account := "first"
			if r.Header.Get("Authorization") == "Bearer sk-second" {
				account = "second"
			}
			served.Store(r.Method+" "+r.URL.Path, account)
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			switch {
			case strings.HasSuffix(r.URL.Path, "/complete"):
				_, _ = io.WriteString(w, `{"id":"upload_1","file":{"id":"file-nested-`+account+`"}}`)
			case strings.HasSuffix(r.URL.Path, "/completions"):
				_, _ = io.WriteString(w, `{"id":"chatcmpl-1"}`)
			default:
				_, _ = io.WriteString(w, `{"object":"file","id":"file-`+account+`"}`)
			}
		})})
	at := func(request string) any { account, _ := served.Load(request); return account }
	for range 2 {
		e.call(t, "POST", "/v1/files", "content")
	}
	e.call(t, "POST", "/v1/uploads/upload_0/complete", "{}")
	e.call(t, "POST", "/v1/chat/completions", "{}")
	if len(known.known) != 4 {
		t.Fatalf("known: %v", known.known)
	}
	for _, account := range []string{"first", "second"} {
		for range 4 { // whatever the selection would say
			path := "/v1/files/file-" + account + "/content"
			e.call(t, "GET", path, "")
			if got := at("GET /base" + path); got != account {
				t.Fatalf("a file of %s was asked for at %v", account, got)
			}
		}
	}
	known.err = errors.New("away")
	if reply := e.call(t, "DELETE", "/v1/files/file-first", ""); reply.StatusCode != http.StatusServiceUnavailable || !strings.Contains(reply.text, failure.StoreUnavailable) {
		t.Fatalf("%d %s", reply.StatusCode, reply.text)
	}
	if reply := e.call(t, "GET", "/v1/files", ""); reply.StatusCode != http.StatusOK {
		t.Fatalf("a list needs no owner: %d %s", reply.StatusCode, reply.text)
	}
}

func TestObjectOf(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/files": " true", "/v1/files/": " true", "/v1/files/f1": "f1 true", "/v1/files/f1/content": "f1 true", "/v1/uploads/u1/parts": "u1 true",
		"/v1/containers/c/files/f": "c true", "/v1/chat/completions": "completions false", "/v1/models/m": "m false", "/v1": " false",
	} {
		id, ok := objectOf(path)
		if got := fmt.Sprint(id, " ", ok); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
