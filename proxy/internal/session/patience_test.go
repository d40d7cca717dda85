package session

import (
	"errors"
	"testing"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/upstream"
)

var errLiveness = &upstream.Ended{Cause: upstream.CauseLiveness, Err: errors.New("no pong")}

// A client that sends the same delta again after an anchor was lost without a
// word is told to wait, then, once, to send everything. Nothing of it is sent.
func TestB25_ADeltaWhoseOutcomeStaysUnknown(t *testing.T) {
	for name, lose := range map[string]func(b *bench){
		"silence": func(*bench) { pass(121 * time.Second) },
		"wedge": func(b *bench) {
			b.in(`{"type":"response.reasoning_summary_text.delta","response_id":"r1","delta":"hm"}`, errReset)
		},
		"cut": func(b *bench) { b.in(errReset) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
				b.anchored("t")
				first := b.ask("t", toolOutput)
				lose(b)
				if _, ended, code := first.take(); !ended || code == "" || code == "previous_response_not_found" {
					t.Fatalf("first: %v %q", ended, code)
				}
				dials, refusals := b.dialer.count(), 0
				for waited := time.Duration(0); refusals == 0; waited += 5 * time.Second {
					switch code := b.ask("t", toolOutput).code(); code {
					case "upstream_operation_status_unknown":
					case "previous_response_not_found":
						refusals++
					default:
						t.Fatalf("after %v: %q", waited, code)
					}
					if waited > time.Minute {
						t.Fatalf("no answer after %v", waited)
					}
					pass(5 * time.Second)
				}
				if b.dialer.count() != dials {
					t.Fatal("the delta was sent again")
				}
				whole := b.ask("t", conversation(1))
				frame := b.newest().frame()
				if name == "wedge" && hasAnchor(frame, "r0") {
					t.Fatalf("the anchor that wedged is used: %s", frame)
				}
				b.in(answer(1)...)
				expect(t, whole, "created output_item.done completed", true, "")
				if d := b.detail("t"); d.Anchor != "good" || d.Strikes != 0 {
					t.Fatalf("%+v", d.View)
				}
			})
		})
	}
}

func TestScenario72_ALostConnectionIsNobodysFault(t *testing.T) {
	inBubbleOf(t, setUp{provider: bundle.ProviderChatGPT, accounts: []string{"a", "b"}, firstEvent: 120}, func(b *bench) {
		b.anchored("t")
		streaming := b.ask("t", toolOutput)
		b.in(created("r1"), `{"type":"response.output_text.delta","response_id":"r1","delta":"1"}`)
		eventless := b.ask("t", toolOutput+" ")
		dials := b.dialer.count()
		b.in(errLiveness)
		expect(t, streaming, "created output_text.delta", true, "stream_incomplete")
		expect(t, eventless, "", true, "stream_incomplete")
		d := b.detail("t")
		if d.Strikes != 0 || d.Anchor != "good" || b.counts.of("liveness") != 2 || b.dialer.count() != dials {
			t.Fatalf("%d strikes, anchor %s, %v", d.Strikes, d.Anchor, b.counts.rows)
		}
		for _, s := range b.accounts.States() {
			if s.Reason != "" || s.Inflight != 0 {
				t.Fatalf("an account pays: %+v", s)
			}
		}
	})
}

// Both learn of it while the request is under way, in either order.
func TestScenario72_SettledOnceWhoeverTells(t *testing.T) {
	inBubble(t, bundle.ProviderChatGPT, func(b *bench) {
		b.anchored("t")
		b.newest().sendErr = errLiveness
		a := b.ask("t", toolOutput)
		b.in(errLiveness)
		expect(t, a, "", true, "stream_incomplete")
		d := b.detail("t")
		if d.Strikes != 0 || len(d.Attempts) != 2 || d.Attempts[1].Verdict != "liveness" || d.Attempts[1].Recovery != "" {
			t.Fatalf("%d strikes, %+v", d.Strikes, d.Attempts)
		}
		if n := b.dialer.count(); n != 1 {
			t.Fatalf("%d sockets", n)
		}
		if n := b.inflight(); n != 0 {
			t.Fatalf("%d turns hold an account", n)
		}
	})
}
