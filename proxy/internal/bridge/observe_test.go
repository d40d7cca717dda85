package bridge

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/session"
	"github.com/causeway-dev/causeway/test/upstream"
)

// shown is how the session of a client with these headers is shown.
func shown(header []string) string {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return affinity.Derive(affinity.Source{Header: h}).Short()
}

// detail asks a session about itself. What it has judged before is in the
// overview when it answers.
func (r *rig) detail(header []string) session.Detail {
	r.t.Helper()
	d, ok := r.bridge.Detail(shown(header))
	if !ok {
		r.t.Fatalf("no session is shown as %s", shown(header))
	}
	return d
}

// quarantine checks what the status says of the session: reason, or "" for no
// quarantine at all.
func (r *rig) quarantine(header []string, reason string) {
	r.t.Helper()
	d, o := r.detail(header), r.bridge.Overview()
	if reason == "" {
		if o.Quarantined != 0 || len(o.Quarantines) != 0 || d.Anchor == "suspect" || d.Anchor == "dead" {
			r.t.Fatalf("quarantined: %+v, anchor %s", o.Quarantines, d.Anchor)
		}
		return
	}
	if o.Quarantined != 1 || len(o.Quarantines) != 1 {
		r.t.Fatalf("no quarantine: %+v, anchor %s", o, d.Anchor)
	}
	if q := o.Quarantines[0]; q.Key != shown(header) || q.Reason != reason || q.Since.IsZero() || !q.Until.After(q.Since) {
		r.t.Fatalf("quarantine %+v, want %s", q, reason)
	}
}

// attempt is the n-th attempt from the end, 1 = the last.
func attempt(d session.Detail, n int) session.AttemptView {
	if len(d.Attempts) < n {
		return session.AttemptView{}
	}
	return d.Attempts[len(d.Attempts)-n]
}

// rules replaces the upstream's script and keeps its conversation.
func (r *rig) rules(talk *upstream.Conversation, rules ...upstream.Rule) {
	r.t.Helper()
	if err := r.up.Script(upstream.Script{Conversation: talk, Rules: rules}); err != nil {
		r.t.Fatal(err)
	}
}

// dispatches fails unless n requests have reached the upstream.
func (r *rig) dispatches(n int) []upstream.Dispatch {
	r.t.Helper()
	ds := r.up.Ledger().Dispatches()
	if len(ds) != n {
		r.t.Fatalf("%d dispatches, want %d: %+v", len(ds), n, r.seen())
	}
	return ds
}

// intact fails unless a dispatch carries these items and no others, without an
// anchor.
func intact(t *testing.T, d upstream.Dispatch, items []json.RawMessage) {
	t.Helper()
	want := make([]string, len(items))
	for i, item := range items {
		canonical, err := upstream.Canonical(item)
		if err != nil {
			t.Fatal(err)
		}
		want[i] = upstream.Digest(canonical)
	}
	if d.Anchor != "" || !slices.Equal(d.Items, want) {
		t.Fatalf("anchor %q and %d items went up, want none and all %d: %s", d.Anchor, d.InputItems, len(items), d.Body)
	}
}

// whole is the history as it was before the client got the answer out.
func (c *conversation) before(out *reply) []json.RawMessage {
	n := 0
	for _, e := range out.events {
		if e.name == "response.output_item.done" {
			n++
		}
	}
	return c.items[:len(c.items)-n]
}

// delta sends items alone: only the session's anchor gives them a meaning.
func (c *conversation) delta(items ...json.RawMessage) *reply {
	c.rig.t.Helper()
	alone := *c
	alone.items = items
	return c.rig.do(call{header: c.header, body: alone.body(), onEvent: c.onEvent})
}

// id is the id of the response that a client got.
func (r *reply) id() string {
	if len(r.events) == 0 {
		return ""
	}
	return gjson.Get(r.events[0].data, "response.id").Str
}

// code is the error's code, of a status or of the last event.
func (r *reply) code() string { return r.fault("code") }

// reason is the error's reason.
func (r *reply) reason() string { return r.fault("reason") }

func (r *reply) fault(member string) string {
	if r.body != "" {
		return gjson.Get(r.body, "error."+member).Str
	}
	return gjson.Get(r.last().data, "response.error."+member).Str
}

// done says whether the answer is whole.
func (r *reply) done() bool { return r.err == nil && r.last().name == "response.completed" }

// served fails unless the answer is whole.
func (r *rig) served(out *reply) {
	r.t.Helper()
	if !out.done() {
		r.t.Fatalf("status %d %s %s %v", out.status, out.body, out.names(), out.err)
	}
}

// refused fails unless the answer is this error and nothing else.
func (r *rig) refused(out *reply, status int, code, reason string) {
	r.t.Helper()
	if out.status != status || out.code() != code || out.reason() != reason || strings.Contains(out.body, "resp_") {
		r.t.Fatalf("status %d %s %s, want %d %s (%s)", out.status, out.body, out.names(), status, code, reason)
	}
}

// unpunished fails if an account pays for what happened.
func (r *rig) unpunished() {
	r.t.Helper()
	for _, s := range r.accounts.States() {
		if s.Reason != "" || !s.Until.IsZero() {
			r.t.Fatalf("an account pays: %+v", s)
		}
	}
}
