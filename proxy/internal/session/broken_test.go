package session

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/config"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

// brittle breaks where it is told to.
type brittle struct {
	*counts
	inJudge bool
}

func (b *brittle) AttemptDone(t Transport, row string) {
	if b.inJudge {
		panic("quotes sk-canary")
	}
	b.counts.AttemptDone(t, row)
}

type brittleConn struct {
	*fakeConn
	inSend, inReceive bool
}

func (c *brittleConn) Send(r upstream.Request) error {
	if c.inSend {
		panic("send")
	}
	return c.fakeConn.Send(r)
}

func (c *brittleConn) Receive() (upstream.Event, error) {
	if c.inReceive {
		panic("receive")
	}
	return c.fakeConn.Receive()
}

type brittleDialer struct {
	*fakeDialer
	inDial, inSend, inReceive bool
}

func (d *brittleDialer) WebSocket(ctx context.Context, t upstream.Target) (upstream.Conn, error) {
	if d.inDial {
		panic("dial")
	}
	conn, err := d.fakeDialer.WebSocket(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("brittle: %w", err)
	}
	return &brittleConn{conn.(*fakeConn), d.inSend, d.inReceive}, nil
}

// T73: a panic ends its own session alone, with an error for each of its turns, and
// leaves nothing behind; the next turn of the key begins anew.
func TestT73_APanicEndsOneSessionOnly(t *testing.T) {
	for name, place := range map[string]func(*brittle, *brittleDialer){
		"in the actor": func(b *brittle, _ *brittleDialer) { b.inJudge = true },
		"in a dial":    func(_ *brittle, d *brittleDialer) { d.inDial = true },
		"in a write":   func(_ *brittle, d *brittleDialer) { d.inSend = true },
		"in a reader":  func(_ *brittle, d *brittleDialer) { d.inReceive = true },
	} {
		t.Run(name, func(t *testing.T) {
			var watch *brittle
			var dialer *brittleDialer
			o := setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a"}, firstEvent: 120}
			o.services = func(s *Services) {
				watch = &brittle{counts: s.Observer.(*counts)}
				plain := s.Dialer(nil).(*fakeDialer)
				dialer = &brittleDialer{fakeDialer: plain}
				s.Observer, s.Dialer = watch, func(*config.Runtime) Dialer { return dialer }
			}
			inBubbleOf(t, o, func(b *bench) {
				other := b.ask("other", body)
				b.in(created("r9"))
				otherConn := b.newest()
				place(watch, dialer)
				a := b.ask("t", body)
				if name == "in the actor" {
					b.in(completed("r1"))
				}
				_, ended, code := a.take()
				if !ended || code != failure.InternalError && code != failure.StreamIncomplete {
					t.Fatalf("ended %v with %q", ended, code)
				}
				a.detach()
				*watch, dialer.inDial, dialer.inSend, dialer.inReceive = brittle{counts: watch.counts}, false, false, false
				again := b.ask("t", body)
				b.in(created("r2"), completed("r2"))
				expect(t, again, "created completed", true, "")
				otherConn.play(delta("x"), completed("r9"))
				synctest.Wait()
				expect(t, other, "created output_text.delta completed", true, "")
				pass(time.Second)
				if n := b.registry.Counts(); n.Active != 0 || b.inflight() != 0 {
					t.Fatalf("%+v, %d leases", n, b.inflight())
				}
			})
		})
	}
}

// T70: a text turn has no reason for an event of more than 16 MiB; an image has.
func TestT70_AnEventIsAsLargeAsItsTurnNeeds(t *testing.T) {
	large := strings.Repeat("x", maxTextEvent)
	for name, tc := range map[string]struct {
		body, event, code string
	}{
		"text":           {body, delta(large), failure.UpstreamProtocol},
		"an image":       {body, `{"type":"response.output_item.done","item":{"type":"image_generation_call","result":"` + large + `"}}`, ""},
		"a turn to draw": {`{"model":"m","tool_choice":{"type":"image_generation"},"input":[{"role":"user","content":"x"}]}`, delta(large), ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
				a := b.ask("t", tc.body)
				b.in(created("r1"), text, tc.event, completed("r1"))
				if code := a.code(); code != tc.code {
					t.Fatalf("%q, want %q", code, tc.code)
				}
			})
		})
	}
}
