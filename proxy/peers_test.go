package proxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/route"
	"github.com/causeway-dev/causeway/test/upstream"
)

var peerKey = base64.StdEncoding.EncodeToString([]byte("CANARY-peer-key-of-32-bytes-long"))

// fleet stands in for Kubernetes: it tells all replicas of each other.
type fleet struct {
	mu      sync.Mutex // guards all below
	ready   map[string]string
	known   map[string]string // also those that are not ready
	changed map[string]func(map[string]string)
}

func newFleet() *fleet {
	return &fleet{ready: map[string]string{}, known: map[string]string{}, changed: map[string]func(map[string]string){}}
}

func (f *fleet) replicas(pod string) *Replicas {
	return &Replicas{Pod: pod, Follow: func(ctx context.Context, own string, changed func(map[string]string)) error {
		f.mu.Lock()
		f.ready[pod], f.known[pod] = own, own
		f.mu.Unlock()
		f.listen(ctx, pod, changed)
		return nil
	}}
}

// follow tells a pod of another fleet who is ready here.
func (f *fleet) follow(name string) func(ctx context.Context, changed func([]route.Member)) error {
	return func(ctx context.Context, changed func([]route.Member)) error {
		f.listen(ctx, name, func(addresses map[string]string) { changed(membersOf(addresses)) })
		return nil
	}
}

// listen tells of every change until ctx ends.
func (f *fleet) listen(ctx context.Context, name string, changed func(map[string]string)) {
	f.mu.Lock()
	f.changed[name] = changed
	f.tell()
	f.mu.Unlock()
	<-ctx.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.changed, name)
}

// tell is called under mu.
func (f *fleet) tell() {
	for _, changed := range f.changed {
		changed(maps.Clone(f.ready))
	}
}

// set says that a pod is ready, or no longer.
func (f *fleet) set(pod string, ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ready, pod)
	if ready {
		f.ready[pod] = f.known[pod]
	}
	f.tell()
}

func (f *fleet) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.ready)
}

// trio is three proxies in front of one upstream.
type trio struct {
	t     *testing.T
	up    *upstream.Server
	fleet *fleet
	all   [3]*proxied
}

func newTrio(t *testing.T, script upstream.Script) *trio {
	t.Helper()
	r := &trio{t: t, fleet: newFleet(),
		up: upstream.Start(t, upstream.Options{Accounts: map[string]string{secretKey: "first"}, Script: script})}
	for i := range r.all {
		r.all[i] = launchWith(t, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60}, nil, func(o *Options) {
			o.PeerListen, o.Replicas = "127.0.0.1:0", r.fleet.replicas(fmt.Sprint("pod-", i))
		})
		r.all[i].peerKeys = []string{peerKey}
		r.all[i].configure(t, r.up.URL+"/v1", bundle.Drain{PodGraceSeconds: 60}, firstKey)
	}
	for _, p := range r.all {
		p.awaitConfiguration(t)
	}
	for r.fleet.size() < len(r.all) {
		runtime.Gosched()
	}
	return r
}

// turn sends one turn of a thread to a replica and returns the answer's text.
func (r *trio) turn(ctx context.Context, replica int, thread, body string, header ...string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.all[replica].data+"/v1/responses", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+firstKey)
	req.Header.Set("Thread-Id", thread)
	req.Header.Set("Session-Id", thread)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := r.all[replica].client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return res.StatusCode, string(raw), err
}

// talk is a conversation whose turns resend all of it.
type talk struct{ items []json.RawMessage }

func (c *talk) next(text string) string {
	item, _ := json.Marshal(map[string]any{"type": "message", "role": "user",
		"content": []map[string]string{{"type": "input_text", "text": text}}})
	c.items = append(c.items, item)
	body, _ := json.Marshal(map[string]any{"model": "gpt-5.5", "input": c.items, "stream": true, "store": false})
	return string(body)
}

// heard adds the output of an answer to the conversation.
func (c *talk) heard(stream string) {
	for line := range strings.SplitSeq(stream, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok && gjson.Get(data, "type").Str == "response.output_item.done" {
			c.items = append(c.items, json.RawMessage(gjson.Get(data, "item").Raw))
		}
	}
}

func (r *trio) must(replica int, thread string, c *talk, text string) {
	r.t.Helper()
	status, answer, err := r.turn(r.t.Context(), replica, thread, c.next(text))
	if err != nil || status != http.StatusOK || strings.Count(answer, "event: response.completed\n") != 1 {
		r.t.Fatalf("%d %.300q %v", status, answer, err)
	}
	c.heard(answer)
}

