// Package session owns conversations: one actor per session key, which holds
// the key's record, its upstream connection and its turns. What it decides is
// decided by pure functions over plain values (Make, Decide, Apply); the actor
// only carries it out.
package session

import (
	"time"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// AnchorStatus is what is known of an anchor. It belongs to the anchor's
// identity and never improves with time: only a new response makes a new one.
type AnchorStatus uint8

const (
	// AnchorGood: the response completed here.
	AnchorGood AnchorStatus = iota
	// AnchorSuspect: an attempt with it went silent. A full payload goes without
	// it; a delta keeps it, since it has nothing else.
	AnchorSuspect
	// AnchorDead: the upstream denied it, or its socket is gone.
	AnchorDead
)

func (s AnchorStatus) String() string { return [...]string{"good", "suspect", "dead"}[s] }

// Anchor is a response that later turns can build on.
type Anchor struct {
	ResponseID string
	Account    string
	// Connection is the generation of the socket it lives on; 0 = any connection
	// of the account resolves it.
	Connection uint64
	Status     AnchorStatus
	// Known is the conversation up to and including the response.
	Known affinity.Known
}

// Record is all that survives of a session between its turns.
type Record struct {
	// Account is where the conversation lives: the preferred account of the next
	// turn, and the owner of the anchor.
	Account string
	// Model is the model of the session's lane; a socket serves one model.
	Model  string
	Anchor *Anchor
	// Version rises with every change.
	Version   int64
	UpdatedAt time.Time
}

// Event is something that happened to a session. Exactly one field is set.
type Event struct {
	// Completed replaces the anchor by a new, good one.
	Completed *Anchor
	// Denied is an anchor that the upstream does not know.
	Denied string
	// Suspected is an anchor whose attempt went silent.
	Suspected string
	// ConnectionGone is the generation of a socket that ended.
	ConnectionGone uint64
	// Served is the account and model that a turn was sent with.
	Served *Served
}

// Served says where a turn went.
type Served struct{ Account, Model string }

// Apply is the only way a record changes. It never changes its argument.
func Apply(r Record, e Event, now time.Time) Record {
	next := r
	switch {
	case e.Completed != nil:
		anchor := *e.Completed
		anchor.Status = AnchorGood
		next.Anchor, next.Account = &anchor, anchor.Account
	case e.Denied != "":
		next.Anchor = mark(r.Anchor, AnchorDead, func(a *Anchor) bool { return a.ResponseID == e.Denied })
	case e.Suspected != "":
		next.Anchor = mark(r.Anchor, AnchorSuspect, func(a *Anchor) bool { return a.ResponseID == e.Suspected })
	case e.ConnectionGone != 0:
		next.Anchor = mark(r.Anchor, AnchorDead, func(a *Anchor) bool { return a.Connection == e.ConnectionGone })
	case e.Served != nil:
		next.Account, next.Model = e.Served.Account, e.Served.Model
		if r.Anchor != nil && r.Anchor.Account != e.Served.Account {
			// An anchor of another account is never sent again from here.
			next.Anchor = mark(r.Anchor, AnchorDead, func(*Anchor) bool { return true })
		}
	}
	if next.Anchor == r.Anchor && next.Account == r.Account && next.Model == r.Model {
		return r
	}
	next.Version, next.UpdatedAt = r.Version+1, now
	return next
}

// mark lowers the status of a matching anchor; a status never rises.
func mark(a *Anchor, status AnchorStatus, matches func(*Anchor) bool) *Anchor {
	if a == nil || !matches(a) || a.Status >= status {
		return a
	}
	marked := *a
	marked.Status = status
	return &marked
}
