package bridge

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/test/upstream"
)

// holding is an answer that stops after some of its events until it is released.
func holding(text string) upstream.Rule {
	return upstream.Rule{Match: upstream.Match{InputContains: text}, Respond: &upstream.Respond{Text: "a b c d"},
		Fault: &upstream.Fault{At: upstream.AfterEvents(6), Action: upstream.ActHold}}
}

// B106: whatever wants room, takes sessions away or looks after them: a session with
// a turn is let finish it.
func TestB106_MaintenanceLeavesBusySessionsAlone(t *testing.T) {
	for name, disturb := range map[string]func(t *testing.T, r *rig){
		"room for another": func(t *testing.T, r *rig) {
			out := r.do(call{header: thread("other"), body: hello})
			r.refused(out, http.StatusServiceUnavailable, "draining", "capacity")
			if out.header.Get("Retry-After") == "" {
				t.Error("no hint when to come back")
			}
		},
		"it belongs elsewhere": func(_ *testing.T, r *rig) { r.bridge.Rebalance(func(affinity.Key) bool { return false }) },
		"its account is gone": func(_ *testing.T, r *rig) {
			r.change(func(b *bundle.Bundle, _ *bundle.Credentials) { b.Pool.Accounts[0].State = bundle.AccountDisabled })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, maxSessions: 1, script: upstream.Script{Rules: []upstream.Rule{holding("busy")}}})
			busy := r.running(call{header: thread("busy"), body: strings.Replace(hello, "hello", "busy", 1)}, "response.output_text.delta", 0)
			disturb(t, r)
			r.up.Release()
			r.served(busy())
			if d := r.ended(1)[0]; d.Outcome != upstream.OutcomeCompleted {
				t.Errorf("%+v", d)
			}
		})
	}
}

// B115: what cannot be used again makes no claim to a place: a burst of turns that
// name no session leaves the warm socket of one that does.
func TestB115_ABurstLeavesReusableSessions(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, maxSessions: 3})
	warm := r.conversation(thread("warm")...)
	r.served(warm.say("first"))
	for n := range 20 {
		r.served(r.do(call{body: strings.Replace(hello, "hello", fmt.Sprint("one-shot ", n), 1)}))
	}
	r.served(warm.say("second"))
	s := r.seen()
	first, last := s[0], s[len(s)-1]
	if first.conn != last.conn || !last.anchored {
		t.Errorf("the warm socket was given up: %+v, then %+v", first, last)
	}
}

// The same while places are short: of idle sessions the one that was used last stays.
func TestB115_TheLeastRecentlyUsedGoesFirst(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, maxSessions: 3, script: upstream.Script{Rules: []upstream.Rule{holding("busy")}}})
	old, warm := r.conversation(thread("old")...), r.conversation(thread("warm")...)
	r.served(old.say("first"))
	r.served(warm.say("first"))
	busy := r.running(call{header: thread("busy"), body: strings.Replace(hello, "hello", "busy", 1)}, "response.output_text.delta", 0)
	r.served(r.do(call{header: thread("new"), body: hello}))
	r.served(warm.say("second"))
	s := r.seen()
	if s[1].conn != s[len(s)-1].conn {
		t.Errorf("the warm socket was given up: %+v", s)
	}
	r.up.Release()
	r.served(busy())
}

// T73: a panic on the way to one client leaves neither its session nor a gauge
// behind, and the next turn of the conversation is served.
func TestT73_APanicLeavesNothingBehind(t *testing.T) {
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT})
	header := http.Header{"Thread-Id": {"t73"}, "Session-Id": {"t73"}, "Originator": {"codex_exec"}}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/responses", nil)
		if err != nil {
			t.Error(err)
			return
		}
		r.bridge.ServeTurn(&breaking{header: http.Header{}}, req, &Request{ID: "req-panic", Header: header, Body: []byte(hello), Stream: true, Runtime: r.runtime.Load()})
	}()
	until(t, "the turn is over", func() bool { return r.bridge.Sessions().Active == 0 })
	if text := r.scrape(); !strings.Contains(text, "causeway_proxy_streams_open 0") && !strings.Contains(text, "streams 0") {
		for _, line := range strings.Split(text, "\n") {
			if strings.Contains(line, "streams") {
				t.Error(line)
			}
		}
	}
	r.served(r.do(call{header: thread("t73"), body: hello}))
}

// breaking is a client's connection whose code has a fault.
type breaking struct{ header http.Header }

func (b *breaking) Header() http.Header       { return b.header }
func (b *breaking) WriteHeader(int)           {}
func (b *breaking) Write([]byte) (int, error) { panic(io.ErrShortWrite) }