// sockets are the connections that the turns of each thread ran on.
func (r *trio) sockets() map[string]map[int64]bool {
	sockets := map[string]map[int64]bool{}
	for _, d := range r.up.Ledger().Dispatches() {
		if sockets[d.Session] == nil {
			sockets[d.Session] = map[int64]bool{}
		}
		sockets[d.Session][d.Connection] = true
	}
	return sockets
}

func TestScenario103_AConversationStaysOnOneSocketWhicheverReplicaItComesTo(t *testing.T) {
	r := newTrio(t, upstream.Script{})
	const threads, turns = 8, 6
	var tasks sync.WaitGroup
	for n := range threads {
		tasks.Go(func() {
			var c talk
			for turn := range turns {
				status, answer, err := r.turn(t.Context(), (n+turn)%3, fmt.Sprint("thread-", n), c.next(fmt.Sprint("turn ", turn)))
				if err != nil || status != http.StatusOK || !strings.Contains(answer, "event: response.completed\n") {
					t.Errorf("thread %d turn %d: %d %.300q %v", n, turn, status, answer, err)
					return
				}
				c.heard(answer)
			}
		})
	}
	tasks.Wait()
	dispatches := r.up.Ledger().Dispatches()
	if len(dispatches) != threads*turns || len(r.up.Ledger().Duplicates()) > 0 {
		t.Errorf("%d dispatches, %d of them twice", len(dispatches), len(r.up.Ledger().Duplicates()))
	}
	for thread, sockets := range r.sockets() {
		if len(sockets) != 1 {
			t.Errorf("%s ran on %d sockets", thread, len(sockets))
		}
	}
	anchored := 0
	for _, d := range dispatches {
		if d.Anchor != "" {
			anchored++
		}
	}
	if anchored != threads*(turns-1) {
		t.Errorf("%d turns were anchored, want all but the first of each thread", anchored)
	}
	forwards := 0
	for _, p := range r.all {
		forwards += strings.Count(p.log.String(), "Forwarded a turn")
	}
	if forwards < threads*turns/3 {
		t.Errorf("only %d turns were forwarded", forwards)
	}
}

func TestScenario107_WhatAClientSaysOfPeersIsNotHeard(t *testing.T) {
	r := newTrio(t, upstream.Script{})
	var c talk
	status, answer, err := r.turn(t.Context(), 0, "thread", c.next("hi"), "X-Causeway-Peer-Envelope", "e30", "X-Causeway-Peer-Signature", "x.y",
		"X-Causeway-Peer-Outcome", "rejected")
	if err != nil || status != http.StatusOK || !strings.Contains(answer, "response.completed") {
		t.Fatalf("%d %.300q %v", status, answer, err)
	}
	for _, d := range r.up.Ledger().Dispatches() {
		for name := range d.Headers {
			if strings.HasPrefix(name, "x-causeway-") {
				t.Errorf("%s reached the upstream", name)
			}
		}
	}
	// The data port is no peer port, and the peer port no data port.
	for i, p := range r.all {
		if got := p.status(t, p.data+"/peer/v1/turn", firstKey); got != http.StatusNotFound {
			t.Errorf("data port: %d", got)
		}
		if got := p.status(t, "http://"+r.fleet.known[fmt.Sprint("pod-", i)]+"/v1/models", firstKey); got != http.StatusNotFound {
			t.Errorf("peer port: %d", got)
		}
	}
}

// owner finds the replica that holds a thread's session.
func (r *trio) owner() int {
	r.t.Helper()
	for i, p := range r.all {
		if strings.Contains(p.scrape(r.t), `causeway_proxy_upstream_attempts_total{`) {
			return i
		}
	}
	r.t.Fatal("nobody has the session")
	return 0
}

