package clients

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/causeway-dev/causeway/proxy"
	"github.com/causeway-dev/causeway/test/upstream"
)

// Credentials of the tests. The canary in them must appear in no log.
const (
	clientKey  = "cwk-CANARY-client"
	accountKey = "sk-CANARY-account"
)

// setup says what a test needs; zero values stand for the proxy's defaults.
type setup struct {
	script upstream.Script
	// Seconds.
	keepalive, idle, firstEvent int
	// clientKeys are accepted beside clientKey.
	clientKeys []string
}

// stage is a running proxy in front of the scripted upstream, which speaks TLS
// as the real ones do.
type stage struct {
	up *upstream.Server
	// data is the base URL of clients, without /v1.
	data, ops string
	// tap carries every client's connection.
	tap *tap
	log *syncBuffer
	// stop ends the proxy; the end of the test does so too.
	stop func()
}

func start(t *testing.T, o setup) *stage {
	t.Helper()
	s := &stage{log: &syncBuffer{}}
	s.up = upstream.StartTLS(t, upstream.Options{
		Accounts: map[string]string{accountKey: "first"}, Script: o.script, KeepBodies: true,
	})
	dir := t.TempDir()
	writeManifests(t, dir, s.up, o)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	opened := make(chan [2]net.Addr, 1)
	hurry := make(chan struct{})
	go func() {
		ended <- proxy.Run(ctx, proxy.Options{
			ConfigDir: dir, Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0", Hurry: hurry,
			Logger:  slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Started: func(data, ops net.Addr) { opened <- [2]net.Addr{data, ops} },
			Getenv:  func(string) string { return "" },
		})
	}()
	select {
	case at := <-opened:
		s.tap = startTap(t, at[0].String)
		s.data, s.ops = "http://"+s.tap.addr, "http://"+at[1].String()
	case err := <-ended:
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		stop()
		close(hurry)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		s.stop()
		if strings.Contains(s.log.String(), "CANARY") {
			t.Error("a credential is in the log")
		}
		if t.Failed() {
			t.Log("log of the proxy:\n", s.log)
		}
	})
	return s
}

// manifests are what one would apply to a cluster.
var manifests = template.Must(template.New("").Parse(`
apiVersion: causeway.dev/v1alpha1
kind: AccountPool
metadata: {name: team}
spec:
  provider:
    type: OpenAIPlatform
    endpoint: {{.Endpoint}}/v1
    caBundle: {{printf "%q" .CA}}
  accounts:
  - name: first
    apiKey: {secretRef: {name: openai-keys, key: first}}
---
apiVersion: causeway.dev/v1alpha1
kind: CircuitPolicy
metadata: {name: times}
spec:
  breaker: {consecutiveFailures: 100, minSamples: 10000} # failures here are made on purpose
  deadlines: {keepaliveSeconds: {{.Keepalive}}, idleSeconds: {{.Idle}}, firstEventSeconds: {{.FirstEvent}}}
---
apiVersion: causeway.dev/v1alpha1
kind: BridgePolicy
metadata: {name: chat}
spec:
  accountPoolRef: {name: team}
  circuitPolicyRef: {name: times}
  clients: {keysSecretRef: {name: chat-clients}}
---
apiVersion: v1
kind: Secret
metadata: {name: openai-keys}
data: {first: {{.AccountKey}}}
---
apiVersion: v1
kind: Secret
metadata: {name: chat-clients}
data: {
{{- range $i, $key := .ClientKeys}}
  client-{{$i}}: {{$key}},
{{- end}}
}
`))

func writeManifests(t *testing.T, dir string, up *upstream.Server, o setup) {
	t.Helper()
	orElse := func(v, unset int) int {
		if v == 0 {
			return unset
		}
		return v
	}
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	keys := []string{encode(clientKey)}
	for _, key := range o.clientKeys {
		keys = append(keys, encode(key))
	}
	var b bytes.Buffer
	err := manifests.Execute(&b, map[string]any{
		"Endpoint": up.URL, "CA": string(up.CA), "AccountKey": encode(accountKey), "ClientKeys": keys,
		"Keepalive": orElse(o.keepalive, 15), "Idle": orElse(o.idle, 300), "FirstEvent": orElse(o.firstEvent, 120),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifests.yaml"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// metric reads one series, labels and all, from the ops port.
func (s *stage) metric(t *testing.T, series string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.ops+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no series %s in:\n%s", series, text)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// noDuplicates fails if the upstream may have run a turn twice.
func (s *stage) noDuplicates(t *testing.T) {
	t.Helper()
	if dup := s.up.Ledger().Duplicates(); len(dup) > 0 {
		t.Errorf("sent twice: %s", describe(dup[0]))
	}
}

// bytesIn is what reached the upstream in all, below TLS. It ends the proxy: a
// connection is accounted for at its end.
func (s *stage) bytesIn(t *testing.T) int {
	t.Helper()
	s.stop()
	sum := 0
	err := s.up.Ledger().Wait(within(t, 30*time.Second), func([]upstream.Dispatch) bool {
		sum = 0
		for _, c := range s.up.Ledger().Connections() {
			if c.Closed.IsZero() {
				return false
			}
			sum += int(c.BytesIn)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// describe shows dispatches in a test's message, one a line.
func describe(ds []upstream.Dispatch) string {
	var b strings.Builder
	for _, d := range ds {
		fmt.Fprintf(&b, "\n  #%d %s connection %d, anchored %t (resolved %t), items %d of %d, %d bytes, turn %d, %s %d %s",
			d.Seq, d.Transport, d.Connection, d.Anchor != "", d.AnchorResolved, d.InputItems, d.LogicalItems, d.WireBytes, d.Turn,
			d.Outcome, d.Status, d.Code)
	}
	return b.String()
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
