package bridge

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/causeway-dev/causeway/api/bundle"
)

// B75: many conversations that send all they have with each turn. What is kept of
// them is digests: it does not grow with what was said.
func TestB75_CumulativeInputsAreNotKept(t *testing.T) {
	const conversations, turns, piece = 12, 10, 128 << 10
	up := newBare(t, shortAnswer)
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT})
	r.through(up.url)
	said := strings.Repeat("x", piece)
	var items []string
	var half, full int64
	for n := range turns {
		items = append(items, fmt.Sprintf(`{"role":"user","content":"%d %s"}`, n, said))
		body := `{"model":"m","stream":true,"store":false,"input":[` + strings.Join(items, ",") + `]}`
		var all sync.WaitGroup
		for c := range conversations {
			all.Go(func() {
				if out := r.do(call{header: thread(fmt.Sprint("b75-", c)), body: body}); !out.done() {
					t.Errorf("%d %s %v", out.status, out.body, out.err)
				}
			})
		}
		all.Wait()
		switch n + 1 {
		case turns / 2:
			half = heap()
		case turns:
			full = heap()
		}
	}
	sent := int64(conversations * piece * turns / 2) // since the first look, not counting what was sent again
	t.Logf("%d KiB in use after %d turns, %d KiB after %d; %d KiB were said meanwhile", half>>10, turns/2, full>>10, turns, sent>>10)
	if full-half > sent/4 {
		t.Errorf("%d of %d bytes that were said since are still held", full-half, sent)
	}
}

// B77: clients that never read cost what is bounded, and end; the others are served.
func TestB77_ClientsThatNeverRead(t *testing.T) {
	const stalled, size, count = 12, 64 << 10, 24 << 4 // 24 MiB each
	delta := fmt.Sprintf(`{"type":"response.output_text.delta","delta":"%s"}`, strings.Repeat("x", size))
	up := newBare(t, func(ws *websocket.Conn, request int64) error {
		if request < 1000 {
			return shortAnswer(ws, request)
		}
		created, completed := bareTurn()
		if err := say(ws, created); err != nil {
			return err
		}
		for range count {
			if err := say(ws, delta); err != nil {
				return err
			}
		}
		return say(ws, completed)
	})
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT})
	r.through(up.url)
	long := strings.Replace(hello, "hello", strings.Repeat("y", 2000), 1)
	before := heap()
	for n := range stalled {
		r.stalled(thread(fmt.Sprint("b77-", n)), long)
	}
	for range 20 {
		r.served(r.do(call{header: thread("b77-reads"), body: hello}))
	}
	until(t, "the turns of those who do not read are over", func() bool { return r.bridge.Sessions().Active == 0 })
	held := heap() - before
	t.Logf("%d KiB held for %d clients, of which %d have a handler", held>>10, stalled, r.serving.Load())
	if most := int64(stalled) * (9 << 20); held > most {
		t.Errorf("%d bytes are held for %d clients, at most %d were to be", held, stalled, most)
	}
	r.served(r.do(call{header: thread("b77-reads"), body: hello}))
}

// B108: what changes of pools and policies leaves behind is nothing.
func TestB108_ChurnOfAccountsLeavesNothing(t *testing.T) {
	const changes = 1500
	up := newBare(t, shortAnswer)
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, maxSessions: 20})
	r.through(up.url)
	churn := func(from, to int) {
		for n := from; n < to; n++ {
			r.change(func(b *bundle.Bundle, c *bundle.Credentials) {
				name := fmt.Sprint("account-", n)
				b.Pool.Accounts = []bundle.Account{{Name: name, Kind: bundle.KindAPIKey, State: bundle.AccountEnabled, Weight: 100}}
				c.Accounts = map[string]bundle.Credential{name: {APIKey: fmt.Sprint("sk-canary-", n)}}
				b.Circuit.Deadlines.ConnectSeconds = 5 + n%2 // another dialer each time
			})
			header := thread(fmt.Sprint("b108-", n))
			if n%2 == 0 {
				header = nil // over HTTP
			}
			r.served(r.do(call{header: header, body: hello}))
		}
	}
	churn(0, 100)
	descriptors, goroutines := openFiles(t), runtime.NumGoroutine()
	churn(100, changes)
	// What remains belongs to the 20 sessions and the newest dialer.
	until(t, fmt.Sprintf("as few descriptors and goroutines as before (%d, %d)", descriptors, goroutines), func() bool {
		return openFiles(t) <= descriptors+10 && runtime.NumGoroutine() <= goroutines+20
	})
	if n := up.sockets.Load(); n > 20 {
		t.Errorf("%d sockets for 20 sessions", n)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("descriptors cannot be counted here: ", err)
	}
	return len(entries)
}

// B63: a frame that the upstream does not take is said once, as a 400.
func TestB63_AFrameTooLargeForTheUpstreamIsA400(t *testing.T) {
	up := newBare(t, func(ws *websocket.Conn, size int64) error {
		if size < 1<<20 {
			return shortAnswer(ws, size)
		}
		return ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseMessageTooBig, ""), time.Now().Add(time.Second))
	})
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, hold: time.Minute})
	r.through(up.url)
	large := strings.Replace(hello, "hello", strings.Repeat("z", 2<<20), 1)
	out := r.do(call{header: thread("b63"), body: large})
	if out.status != http.StatusBadRequest {
		t.Errorf("%d %s %s", out.status, out.body, out.names())
	}
	r.served(r.do(call{header: thread("b63"), body: hello})) // its circuit is closed
	r.unpunished()
}