func (p *proxied) scrape(t *testing.T) string {
	t.Helper()
	res, err := p.open(t, http.MethodGet, p.ops+"/metrics", "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A replica that is gone costs no turn: the next one in line serves it, once.
func TestScenario105_TheOwnerIsGone(t *testing.T) {
	r := newTrio(t, upstream.Script{})
	var c talk
	r.must(0, "thread", &c, "one")
	owner := r.owner()
	r.all[owner].stop()
	close(r.all[owner].hurry)
	if err := <-r.all[owner].ended; err != nil {
		t.Fatal(err)
	}
	r.all[owner].ended <- nil
	left := []int{(owner + 1) % 3, (owner + 2) % 3}
	// The table still lists it.
	for i, text := range []string{"two", "three", "four", "five"} {
		r.must(left[i%2], "thread", &c, text)
	}
	dispatches := r.up.Ledger().Dispatches()
	if len(dispatches) != 5 || len(r.up.Ledger().Duplicates()) > 0 {
		t.Errorf("%d dispatches for 5 turns", len(dispatches))
	}
	for _, d := range dispatches[1:] {
		if d.Connection != dispatches[1].Connection {
			t.Errorf("the two that are left do not agree who comes after the owner: socket %d, then %d", dispatches[1].Connection, d.Connection)
		}
	}
	r.fleet.set(fmt.Sprint("pod-", owner), false)
	for i, text := range []string{"six", "seven"} {
		r.must(left[i%2], "thread", &c, text)
	}
	dispatches = r.up.Ledger().Dispatches()
	if a, b := dispatches[5].Connection, dispatches[6].Connection; a != b {
		t.Errorf("the two that are left do not agree: sockets %d and %d", a, b)
	}
}

// When the client of a forwarded turn leaves, the upstream's work ends.
func TestClientGoneEndsAForwardedTurn(t *testing.T) {
	r := newTrio(t, upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{InputContains: "endless"},
		Fault: &upstream.Fault{At: upstream.AtAfterCreated, Action: upstream.ActStall}}}})
	var c talk
	r.must(0, "thread", &c, "one")
	other := (r.owner() + 1) % 3
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.all[other].data+"/v1/responses", strings.NewReader(c.next("endless")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+firstKey)
	req.Header.Set("Thread-Id", "thread")
	req.Header.Set("Session-Id", "thread")
	res, err := r.all[other].client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || line != "event: response.created\n" {
		t.Fatal(line, err)
	}
	leave()
	wait, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := r.up.Ledger().WaitEnded(wait, 2); err != nil {
		t.Fatal(err)
	}
	if d := r.up.Ledger().Dispatches()[1]; d.Outcome == upstream.OutcomeCompleted {
		t.Errorf("%+v", d)
	}
}

// A replica that stops finishes the turns it took for others, and takes no more.
func TestScenario108_TheOwnerStopsWhileItServesForAnother(t *testing.T) {
	r := newTrio(t, upstream.Script{Rules: []upstream.Rule{{Match: upstream.Match{InputContains: "slow"},
		Respond: &upstream.Respond{Text: "one two three four five six seven eight", EventDelay: upstream.Duration(100 * time.Millisecond)}}}})
	var c talk
	r.must(0, "thread", &c, "one")
	owner := r.owner()
	other, third := (owner+1)%3, (owner+2)%3
	slow := c.next("slow")
	c.items = c.items[:len(c.items)-1] // the answer is not awaited
	type result struct {
		status int
		answer string
		err    error
	}
	done := make(chan result, 1)
	go func() {
		status, answer, err := r.turn(t.Context(), other, "thread", slow)
		done <- result{status, answer, err}
	}()
	for len(r.up.Ledger().Dispatches()) < 2 {
		runtime.Gosched()
	}
	r.all[owner].stop()
	r.all[owner].awaitUnready(t)
	r.must(third, "thread", &c, "two")
	got := <-done
	if got.err != nil || got.status != http.StatusOK || strings.Count(got.answer, "event: response.completed\n") != 1 ||
		strings.Contains(got.answer, "response.failed") {
		t.Errorf("%d %.300q %v", got.status, got.answer, got.err)
	}
	if err := <-r.all[owner].ended; err != nil {
		t.Error(err)
	}
	r.all[owner].ended <- nil
	if n := len(r.up.Ledger().Dispatches()); n != 3 || len(r.up.Ledger().Duplicates()) > 0 {
		t.Errorf("%d dispatches for 3 turns", n)
	}
}

// Without Kubernetes, or with an operator of before, there is no port for peers.
func TestAProxyAloneOpensNoPortForPeers(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"no pod":             {},
		"no address":         {"POD_NAME": "chat-blue-0", "POD_NAMESPACE": "default", "POD_UID": "1", "PEER_SERVICE": "chat-blue"},
		"no service account": {"POD_NAME": "chat-blue-0", "POD_NAMESPACE": "default", "POD_UID": "1", "PEER_SERVICE": "chat-blue", "POD_IP": "127.0.0.1"},
	} {
		p, err := openPeers(t.Context(), Options{PeerListen: "127.0.0.1:0", Getenv: func(n string) string { return env[n] }})
		if p != nil || err != nil {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

func TestAPortForPeersThatCannotBeOpened(t *testing.T) {
	taken := launch(t, http.NotFoundHandler(), bundle.Drain{PodGraceSeconds: 60}, nil)
	err := Run(t.Context(), Options{ConfigDir: taken.dir, Listen: "127.0.0.1:0", OpsListen: "127.0.0.1:0",
		PeerListen: strings.TrimPrefix(taken.data, "http://"), Replicas: newFleet().replicas("pod-0"), Logger: taken.logger})
	if err == nil || !strings.Contains(err.Error(), "--peer-listen") {
		t.Error(err)
	}
}
