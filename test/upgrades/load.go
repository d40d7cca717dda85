package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// modelQuick is the model of turns with a short answer.
const modelQuick = "upgrades-turn"

// streamLengths is how many lengths streams have, so that some of every age are
// there at any time.
const streamLengths = 3

// slow is the model of streams of one length, deltas how many events they have.
func slow(part int) string         { return fmt.Sprint("upgrades-stream-", part) }
func deltas(seconds, part int) int { return seconds * part / streamLengths }

// threadTurns is how long a conversation gets; each turn resends all before it.
const threadTurns = 5

// turnTime bounds a quick turn: a minute on a proxy that stands still, the longest hold
// after it, and what the answer takes.
const turnTime = 2 * time.Minute

// outcome is what came of one turn.
type outcome struct {
	stream       bool
	began, first time.Time // first = the head of the answer
	ended        time.Time
	failure      string // empty = all went well
}

// load is what clients do.
type load struct {
	settings
	clients []*http.Client
	id      string // tells the conversations of this run from those before

	mu   sync.Mutex // guards done and open
	done []outcome
	open int
}

func newLoad(s settings) *load {
	l := &load{settings: s, id: rand.Text()[:6]}
	for _, source := range append([]string{}, s.sources...) {
		l.clients = append(l.clients, clientFrom(source))
	}
	if len(l.clients) == 0 {
		l.clients = append(l.clients, clientFrom(""))
	}
	return l
}

// clientFrom calls from one address, so that a Service that keeps clients of one
// address on one pod spreads them all the same.
func clientFrom(source string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: dialerFrom(source).DialContext, MaxIdleConnsPerHost: 256}}
}

// dialerFrom calls from an address; empty = any.
func dialerFrom(source string) *net.Dialer {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	if source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	return dialer
}

func (l *load) run(ctx context.Context) {
	var tasks sync.WaitGroup
	for n := range l.streams {
		tasks.Go(func() {
			if pause(ctx, time.Duration(n)*10*time.Second/time.Duration(l.streams)) != nil {
				return
			}
			for i := 0; ctx.Err() == nil; i++ {
				l.stream(ctx, n, i)
			}
		})
	}
	tasks.Go(func() {
		every := time.NewTicker(time.Duration(float64(time.Second) / l.rate))
		defer every.Stop()
		threads := make(chan *thread, 1024)
		for n := 0; ; n++ {
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
			var t *thread
			select {
			case t = <-threads:
			default:
				t = &thread{name: fmt.Sprintf("%s-thread-%d", l.id, n)}
				if n%socketEvery == 0 {
					t.socket = &socket{source: l.source(n)}
				}
			}
			tasks.Go(func() {
				if l.turn(ctx, t, n) && len(t.items) < 2*threadTurns {
					threads <- t
				} else if t.socket != nil {
					t.socket.close()
				}
			})
		}
	})
	tasks.Wait()
}

func (l *load) note(o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, o)
}

func (l *load) count(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open += n
}

// stream holds one stream to its end; when the load ends it may be cut.
func (l *load) stream(ctx context.Context, n, i int) {
	l.count(1)
	defer l.count(-1)
	name := fmt.Sprintf("%s-stream-%d-%d", l.id, n, i)
	part := (n+i)%streamLengths + 1
	o := outcome{stream: true, began: time.Now()}
	events, failure := l.ask(ctx, l.clients[n%len(l.clients)], name, slow(part), []json.RawMessage{message("user", name)}, &o, nil)
	if want := deltas(l.streamSeconds, part); failure == "" && events != want {
		failure = fmt.Sprintf("%d events of %d", events, want)
	}
	if ctx.Err() != nil {
		return
	}
	if o.failure = failure; failure != "" {
		o.failure = name + ": " + failure
		_ = pause(ctx, time.Second) // what is broken for good is not to be asked a thousand times a second
	}
	l.note(o)
}

// thread is one conversation.
type thread struct {
	name   string
	items  []json.RawMessage
	socket *socket // nil = it goes over HTTP
}

// source is the address that the n-th client calls from; empty = any.
func (l *load) source(n int) string {
	if len(l.sources) == 0 {
		return ""
	}
	return l.sources[n%len(l.sources)]
}

func (l *load) turn(ctx context.Context, t *thread, n int) bool {
	t.items = append(t.items, message("user", fmt.Sprintf("%s says %d", t.name, len(t.items))))
	bounded, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	o := outcome{began: time.Now()}
	var failure string
	if t.socket != nil {
		failure = t.socket.ask(bounded, l, t, &o)
	} else {
		_, failure = l.ask(bounded, l.clients[n%len(l.clients)], t.name, modelQuick, t.items, &o, func(item json.RawMessage) { t.items = append(t.items, item) })
	}
	if ctx.Err() != nil {
		return false
	}
	if o.failure = failure; failure != "" {
		o.failure = t.name + ": " + failure
	}
	l.note(o)
	return failure == ""
}

// ask sends a turn and reads its answer; it returns the deltas and what went wrong.
func (l *load) ask(ctx context.Context, client *http.Client, session, model string, items []json.RawMessage, o *outcome,
	heard func(json.RawMessage)) (deltas int, failure string) {
	defer func() { o.ended = time.Now() }()
	body, err := json.Marshal(map[string]any{"model": model, "input": items, "stream": true, "store": false})
	if err != nil {
		return 0, err.Error()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.proxy+"/v1/responses", bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	for name, value := range map[string]string{"Authorization": "Bearer " + os.Getenv("CAUSEWAY_CLIENT_KEY"),
		"Content-Type": "application/json", "Session-Id": session, "Thread-Id": session} {
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	o.first = time.Now()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	var other strings.Builder
	completed := 0
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		switch kind := gjson.Get(data, "type").Str; {
		case !isData:
			if res.StatusCode != http.StatusOK && other.Len() < 300 {
				other.WriteString(lines.Text())
			}
		case kind == "response.output_text.delta":
			deltas++
		case kind == "response.output_item.done" && heard != nil:
			heard(json.RawMessage(gjson.Get(data, "item").Raw))
		case kind == "response.completed":
			completed++
		case kind == "response.failed" || kind == "error":
			other.WriteString(data[:min(len(data), 300)])
		}
	}
	switch err := lines.Err(); {
	case res.StatusCode != http.StatusOK:
		return deltas, fmt.Sprintf("%s %s", res.Status, other.String())
	case err != nil:
		return deltas, fmt.Sprintf("cut after %d deltas: %v %s", deltas, err, other.String())
	case completed != 1:
		return deltas, fmt.Sprintf("%d terminal events after %d deltas %s", completed, deltas, other.String())
	}
	return deltas, ""
}

func message(role, text string) json.RawMessage {
	raw, _ := json.Marshal(map[string]any{"type": "message", "role": role, "content": []map[string]string{{"type": "input_text", "text": text}}})
	return raw
}
