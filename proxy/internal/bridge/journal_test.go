package bridge

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/test/upstream"
)

// T24: one key at once from twenty clients' retries: one dispatch, whether or not
// the client names a session. The upstream never sees the key.
func TestT24_TwentyAtOnceAreOneDispatch(t *testing.T) {
	for name, headers := range map[string][]string{"in a session": thread("t24"), "in none": nil} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{script: upstream.Script{Rules: []upstream.Rule{{Respond: &upstream.Respond{Text: "once"},
				Fault: &upstream.Fault{At: upstream.AtAfterCreated, Action: upstream.ActHold}}}}})
			headers := append([]string{"Idempotency-Key", "k-1"}, headers...)
			served := make(chan *reply, 20)
			var clients sync.WaitGroup
			for range 20 {
				clients.Go(func() { served <- r.do(call{header: headers, body: hello}) })
			}
			counts := map[string]int{}
			for range 19 {
				counts[(<-served).code()]++
			}
			r.up.Release()
			clients.Wait()
			first := <-served
			r.served(first)
			if counts[failure.JournalInProgress] != 19 {
				t.Fatalf("%v", counts)
			}
			again := r.do(call{header: headers, body: hello})
			if r.served(again); again.text() != first.text() {
				t.Fatalf("%q, not %q", again.text(), first.text())
			}
			other := r.do(call{header: headers, body: strings.Replace(hello, "hello", "other", 1)})
			if other.status != http.StatusConflict || other.code() != failure.JournalConflict {
				t.Fatalf("%d %s", other.status, other.body)
			}
			if d := r.dispatches(1)[0]; d.Headers["idempotency-key"] != "" {
				t.Errorf("the key went up: %v", d.Headers)
			}
		})
	}
}

func TestAnIdempotencyKeyIsJudged(t *testing.T) {
	r := newRig(t, rigOptions{})
	for _, key := range []string{strings.Repeat("k", 256), "two words", "ключ"} {
		out := r.do(call{header: []string{"Idempotency-Key", key}, body: hello})
		if out.status != http.StatusBadRequest || gjson.Get(out.body, "error.param").Str != "idempotency-key" {
			t.Errorf("%.20q: %d %s", key, out.status, out.body)
		}
	}
}
