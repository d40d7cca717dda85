package bridge

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// B08: an upstream that takes connections and says nothing holds a session no
// longer than the upgrade may take; nothing was sent, and the next turn is served.
func TestB08_MuteAfterAccept(t *testing.T) {
	t.Parallel()
	mute, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	d := brief
	d.ConnectSeconds, d.TLSSeconds, d.ResponseHeaderSeconds = 1, 1, 1
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: d, hold: time.Minute})
	good := r.runtime.Load().Bundle.Pool.Provider
	r.through("http://" + mute.Addr().String())
	out := r.do(call{header: thread("b08"), body: hello})
	r.refused(out, http.StatusServiceUnavailable, "upstream_connect", "not_sent")
	r.change(func(b *bundle.Bundle, _ *bundle.Credentials) { b.Pool.Provider = good })
	r.served(r.do(call{header: thread("b08"), body: hello}))
	r.dispatches(1)
}

// B08 over HTTP: the request was sent, so that it is not sent again.
func TestB08_MuteAfterTheRequest(t *testing.T) {
	t.Parallel()
	d := brief
	d.ResponseHeaderSeconds = 1
	r := newRig(t, rigOptions{deadlines: d, hold: time.Minute, script: upstream.Script{Rules: []upstream.Rule{{Repeat: 1, Fault: &upstream.Fault{Action: upstream.ActMute}}}}})
	out := r.do(call{body: hello})
	if out.status != http.StatusGatewayTimeout && out.status != http.StatusBadGateway {
		t.Errorf("%d %s", out.status, out.body)
	}
	if out.header.Get("Retry-After") != "" {
		t.Error("a client is asked to repeat what may have run")
	}
	r.dispatches(1)
	r.served(r.do(call{body: hello}))
}

// B10: a long thought shows nothing but pings, and is let go on.
func TestB10_PingsKeepALongThoughtAlive(t *testing.T) {
	t.Parallel()
	up := newBare(t, func(ws *websocket.Conn, _ int64) error {
		created, completed := bareTurn()
		if err := say(ws, created); err != nil {
			return err
		}
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for range 10 { // three times as long as a stream may be idle
			<-tick.C
			if err := ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)); err != nil {
				return err
			}
		}
		return say(ws, completed)
	})
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: brief})
	r.through(up.url)
	r.served(r.do(call{header: thread("b10"), body: hello}))
	r.unpunished()
}

// T68: an event now and then, each in time, is enough; one that comes too late is
// not.
func TestT68_AnEventInTimeKeepsAStreamAlive(t *testing.T) {
	for name, tt := range map[string]struct {
		pause time.Duration
		alive bool
	}{"in time": {600 * time.Millisecond, true}, "too late": {2500 * time.Millisecond, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: brief, script: upstream.Script{Rules: []upstream.Rule{
				{Respond: &upstream.Respond{Text: "a b", EventDelay: upstream.Duration(tt.pause)}}}}})
			out := r.do(call{header: thread("t68"), body: hello})
			if out.done() != tt.alive {
				t.Errorf("%s %s", out.names(), out.body)
			}
			if !tt.alive && (out.code() != "stream_idle_timeout" || terminals(out) != 1) {
				t.Errorf("%s", out.names())
			}
		})
	}
}

// T69: a connection that lost its other end in mid-stream: neither events nor pongs.
func TestT69_HalfOpenInMidStream(t *testing.T) {
	t.Parallel()
	lost := make(chan struct{})
	up := newBare(t, func(ws *websocket.Conn, _ int64) error {
		created, _ := bareTurn()
		if err := say(ws, created, `{"type":"response.output_text.delta","delta":"a"}`); err != nil {
			return err
		}
		<-lost // nothing is read and nothing answered any more
		return net.ErrClosed
	})
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: brief})
	r.through(up.url)
	out := r.do(call{header: thread("t69"), body: hello})
	close(lost)
	if out.code() != "stream_idle_timeout" || terminals(out) != 1 {
		t.Errorf("%s %s", out.names(), out.body)
	}
	r.closed()
}

// T70: one event may be as large as a generated image, and no larger.
func TestT70_TheSizeOfAnEventIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		size  int
		alive bool
	}{"an image": {40 << 20, true}, "too large": {65 << 20, false}} {
		t.Run(name, func(t *testing.T) {
			event := `{"type":"response.image_generation_call.partial_image","partial_image_b64":"` + strings.Repeat("A", tt.size) + `"}`
			up := newBare(t, func(ws *websocket.Conn, _ int64) error {
				created, completed := bareTurn()
				return say(ws, created, event, completed)
			})
			r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT})
			r.through(up.url)
			out := r.do(call{header: thread("t70"), body: strings.Replace(hello, `"stream"`, `"tools":[{"type":"image_generation"}],"tool_choice":{"type":"image_generation"},"stream"`, 1)})
			if out.done() != tt.alive {
				t.Fatalf("%d %.300s %s %v", out.status, out.body, out.names(), out.err)
			}
			if tt.alive && (len(out.events) != 3 || len(out.events[1].data) != len(event)) {
				t.Error("the image did not come through whole")
			}
			if !tt.alive && terminals(out) != 1 {
				t.Errorf("%s", out.names())
			}
		})
	}
}
