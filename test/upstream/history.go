package upstream

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// conversation is the logical input up to a point: what the model would see.
// Values are immutable and share their past, so that a long chain costs only
// its new items.
type conversation struct {
	parent  *conversation
	calls   []string          // call ids added here
	pending map[string]string // calls without an output yet: id -> item type
	chain   [sha256.Size]byte // digest over the essence of all items
	items   int
	answers int // answers of the model so far
	rounds  int // answers since the last user message
	inModel bool
	// lastUser is the newest thing a person wrote.
	lastUser string
	tools    []any
}

// extend adds items. It fails, in the words of the service, if a tool output
// has no call.
func (c *conversation) extend(added []item) (*conversation, *apiError) {
	next := &conversation{parent: c, pending: map[string]string{}}
	if c != nil {
		next.chain, next.items, next.answers, next.rounds = c.chain, c.items, c.answers, c.rounds
		next.inModel, next.lastUser, next.tools = c.inModel, c.lastUser, c.tools
		for id, typ := range c.pending {
			next.pending[id] = typ
		}
	}
	for _, it := range added {
		next.chain = sha256.Sum256(append(next.chain[:], it.essence...))
		next.items++
		if err := next.count(it); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func (c *conversation) count(it item) *apiError {
	if it.kind == kindModel && !c.inModel {
		c.answers++
		c.rounds++
	}
	c.inModel = it.kind == kindModel
	switch it.kind {
	case kindUser:
		c.rounds, c.lastUser = 0, it.text
	case kindTools:
		c.tools = slices.Concat(c.tools, it.tools)
	case kindModel:
		if it.callID != "" {
			c.calls = append(c.calls, it.callID)
			c.pending[it.callID] = it.typ
		}
	case kindOutput:
		if it.callID != "" && !c.knows(it.callID) {
			return badRequest("", fmt.Sprintf("No tool call found for %s with call_id %s.", outputName(it.typ), it.callID), "input")
		}
		delete(c.pending, it.callID)
	case kindOther:
	}
	return nil
}

func (c *conversation) knows(callID string) bool {
	for ; c != nil; c = c.parent {
		if slices.Contains(c.calls, callID) {
			return true
		}
	}
	return false
}

// unanswered names a call that the input leaves without output; the service
// refuses to go on from there.
func (c *conversation) unanswered() *apiError {
	for _, id := range slices.Sorted(maps.Keys(c.pending)) {
		if typ := c.pending[id]; typ == "function_call" || typ == "custom_tool_call" {
			return badRequest("", fmt.Sprintf("No tool output found for %s %s.", callName(typ), id), "input")
		}
	}
	return nil
}

func (c *conversation) digest() string { return hex.EncodeToString(c.chain[:]) }

func outputName(typ string) string {
	if typ == "custom_tool_call_output" {
		return "custom tool call output"
	}
	return "function call output"
}

func callName(typ string) string {
	if typ == "custom_tool_call" {
		return "custom tool call"
	}
	return "function call"
}

// remembered is a finished response that may serve as an anchor.
type remembered struct {
	id      string
	account string
	conv    *conversation
}

// history holds the anchors that live on an account: all of the ChatGPT
// backend's, and the stored ones of the platform. It forgets the oldest.
type history struct {
	mu    sync.Mutex
	limit int
	byKey map[string]*remembered
	order []string
}

func newHistory(limit int) *history {
	return &history{limit: limit, byKey: map[string]*remembered{}}
}

// key binds an id to its account: an id alone must never open another
// account's conversation.
func (h *history) key(account, id string) string { return account + "\x00" + id }

func (h *history) put(r *remembered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.key(r.account, r.id)
	if _, ok := h.byKey[k]; !ok {
		h.order = append(h.order, k)
	}
	h.byKey[k] = r
	for len(h.order) > h.limit {
		delete(h.byKey, h.order[0])
		h.order = h.order[1:]
	}
}

func (h *history) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byKey, h.order = map[string]*remembered{}, nil
}

func (h *history) find(account, id string) *remembered {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byKey[h.key(account, id)]
}
