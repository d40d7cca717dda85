package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/failure"
)

// Pin is what the files of a turn need: the one account that they were uploaded
// to. The zero Pin needs nothing.
type Pin struct {
	Account string
	// Split says that they lie on several accounts, so that none can read them all.
	Split bool
}

// with adds the owner of one more file; an empty one is not known and needs
// nothing.
func (p Pin) with(owner string) Pin {
	switch {
	case owner == "":
	case p.Account == "":
		p.Account = owner
	case p.Account != owner:
		p.Split = true
	}
	return p
}

// bind adds what the files need to what the conversation needs. There is no order
// of precedence between the two: a turn that needs two accounts fits none. What
// the proxy would only have added to it, it leaves out: a delta goes to an account
// that has its files when its client sends the whole conversation.
func (p Pin) bind(n Needs, clientAnchor bool) (Needs, *failure.Failure) {
	switch {
	case p.Split:
		return n, ownerConflict()
	case p.Account == "":
		return n, nil
	case n.Only != "" && n.Only != p.Account && clientAnchor:
		return n, ownerConflict()
	case n.Only != "" && n.Only != p.Account:
		return n, anchorGone("file_elsewhere")
	}
	n.Only, n.Prefer = p.Account, p.Account
	return n, nil
}

func ownerConflict() *failure.Failure {
	return failure.New(failure.OwnerConflict,
		"What this request refers to lies on different accounts: upload its files again, "+
			"or send the whole conversation without previous_response_id.",
		failure.Reason("owners_disagree"))
}

// fileLife is how long the account of a file is remembered: as long as the
// platform keeps files that do not say how long they live.
const fileLife = 30 * 24 * time.Hour

// maxPins bounds the files whose accounts are known in memory.
const maxPins = 16_384

// fileAlias names a file of a client in the store.
func fileAlias(client, fileID string) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "file:%d:%s%s", len(client), client, fileID)
	return "f" + hex.EncodeToString(h.Sum(nil))
}

// PinFile notes which account a client's file was uploaded to. Safe for
// concurrent use; nothing waits for the store.
func (r *Registry) PinFile(client, fileID, account string) {
	name := fileAlias(client, fileID)
	r.pins.put(name, strings.Clone(account))
	if !r.services.Local {
		r.services.Writer.PutAlias(name, []byte(account), fileLife)
	}
}

// PinOf says which account has the files of a client's turn. A file that nobody
// knows needs none: it may have been uploaded past this proxy. The error says that
// the store, which may know more, does not answer.
func (r *Registry) PinOf(ctx context.Context, client string, fileIDs []string) (Pin, error) {
	return r.pinOf(ctx, client, fileIDs, false)
}

func (r *Registry) pinOf(ctx context.Context, client string, fileIDs []string, again bool) (Pin, error) {
	var p Pin
	for _, id := range fileIDs {
		name := fileAlias(client, id)
		owner, ok := r.pins.get(name)
		if (!ok || again) && !r.services.Local {
			raw, err := r.lookUp(ctx, name)
			if err != nil {
				return p, err
			}
			owner = storedAccount(raw)
			r.pins.put(name, owner)
		}
		p = p.with(owner)
	}
	return p, nil
}

func storedAccount(raw []byte) string {
	if len(raw) > maxStoredID {
		return ""
	}
	return string(raw)
}

// reread is the answer to a question that was asked once more, past what this
// process remembers.
type reread struct {
	flight *flight
	owner  Owner
	pin    Pin
	err    error
}

// rereadOwners asks the store itself whose the anchor and the files of a turn are:
// the memory of this process may be the one that is wrong.
func (a *actor) rereadOwners(f *flight) {
	f.stage, f.reread = stageRereading, true
	a.flights = append(a.flights, f)
	registry, t := a.registry, f.turn
	client, response, fileIDs := t.Client, t.Facts.PreviousResponseID, t.Facts.Files
	a.world.beside(a, func() any {
		m := reread{flight: f}
		m.owner, m.err = registry.ownerAgain(a.ctx, client, response)
		if m.err == nil {
			m.pin, m.err = registry.pinOf(a.ctx, client, fileIDs, true)
		}
		return m
	})
}

// ownerAgain is Owner by the store alone.
func (r *Registry) ownerAgain(ctx context.Context, client, responseID string) (Owner, error) {
	if responseID == "" {
		return Owner{}, nil
	}
	raw, err := r.lookUp(ctx, responseAlias(client, responseID))
	if err != nil {
		return Owner{}, err
	}
	if raw == nil {
		return Owner{}, errors.New("the store does not know the response")
	}
	owner, err := decodeOwner(raw)
	if err == nil {
		r.owners.put(responseID, client, owner)
	}
	return owner, err
}

func (a *actor) rereadDone(m reread) {
	f := m.flight
	if f.stage != stageRereading {
		return
	}
	a.unlist(f)
	if m.err != nil {
		a.refuse(f, ownerConflict())
		return
	}
	f.stage, f.turn.Owner, f.turn.Pin = stageWaiting, m.owner, m.pin
	a.admit(f)
}
