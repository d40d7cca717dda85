package bridge

import (
	"context"
	"time"

	"github.com/causeway-dev/causeway/api/bundle"
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
	"github.com/causeway-dev/causeway/proxy/internal/bulkhead"
	"github.com/causeway-dev/causeway/proxy/internal/deadline"
	"github.com/causeway-dev/causeway/proxy/internal/failure"
	"github.com/causeway-dev/causeway/proxy/internal/session"
)

// turn makes the session's view of a request.
func (b *Bridge) turn(ctx context.Context, req *Request) (*session.Turn, *failure.Failure) {
	t := &session.Turn{ID: req.ID, Client: req.Client, Header: req.Header, Body: req.Body, Facts: affinity.Read(req.Body),
		Runtime: req.Runtime, Out: session.NewOutbox()}
	t.Stay = b.router == nil || req.Forwarded != nil
	req.Tail = t.Facts.PreviousResponseID
	source := affinity.Source{Client: t.Client, Header: t.Header, PromptCacheKey: t.Facts.PromptCacheKey, Socket: req.Socket, RequestID: t.ID}
	if b.name(ctx, t, source) != nil || b.findOwners(ctx, t, source) != nil {
		return nil, unknownOwner()
	}
	if source.OfSocket(t.Key) && !b.leaving() {
		t.Stay = true // the connection is here, and the conversation ends with it
	}
	if req.Forwarded != nil {
		t.Key = *req.Forwarded // the other replica has seen the client itself
	}
	if refusal := journal(t, req); refusal != nil {
		return nil, refusal
	}
	if t.Key.Kind == affinity.KindRequest {
		t.Transport = session.HTTP
	}
	limit(t, req)
	if t.Key.Kind.Hard() && !t.Keyed {
		t.Fingerprint = fingerprint(req.Body)
	}
	return t, nil
}

// name finds the key of the turn's session and the token that continues it.
func (b *Bridge) name(ctx context.Context, t *session.Turn, source affinity.Source) error {
	t.Key = affinity.Derive(source)
	token := affinity.TurnState(t.Header)
	if token == "" {
		t.TurnState = newTurnState()
		return nil
	}
	t.TurnState = token
	key, ok, err := b.sessions.ByTurnState(ctx, t.Client, token)
	switch {
	case err != nil:
		return err
	case ok:
		t.Key, t.Echoed = key, true
	case affinity.ProxyMade(token):
		// A token of ours that no one here knows: fall back to what else the client
		// says of itself.
		t.Key = affinity.DeriveWithoutTurnState(source)
	}
	return nil
}

// findOwners finds whose the response is that the turn builds on, and whose the
// files are that it refers to.
func (b *Bridge) findOwners(ctx context.Context, t *session.Turn, source affinity.Source) error {
	if id := t.Facts.PreviousResponseID; id != "" {
		owner, known, err := b.sessions.Owner(ctx, t.Client, id)
		if err != nil {
			return err
		}
		if !known {
			owner.MayPass = soleClient(t.Runtime)
		}
		if owner.Known && (!t.Key.Kind.Hard() || source.OfSocket(t.Key)) {
			t.Key = owner.Key
		}
		t.Owner = owner
	}
	if len(t.Facts.Files) == 0 {
		return nil
	}
	pin, err := b.sessions.PinOf(ctx, t.Client, t.Facts.Files)
	t.Pin = pin
	return err
}

// limit says which lane a turn is in, and how long it may take.
func limit(t *session.Turn, req *Request) {
	class := deadline.Text
	switch {
	case t.Facts.Media:
		t.Lane, class = bulkhead.Media, deadline.Media
	case req.Socket != "":
		t.Lane = bulkhead.WebSocket
	}
	policy := req.Runtime.Bundle.Circuit
	t.Limits, t.Budget = deadline.For(policy.Deadlines, queueTimeout(policy.Bulkheads, t.Lane), class, req.Stream), req.Budget
}

// queueTimeout is how long a turn may wait in its lane; a bundle that an older
// operator wrote does not list them all.
func queueTimeout(lanes []bundle.Bulkhead, lane bulkhead.Lane) time.Duration {
	for _, b := range lanes {
		if b.Lane == lane.String() && b.QueueTimeoutSeconds > 0 {
			return time.Duration(b.QueueTimeoutSeconds) * time.Second
		}
	}
	return defaultQueueTimeout
}

// defaultQueueTimeout is the built-in profile's.
const defaultQueueTimeout = 30 * time.Second
