package bridge

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/test/upstream"
)

// vanished is a conversation whose client left while a delta was answered, at
// an event, or before any; its answer then came to its end.
type vanished struct {
	*rig
	talk  *conversation
	calls []json.RawMessage // what the delta carries
}

func newVanished(t *testing.T, answer *upstream.Respond, at string) *vanished {
	t.Helper()
	r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, deadlines: patient, script: upstream.Script{Conversation: talk}})
	v := &vanished{rig: r, talk: r.conversation(thread("vanished")...)}
	first := v.talk.say("go")
	r.served(first)
	v.calls = first.results("ok")
	place := map[string]string{"": upstream.AtBeforeHeaders, "response.created": upstream.AtAfterCreated, "response.output_text.delta": upstream.AfterEvents(6)}[at]
	r.rules(talk, upstream.Rule{Match: upstream.Match{Nth: 1}, Respond: answer, Fault: &upstream.Fault{At: place, Action: upstream.ActHold}},
		upstream.Rule{Respond: answer})
	v.leave(at)
	r.up.Release()
	r.ended(2)
	until(t, "the turn is judged", func() bool { return len(r.detail(v.talk.header).Attempts) == 2 })
	return v
}

// leave sends the delta and goes at an event, or as soon as the upstream has the
// request. It returns when the session knows.
func (v *vanished) leave(at string) {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.t.Context())
	defer cancel()
	if at == "" {
		go func() {
			defer cancel()
			_ = v.up.Ledger().Wait(ctx, func(ds []upstream.Dispatch) bool { return len(ds) == 2 }) // else the turn below fails
		}()
	}
	alone := *v.talk
	alone.items = v.calls
	out := v.do(call{ctx: ctx, header: v.talk.header, body: alone.body(), onEvent: func(e sse) {
		if e.name == at {
			cancel()
		}
	}})
	if out.err == nil {
		v.t.Fatalf("the client did not leave: %d %s %s", out.status, out.body, out.names())
	}
	until(v.t, "the handler ends", func() bool { return v.serving.Load() == 0 })
	v.detail(v.talk.header) // it has read that the client is gone
}

func TestScenario96_AClientThatCameBackGetsTheSameAnswer(t *testing.T) {
	long := &upstream.Respond{Fill: upstream.Fill{Deltas: 100, Bytes: 500}, ToolCalls: []upstream.ToolCall{{Name: "shell", Arguments: `{"cmd":"x"}`}}}
	for _, at := range []string{"", "response.created", "response.output_text.delta"} {
		t.Run("left at "+at, func(t *testing.T) {
			v := newVanished(t, long, at)
			ds := v.dispatches(2)
			if ds[1].Outcome != upstream.OutcomeCompleted || ds[1].Anchor == "" {
				t.Fatalf("the turn did not end well: %s", ds[1].Outcome)
			}
			out := v.talk.delta(v.calls...)
			v.served(out)
			if out.digest() != ds[1].EventsDigest || len(out.events) != ds[1].Events {
				t.Fatalf("%d events of %d: %s", len(out.events), ds[1].Events, out.names())
			}
			v.dispatches(2)
			// The conversation goes on from the answer.
			v.talk.items = append(v.talk.items, v.calls...)
			v.served(v.talk.delta(out.results("fine")...))
			if d := v.dispatches(3)[2]; d.Anchor != ds[1].ResponseID || !d.AnchorResolved {
				t.Fatalf("went on from %q, want %q", d.Anchor, ds[1].ResponseID)
			}
			v.noDuplicates()
		})
	}
}

func TestScenario97_AnAnswerTooLongToKeep(t *testing.T) {
	huge := &upstream.Respond{Fill: upstream.Fill{Deltas: 400, Bytes: 8 << 10}}
	t.Run("is delivered", func(t *testing.T) {
		r := newRig(t, rigOptions{provider: bundle.ProviderChatGPT, script: upstream.Script{Conversation: talk}})
		c := r.conversation(thread("huge")...)
		first := c.say("go")
		r.rules(nil, upstream.Rule{Respond: huge})
		out := c.delta(first.results("ok")...)
		r.served(out)
		if d := r.ended(2)[1]; out.digest() != d.EventsDigest {
			t.Fatal("it is not what the upstream sent")
		}
	})
	t.Run("is not replayed", func(t *testing.T) {
		v := newVanished(t, huge, "response.created")
		// What the client has not seen cannot be built upon; it starts from its own.
		v.refused(v.talk.delta(v.calls...), http.StatusBadRequest, "previous_response_not_found", "abandoned")
		v.dispatches(2)
		out := v.talk.send(v.calls...)
		v.served(out)
		intact(t, v.dispatches(3)[2], v.talk.before(out))
	})
}
