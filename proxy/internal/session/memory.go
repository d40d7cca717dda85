package session

import (
	"container/list"
	"strings"
	"sync"

	"github.com/causeway-dev/causeway/proxy/internal/affinity"
)

// What a replica remembers beyond its live sessions, each bounded in number; the
// oldest goes first.
const (
	maxOwners  = 65_536
	maxAliases = 65_536
)

// cache is a bounded map that forgets what was written or read longest ago.
type cache[K comparable, V any] struct {
	mu    sync.Mutex // guards all below
	limit int
	items map[K]*list.Element
	order *list.List
}

type cached[K comparable, V any] struct {
	key   K
	value V
}

func newCache[K comparable, V any](limit int) *cache[K, V] {
	return &cache[K, V]{limit: limit, items: map[K]*list.Element{}, order: list.New()}
}

func (c *cache[K, V]) get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.items[key]
	if e == nil {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached[K, V]).value, true
}

func (c *cache[K, V]) put(key K, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.items[key]; e != nil {
		e.Value.(*cached[K, V]).value = value
		c.order.MoveToFront(e)
		return
	}
	c.items[key] = c.order.PushFront(&cached[K, V]{key, value})
	if c.order.Len() > c.limit {
		oldest := c.order.Remove(c.order.Back()).(*cached[K, V])
		delete(c.items, oldest.key)
	}
}

// owners maps a response id to what is known of it and whose it is.
type owners struct {
	cache *cache[string, owned]
}

type owned struct {
	client string
	owner  Owner
}

func newOwners() *owners { return &owners{newCache[string, owned](maxOwners)} }

func (o *owners) put(responseID, client string, owner Owner) {
	o.cache.put(strings.Clone(responseID), owned{client, owner})
}

func (o *owners) get(responseID, client string) (Owner, bool) {
	found, ok := o.cache.get(responseID)
	if !ok {
		return Owner{}, false
	}
	if found.client != client {
		return Owner{Foreign: true}, true
	}
	return found.owner, true
}

// aliases map continuation tokens to sessions.
type aliases struct {
	*cache[affinity.Key, affinity.Key]
}

func newAliases() *aliases { return &aliases{newCache[affinity.Key, affinity.Key](maxAliases)} }
