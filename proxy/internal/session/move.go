package session

import (
	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// Rebalance gives up the sessions that belong to another replica now, each as
// soon as it has no turn, so that their keys are free for it.
func (r *Registry) Rebalance(ours func(affinity.Key) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, e := range r.sessions {
		if e.moving = kept(key) && !ours(key); e.moving && e.turns == 0 {
			r.giveUpLocked(e)
		}
	}
}

// Knows says whether the session of a key is here and a response is one of its
// client's that this process knows itself; an empty id is none.
func (r *Registry) Knows(key affinity.Key, client, responseID string) bool {
	if _, known := r.owners.get(responseID, client); responseID == "" || !known {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[key] != nil
}

// Yield gives up a session, as soon as it has no turn: another replica should hold
// its key, and is there.
func (r *Registry) Yield(key affinity.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.sessions[key]
	if e == nil || !kept(key) {
		return
	}
	if e.moving = true; e.turns == 0 {
		r.giveUpLocked(e)
	}
}
